"""Runs tests in several processes which are forked when all tests have been collected: `pytest --processes auto`.

pytest-xdist, which end-to-end tests use, starts each of its processes anew: each imports and collects every test again
and sends each report through its own serializer, in Python. For 8,800 short tests on two cores this took a sixth of the
whole time (115 s; 95 s in processes that do neither).

The tests are cut into pieces of some consecutive tests. The places of the pieces stand in a pipe from which each
process reads its next piece, so nobody has to wait for anybody. A process sends what pytest reports about each test
through a pipe of its own, and the first process hands the reports to its plugins as if it had run the tests itself. A
process that dies is reported as a failure of the test that it was running; tests that it took and did not reach are run
by new processes.
"""

from __future__ import annotations

import os
import pickle
import struct
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from selectors import EVENT_READ, PollSelector
from typing import Any, NoReturn

import pytest
from _pytest._io import TerminalWriter

PIECE = 120
"""The most tests of a piece: whole files, as a rule, whose tests share what takes long to make. The last pieces are
smaller, so that all processes end at about the same time.
"""
SHARE = 16
"""A piece has at most this part of the tests that are left."""
_PLACE = struct.Struct("=II")
_USUAL = frozenset(vars(pytest.TestReport("", ("", 0, ""), {}, "passed", None, "call")))
"""The attributes of a report that nobody has added anything to."""

Location = tuple[str, int | None, str]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declares the option."""
    parser.addoption(
        "--processes", metavar="N", help="fork N processes after collection, or `auto`, which run the tests"
    )


def process_count(asked: str) -> int:
    """Two processes for each core for `auto`, because some tests wait for a process or a time."""
    return 2 * len(os.sched_getaffinity(0)) if asked == "auto" else int(asked)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Runs all tests in forked processes, when asked to."""
    asked = session.config.getoption("processes")
    if not asked or session.config.option.collectonly or session.testsfailed:
        return None
    terminal: Any = session.config.pluginmanager.getplugin("terminalreporter")
    if terminal is not None:
        terminal.showfspath = False  # the tests of several files come mixed
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # one folder for all, let go by this process
    left: Sequence[int] = range(len(session.items))
    while left:
        left = _Round(session, left).run(process_count(asked))
    return True


@dataclass(slots=True)
class _Child:
    pid: int
    reports: Connection
    at: int = -1
    """The test that it runs."""
    location: Location = ("", None, "")


class _Round:
    """Processes that run these tests, as long as they live."""

    def __init__(self, session: pytest.Session, tests: Sequence[int]) -> None:
        self._session, self._hook = session, session.config.hook
        self._left = dict.fromkeys(tests)

    def run(self, count: int) -> list[int]:
        """Runs the tests; returns those that were not run, because a process died that was to run them."""
        with PollSelector() as self._children:
            try:
                self._fork(count)
                while self._children.get_map():
                    for key, _ in self._children.select():
                        self._receive(key.data)
                    if self._session.shouldfail:
                        raise self._session.Failed(self._session.shouldfail)
                    if self._session.shouldstop:
                        raise self._session.Interrupted(self._session.shouldstop)
            finally:
                for key in self._children.get_map().values():
                    os.kill(key.data.pid, 9)
                    os.waitpid(key.data.pid, 0)
        return list(self._left)

    def _fork(self, count: int) -> None:
        places, write = os.pipe()
        pieces = list(_pieces(self._session.items, list(self._left)))
        os.set_blocking(write, False)  # pieces for which the pipe has no room are left for the next round
        os.write(write, b"".join(_PLACE.pack(*piece) for piece in pieces))
        os.close(write)
        for _ in range(min(count, len(pieces))):
            read, sent = Pipe(duplex=False)
            pid = os.fork()
            if not pid:
                _run(self._session, places, sent)
            sent.close()
            self._children.register(read, EVENT_READ, _Child(pid, read))
        os.close(places)

    def _receive(self, child: _Child) -> None:
        """Takes the reports about the test that has ended, and notes the test that begins."""
        try:
            reports, at, location = pickle.loads(child.reports.recv_bytes())
        except EOFError:
            self._children.unregister(child.reports)
            self._ended(child, os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1]))
            return
        if child.at >= 0:
            for report in reports:
                self._hook.pytest_runtest_logreport(report=self._plain(report))
            self._finish(child)
        if at >= 0:
            child.at, child.location = at, location
            self._hook.pytest_runtest_logstart(nodeid=self._session.items[at].nodeid, location=location)

    def _plain(self, report: Any) -> Any:
        if isinstance(report, pytest.TestReport):
            return report
        return self._hook.pytest_report_from_serializable(config=self._session.config, data=report)

    def _finish(self, child: _Child) -> None:
        item = self._session.items[child.at]
        self._hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=child.location)
        del self._left[child.at]
        child.at = -1

    def _ended(self, child: _Child, code: int) -> None:
        if child.at >= 0:
            item = self._session.items[child.at]
            said = f"the process that ran this test ended with {code}"
            report = pytest.TestReport(item.nodeid, child.location, {}, "failed", said, "call")
            self._hook.pytest_runtest_logreport(report=report)
            self._finish(child)
        elif code:
            raise pytest.UsageError(f"a process that runs tests ended with {code} between two tests")


def _pieces(items: Sequence[pytest.Item], tests: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The first and the last test of each piece: consecutive tests of one file."""
    left = len(tests)
    for _, alike in groupby(enumerate(tests), lambda each: (items[each[1]].path, each[1] - each[0])):
        run = [test for _, test in alike]
        while run:
            size = min(PIECE, 1 + left // SHARE)
            part, run = run[:size], run[size:]
            left -= len(part)
            yield part[0], part[-1]


def _run(session: pytest.Session, places: int, connection: Connection) -> NoReturn:
    """What a forked process does: it runs tests until no piece is left, and ends without anything of its parent's."""
    code = 0
    try:
        _Reporting(session, connection).run_all(places)
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
        code = 1
    os._exit(code)


class _Terminal:
    """Where plugins write in a forked process: what they say of a test is captured and comes with its report.

    Without it pytest-timeout cannot end a test: it asks for the terminal first, and fails with an exception that the
    program under test may catch.
    """

    def __init__(self) -> None:
        self._tw = TerminalWriter(sys.stderr)


class _Reporting:
    """Runs tests and sends what is reported about them."""

    def __init__(self, session: pytest.Session, connection: Connection) -> None:
        self._session, self._connection = session, connection
        self._reports: list[Any] = []
        threading.current_thread()._set_native_id()  # type: ignore[attr-defined]  # Python keeps the parent's
        plugins = session.config.pluginmanager
        for name in ("terminalreporter", "logging-plugin-reporter"):
            if plugins.hasplugin(name):
                plugins.unregister(name=name)
        capturing: Any = plugins.getplugin("capturemanager")
        if capturing is not None and capturing.is_globally_capturing() is not None:
            capturing.stop_global_capturing()  # its files are the parent's
            capturing.start_global_capturing()
            capturing.suspend_global_capture()
        plugins.register(_Terminal(), "terminalreporter")
        plugins.register(self)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notes a report in a form that can be sent, as a usual one is that a test has passed."""
        if type(report) is pytest.TestReport and report.passed and vars(report).keys() == _USUAL:
            self._reports.append(report)
            return
        config = self._session.config
        self._reports.append(config.hook.pytest_report_to_serializable(config=config, report=report))

    def run_all(self, places: int) -> None:
        """Runs the tests of the pieces that this process gets."""
        items = self._session.items
        coming = _tests(places)
        test = next(coming, None)
        while test is not None:
            following = next(coming, None)
            item, nextitem = items[test], None if following is None else items[following]
            self._send(test, item.location)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=nextitem)
            test = following
        self._send(-1, None)

    def _send(self, test: int, location: Location | None) -> None:
        """Tells what is reported about the last test, and which test begins."""
        self._connection.send_bytes(pickle.dumps((self._reports, test, location)))
        self._reports = []


def _tests(places: int) -> Iterator[int]:
    while place := os.read(places, _PLACE.size):
        first, last = _PLACE.unpack(place)
        yield from range(first, last + 1)
