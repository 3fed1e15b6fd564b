"""The command, as a user runs it."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from gangline.main import main
from gangline_e2e.certificates import Authority
from gangline_e2e.forked_programs import Forking
from gangline_webhook.main import webhook


def test_help_names_every_option() -> None:
    done = CliRunner().invoke(webhook, ["--help"])

    assert done.exit_code == 0
    for option in ("--tls-cert-file", "--tls-private-key-file", "--addr", "--listen", "--scheduler-name"):
        assert option in done.stdout


def test_a_missing_certificate_is_one_line_on_stderr(forking: Forking, tmp_path: Path) -> None:
    done = forking.run(("webhook", "--no-claims", "--tls-cert-file", str(tmp_path / "none.crt")))

    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.decode() == f"gangline: {tmp_path}/none.crt: No such file or directory\n"


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["--addr", "nowhere"], 2, "Invalid value for '--addr': expected HOST:PORT or :PORT, got 'nowhere'"),
        (["--listen", ":x"], 2, "Invalid value for '--listen': expected HOST:PORT or :PORT, got ':x'"),
        (["--secure-listen", "80"], 2, "Invalid value for '--secure-listen': expected HOST:PORT or :PORT, got '80'"),
        (["--log-level", "loud"], 2, "Invalid value for '--log-level': 'loud' is not one of debug, info, warning,"),
        (
            ["--kubeconfig", "/nonexistent", "--claims"],
            4,
            "gangline: no API server is known: /nonexistent: no such file",
        ),
        (["--whatever"], 2, "No such option"),
    ],
    ids=["address", "listen", "secure listen", "log level", "kubeconfig", "usage"],
)
def test_wrong_words_are_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    status: int,
    message: str,
) -> None:
    pair = Authority(tmp_path, "authority").server("webhook")
    files = ["--tls-cert-file", str(pair.certificate), "--tls-private-key-file", str(pair.key)]
    monkeypatch.setattr(sys, "argv", ["gangline", "webhook", "--no-claims", *files, *words])
    monkeypatch.setattr(logging, "basicConfig", lambda **options: None)  # the handlers of this process stay

    with pytest.raises(SystemExit) as end:
        main()

    written = capsys.readouterr().err
    assert end.value.code == status
    assert message in written
    assert "Traceback" not in written


@pytest.mark.parametrize(
    ("environment", "words", "names"),
    [
        pytest.param(None, [], ("gpu-scheduler",), id="neither"),
        pytest.param("", [], ("gpu-scheduler",), id="empty"),
        pytest.param("mine", [], ("mine",), id="environment"),
        pytest.param("mine", ["--scheduler-name", "a", "--scheduler-name", "b"], ("a", "b"), id="both"),
    ],
)
def test_schedulers_are_named_by_options_or_the_environment(
    monkeypatch: pytest.MonkeyPatch, environment: str | None, words: list[str], names: tuple[str, ...]
) -> None:
    monkeypatch.delenv("SCHEDULER_NAME", raising=False)
    if environment is not None:
        monkeypatch.setenv("SCHEDULER_NAME", environment)

    assert webhook.make_context("webhook", words).params["scheduler_names"] == names
