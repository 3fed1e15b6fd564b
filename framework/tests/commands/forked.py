"""Runs `gangline` in processes of their own that neither start Python nor import its modules again.

A server has the modules of the commands. For each run it forks, and the fork becomes `python -m gangline`: with its own
words, environment and files, and up to the end of the interpreter.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import socket
import subprocess
import sys
from collections.abc import Mapping
from tempfile import TemporaryFile
from typing import IO, Any

MODULES = ("gangline.commands.run", "gangline.commands.status", "gangline.commands.ui", "gangline_agent.main")
MOST = 2**17
"""Bytes of a request at most: the words and the environment."""


class Forking:
    """The server; `close` ends it."""

    def __init__(self) -> None:
        self._server, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._server.settimeout(60.0)
        with theirs:
            command = [sys.executable, __file__, str(theirs.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdout=subprocess.DEVNULL)

    def run(
        self, words: tuple[str, ...], environment: Mapping[str, str] = os.environ, output: int | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """The end of `gangline` with these words. Its standard output is `output` if that is given, else it is kept."""
        request = json.dumps({"words": words, "environment": dict(environment)}).encode()
        with TemporaryFile() as kept, TemporaryFile() as errors:
            files = [kept.fileno() if output is None else output, errors.fileno()]
            socket.send_fds(self._server, [request], files)
            code = int(self._server.recv(MOST))
            return subprocess.CompletedProcess(words, code, whole(kept), whole(errors))

    def close(self) -> None:
        self._server.close()
        self._process.wait(60.0)


def whole(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


def forked(client: socket.socket) -> bool:
    """Fork for each request and answer with the exit code; True in a fork, False when nobody asks any more."""
    while True:
        request, files, _, _ = socket.recv_fds(client, MOST, 2)
        if not request:
            return False
        pid = os.fork()
        if not pid:
            become(json.loads(request), files)
            return True
        for each in files:
            os.close(each)
        _, status = os.waitpid(pid, 0)
        client.send(str(os.waitstatus_to_exitcode(status)).encode())


def become(request: Mapping[str, Any], files: list[int]) -> None:
    """Take over words, environment and files from a request."""
    for number, each in enumerate(files, start=1):
        os.dup2(each, number)
        os.close(each)
    sys.argv[1:] = request["words"]
    os.environ.clear()
    os.environ.update(request["environment"])


if __name__ == "__main__":
    sys.path.pop(0)  # the folder of this file, which `python -m` does not have
    for module in MODULES:
        __import__(module)
    gc.freeze()  # no fork walks what all share
    with socket.socket(fileno=int(sys.argv[1])) as asking:
        is_forked = forked(asking)
    if is_forked:
        runpy.run_module("gangline", run_name="__main__", alter_sys=True)
