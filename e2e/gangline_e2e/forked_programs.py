"""Runs `gangline` in processes of its own that are forked, all by one server, for all tests of a run.

To start Python and to import the modules takes a third of a second of CPU for each command, and for the scheduler half
a second. A test of what is imported, of the memory or of the installed script starts Python itself.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import pytest

from gangline_e2e import program_server
from gangline_e2e.program_server import MOST

LONG = 60.0
"""Seconds that a program has to start, and a program that ends by itself to end."""


class ForkedProgram:
    """A program that a test has started. `close` kills the program if it runs still."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.pid = int(self._said(LONG))
        self.returncode: int | None = None

    def wait(self, seconds: float = LONG) -> int:
        """The exit code, as of a `subprocess.Popen`; TimeoutError if the program does not end in this time."""
        if self.returncode is None:
            self.returncode = int(self._said(seconds))
        return self.returncode

    def runs(self) -> bool:
        """Whether the program has not ended yet."""
        if self.returncode is None:
            try:
                self.wait(0.001)
            except TimeoutError:
                return True
        return False

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, if the program runs still."""
        if self.runs():
            os.kill(self.pid, number)

    def close(self) -> None:
        """Return when the program has ended."""
        self.send_signal(signal.SIGKILL)
        self.wait()
        self._connection.close()

    def _said(self, seconds: float) -> bytes:
        self._connection.settimeout(seconds)
        return self._connection.recv(64)


class Forking:
    """The server; `close` ends it."""

    def __init__(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind("")  # the system finds a name
            listener.listen()
            self._name = listener.getsockname()
            command = [sys.executable, program_server.__file__, str(listener.fileno())]
            self._process = subprocess.Popen(
                command, pass_fds=[listener.fileno()], stdin=subprocess.PIPE, start_new_session=True
            )

    def start(
        self, words: Sequence[str], output: int, errors: int, environment: Mapping[str, str] = os.environ
    ) -> ForkedProgram:
        """`gangline` with these words, which writes into these files."""
        request = json.dumps({"words": list(words), "environment": dict(environment), "folder": os.getcwd()}).encode()
        assert len(request) <= MOST
        connection = self.connect()
        try:
            socket.send_fds(connection, [request], [output, errors])
            return ForkedProgram(connection)
        except BaseException:
            connection.close()
            raise

    def connect(self) -> socket.socket:
        """A connection to the server, on which nothing has been said yet."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.settimeout(LONG)
            connection.connect(self._name)
        except BaseException:
            connection.close()
            raise
        return connection

    def run(
        self, words: Sequence[str], environment: Mapping[str, str] = os.environ, output: int | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """The end of `gangline` with these words. Its standard output is `output` if that is given, else it is kept."""
        with TemporaryFile() as kept, TemporaryFile() as errors:
            written = kept.fileno() if output is None else output
            program = self.start(words, written, errors.fileno(), environment)
            try:
                code = program.wait()
            finally:
                program.close()
            return subprocess.CompletedProcess(words, code, _whole(kept), _whole(errors))

    def logged(self, words: Sequence[str], log: Path) -> ForkedProgram:
        """`gangline` with these words, which writes everything into a file."""
        with log.open("ab") as file:
            return self.start(words, file.fileno(), file.fileno())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(LONG)


def _whole(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


_SERVER = pytest.StashKey[Forking]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Starts the server when a test needs it: before the processes are forked that run the tests."""
    needed = any("forking" in getattr(item, "fixturenames", ()) for item in session.items)
    if needed and not session.config.option.collectonly:
        session.config.stash[_SERVER] = Forking()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Ends the server."""
    if _SERVER in config.stash:
        config.stash[_SERVER].close()


@pytest.fixture(scope="session")
def forking(pytestconfig: pytest.Config) -> Forking:
    """The server that all tests share."""
    return pytestconfig.stash[_SERVER]
