"""A server of `gangline` programs that neither start Python nor import its modules again.

The server has the modules of the programs. For each request it forks, and the fork becomes `python -m gangline`: in a
session of its own, with its own words, environment, folder and files, and up to the end of the interpreter. Each
connection is one program: the request comes with the files for its standard output and error, and the answers are the
pid and, at the end, the exit code. A program whose connection is closed is killed.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import signal
import socket
import sys
from contextlib import suppress
from importlib.metadata import entry_points
from selectors import EVENT_READ, PollSelector
from typing import Any

COMMANDS = ("config", "profiles", "run", "status", "ui")
MODULES = (*(f"gangline.commands.{each}" for each in COMMANDS), "gangline_agent.main", "gangline_webhook.main")
MOST = 2**17
"""Bytes of a request at most: the words and the environment."""
END = 0
"""Standard input ends when nobody can ask any more."""


class ProgramServer:
    """Forks for whoever connects."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._watched = PollSelector()
        self._programs: dict[int, tuple[int, socket.socket]] = {}
        """The pid of each program that runs and its connection, by a file that can be read when it has ended."""
        self._silent: dict[int, socket.socket] = {}
        """The connections on which nobody has asked for a program yet, by their files."""

    def forked(self) -> bool:
        """Serve until nobody can ask any more; True in a fork, which has become what was asked for."""
        for each in (END, self._listener):
            self._watched.register(each, EVENT_READ)
        while True:
            ready = {key.fd for key, _ in self._watched.select()}
            if END in ready:
                self._stop(list(self._programs))
                return False
            self._stop([each for each, (_, asking) in self._programs.items() if asking.fileno() in ready])
            for each in ready & self._programs.keys():
                self._reap(each)
            for each in ready & self._silent.keys():
                if self._start(self._silent.pop(each)):
                    return True
            if self._listener.fileno() in ready:
                self._accept()

    def _accept(self) -> None:
        """Have one more connection, and wait for its request beside everything else."""
        connection, _ = self._listener.accept()
        self._silent[connection.fileno()] = connection
        self._watched.register(connection, EVENT_READ)

    def _start(self, connection: socket.socket) -> bool:
        """Start the program that a connection asks for; True in the fork."""
        message, files, _, _ = socket.recv_fds(connection, MOST, 2)
        if not message:  # who asked has gone
            self._watched.unregister(connection)
            connection.close()
            return False
        pid = os.fork()
        if not pid:
            _become(json.loads(message), files)
            with suppress(OSError):
                connection.send(str(os.getpid()).encode())  # who asked may send signals from now on
            self._leave(connection)
            return True
        for each in files:
            os.close(each)
        ended = os.pidfd_open(pid)
        self._programs[ended] = pid, connection
        self._watched.register(ended, EVENT_READ)
        return False

    def _leave(self, connection: socket.socket) -> None:
        """Close in a fork what belongs to the server."""
        for ended, (_, other) in self._programs.items():
            os.close(ended)
            other.close()
        for each in (connection, *self._silent.values(), self._listener):
            each.close()
        self._watched.close()

    def _stop(self, programs: list[int]) -> None:
        for each in programs:
            os.kill(self._programs[each][0], signal.SIGKILL)
            self._reap(each)

    def _reap(self, ended: int) -> None:
        """Tell who asked how a program has ended."""
        pid, connection = self._programs.pop(ended)
        _, status = os.waitpid(pid, 0)
        for each in (ended, connection):
            self._watched.unregister(each)
        os.close(ended)
        with connection, suppress(OSError):
            connection.send(str(os.waitstatus_to_exitcode(status)).encode())


def _become(request: dict[str, Any], files: list[int]) -> None:
    """Take over words, environment, folder and files from a request."""
    os.setsid()
    os.chdir(request["folder"])
    for number, each in enumerate(files, start=1):
        os.dup2(each, number)
        os.close(each)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, END)
    os.close(empty)
    sys.argv[1:] = request["words"]
    os.environ.clear()
    os.environ.update(request["environment"])


if __name__ == "__main__":
    sys.path.pop(0)  # the folder of this file, which `python -m` does not have
    for module in MODULES:
        __import__(module)
    for plugin in entry_points(group="gangline.plugins"):
        plugin.load()
    gc.freeze()  # no fork walks what all share
    with socket.socket(fileno=int(sys.argv[1])) as listener:
        is_forked = ProgramServer(listener).forked()
    if is_forked:
        runpy.run_module("gangline", run_name="__main__", alter_sys=True)
