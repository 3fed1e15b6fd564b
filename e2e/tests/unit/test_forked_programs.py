"""Programs that are forked end, are killed and write as programs that start Python."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from select import select

import pytest

from gangline_e2e.forked_programs import Forking

WAITS = ("agent", "--node-name", "a", "--simulate", "dgx-h100", "--listen", "127.0.0.1:0", "--kubeconfig")


@pytest.fixture
def kubeconfig(tmp_path: Path) -> str:
    """For a server that nobody runs, so that an agent waits for the server."""
    file = tmp_path / "kubeconfig"
    file.write_text(
        "{current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], "
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}], users: [{name: u, user: {token: t}}]}"
    )
    return str(file)


@pytest.mark.parametrize("words", [("profiles", "list"), ("no-such-command",)])
def test_a_program_writes_and_ends_as_one_that_starts_python(forking: Forking, words: tuple[str, ...]) -> None:
    alone = subprocess.run([sys.executable, "-m", "gangline", *words], capture_output=True, timeout=60, check=False)

    forked = forking.run(words)

    assert (forked.returncode, forked.stdout, forked.stderr) == (alone.returncode, alone.stdout, alone.stderr)


def test_environment_and_folder_are_those_of_the_test(
    forking: Forking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    done = forking.run(("status",), {**os.environ, "KUBECONFIG": "missing"})
    made = forking.run(("plugins", "new", "PreferRack"))

    assert done.returncode == 4 and b"missing" in done.stderr
    assert made.returncode == 0 and (tmp_path / "prefer-rack").is_dir()


def test_a_program_has_a_session_and_nothing_that_is_open_in_the_server(
    forking: Forking, kubeconfig: str, tmp_path: Path
) -> None:
    program = forking.logged([*WAITS, kubeconfig], tmp_path / "log")
    other = forking.logged([*WAITS, kubeconfig], tmp_path / "other")

    assert os.getsid(program.pid) == program.pid and os.getsid(other.pid) == other.pid
    program.send_signal(signal.SIGKILL)
    assert program.wait() == -signal.SIGKILL and not program.runs() and other.runs()
    program.close()
    other.close()
    assert other.returncode == -signal.SIGKILL


def test_a_program_of_a_test_that_has_gone_is_killed(forking: Forking, kubeconfig: str, tmp_path: Path) -> None:
    program = forking.logged([*WAITS, kubeconfig], tmp_path / "log")
    watched = os.pidfd_open(program.pid)

    program._connection.close()

    assert select([watched], [], [], 60.0)[0]
    os.close(watched)


def test_who_connects_and_says_nothing_keeps_nobody_waiting(forking: Forking) -> None:
    with forking.connect(), forking.connect() as gone:
        gone.close()

        assert forking.run(("no-such-command",)).returncode == 2
