"""`gangline certs` as it is typed: the files of `make`, and what is refused."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gangline import main
from gangline.certificates import Bundle, server_names, why_renew

NAMED = ("--namespace", "gpu", "--service", "hook")


def typed(*words: str | Path) -> Result:
    return CliRunner().invoke(main.cli, ["certs", *map(str, words)])


def test_make_writes_three_files_and_the_key_is_private(tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"

    result = typed("make", "--out", out, *NAMED, "--days", "90")

    assert result.exit_code == 0 and result.stdout.startswith(f"tls.crt, tls.key and ca.crt in {out}: for hook.gpu.svc")
    files = {path.name: path.read_bytes() for path in out.iterdir()}
    assert files.keys() == {"tls.crt", "tls.key", "ca.crt"}
    assert stat.S_IMODE((out / "tls.key").stat().st_mode) == 0o600
    now, names = datetime.now(UTC), server_names("hook", "gpu")
    assert why_renew(Bundle.of(files), names, now, timedelta(days=89)) is None
    assert why_renew(Bundle.of(files), names, now, timedelta(days=90)) is not None


def test_make_replaces_a_readable_key_by_a_private_one(tmp_path: Path) -> None:
    (tmp_path / "tls.key").write_text("old")
    (tmp_path / "tls.key").chmod(0o644)

    assert typed("make", "--out", tmp_path, *NAMED).exit_code == 0

    assert stat.S_IMODE((tmp_path / "tls.key").stat().st_mode) == 0o600
    assert "old" not in (tmp_path / "tls.key").read_text()


def test_make_names_the_folder_that_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    result = typed("make", "--out", tmp_path / "file" / "below", *NAMED)

    assert result.exit_code == 1 and result.stderr == f"Error: {tmp_path}/file/below: Not a directory\n"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("make", "--out", "x", "--namespace", "Up", "--service", "hook"), "'Up' is no name for a namespace"),
        (("make", "--out", "x", "--namespace", "gpu", "--service", "a.b"), "'a.b' is no name for a service"),
        (("ensure", *NAMED), "Missing option '--secret'"),
        (("ensure", *NAMED, "--secret", "s", "--days", "30"), "--renew-before 30 must be less than --days 30"),
        (("ensure", *NAMED, "--secret", "s", "--days", "0"), "0 is not in the range 1<=x<=3650"),
    ],
    ids=["namespace", "service", "secret", "never-done", "days"],
)
def test_wrong_usage_is_refused(words: tuple[str, ...], line: str) -> None:
    result = typed(*words)

    assert result.exit_code == 2 and line in result.stderr


def test_ensure_says_which_credentials_are_missing(tmp_path: Path) -> None:
    missing = tmp_path / "kubeconfig"

    result = typed("ensure", *NAMED, "--secret", "s", "--kubeconfig", missing)

    assert str(result.exception) == (
        f"no API server is known: {missing}: no such file; name a kubeconfig with --kubeconfig or $KUBECONFIG, "
        "and one of its contexts with --context"
    )
