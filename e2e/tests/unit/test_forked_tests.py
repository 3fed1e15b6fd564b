"""Tests run in forked processes as they run in one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from shutil import copy

import pytest

from gangline_e2e.forked_pytest import run_pytest

CONFTEST = Path(__file__).parents[3] / "conftest.py"
PLUGINS = ("-p", "pytest_timeout", "-p", "gangline_e2e.forked_tests")
ALONE = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # other plugins take long to load
TESTS = """
import os
import pytest

@pytest.mark.parametrize("number", range(100))
def test_passes(number):
    print("nobody sees this")

@pytest.mark.parametrize("number", range(10))
def test_has_a_folder(number, tmp_path):
    pass

def test_fails():
    print("everybody sees this")
    assert 1 + 1 == 3

@pytest.fixture
def broken():
    raise KeyError("no fixture")

def test_has_a_broken_fixture(broken):
    pass

@pytest.mark.skip(reason="not today")
def test_is_skipped():
    pass
"""
DIES = """
import os

def test_before():
    pass

def test_dies():
    os._exit(7)

def test_after():
    pass
"""

HANGS = """
import threading
import time

import pytest

def work():
    for _ in range(3):
        try:
            time.sleep(2)
        except Exception:
            print("an exception is no reason to stop")

@pytest.mark.timeout(0.2)
def test_hangs_in_what_goes_on_after_exceptions():
    thread = threading.Thread(target=time.sleep, args=(2,), name="another-thread")
    thread.start()
    work()
"""

LEAKS = """
import socket

def test_leaks():
    cycle = [socket.socket()]
    cycle.append(cycle)
    many = [[] for _ in range(30_000)]  # the collector looks at the socket while it is in use

def test_after():
    pass
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files of tests."""
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n")
    (tmp_path / "test_many.py").write_text(TESTS)
    (tmp_path / "test_dying.py").write_text(DIES)
    (tmp_path / "test_hanging.py").write_text(HANGS)
    return tmp_path


def run(folder: Path, *more: str, processes: int = 3) -> tuple[int, str]:
    words = (*PLUGINS, "--processes", str(processes), *more)
    done = run_pytest(words, folder, ALONE)
    return done.returncode, done.stdout


def test_each_test_is_reported_once_with_what_it_printed(folder: Path) -> None:
    code, said = run(folder, "test_many.py")

    assert code == 1 and re.search(r"1 failed, 110 passed, 1 skipped, 1 error in", said), said
    assert "everybody sees this" in said and "nobody sees this" not in said
    assert "assert (1 + 1) == 3" in said and "KeyError: 'no fixture'" in said


def test_a_process_that_dies_fails_its_test_and_the_others_are_run(folder: Path) -> None:
    """In a run that starts Python, as people start it."""
    command = (sys.executable, "-m", "pytest", *PLUGINS, "--processes", "3", "test_dying.py")
    done = subprocess.run(command, cwd=folder, env=ALONE, capture_output=True, text=True, timeout=100)
    code, said = done.returncode, done.stdout + done.stderr

    assert code == 1 and re.search(r"1 failed, 2 passed in", said), said
    assert "the process that ran this test ended with 7" in said


def test_a_test_that_takes_too_long_fails_and_what_each_thread_did_is_told(folder: Path) -> None:
    code, said = run(folder, "test_hanging.py")

    assert code == 1 and "Failed: Timeout (>0.2s)" in said and "an exception is no reason" not in said, said
    assert "another-thread" in said


def test_a_socket_that_a_test_leaves_open_fails_the_next_one(folder: Path) -> None:
    copy(CONFTEST, folder)
    (folder / "test_leaking.py").write_text(LEAKS)
    strict = ("-W", "error::ResourceWarning", "-W", "error::pytest.PytestUnraisableExceptionWarning")

    code, said = run(folder, *strict, "test_leaking.py", processes=1)  # the next test of the same process

    assert code == 1 and "ERROR test_leaking.py::test_after" in said and "unclosed <socket" in said, said


def test_at_the_first_failure_a_run_can_stop(folder: Path) -> None:
    code, said = run(folder, "-x", "test_dying.py", "test_many.py")

    assert code == 1 and "stopping after 1 failures" in said


def test_a_test_that_does_not_exist_is_told_as_ever(folder: Path) -> None:
    code, said = run(folder, "test_many.py::test_nothing")

    assert code == 4 and "not found" in said
