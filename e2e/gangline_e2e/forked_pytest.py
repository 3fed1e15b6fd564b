"""Runs pytest for a test in a fork of the process of the test, which has imported pytest already.

To start Python, and to import pytest and what tests import, takes half of such a run: a quarter of a second of CPU.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from select import select
from subprocess import CompletedProcess
from tempfile import TemporaryFile
from typing import NoReturn

import pytest

LONG = 100.0
"""Seconds that a run has to end."""


def run_pytest(words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> CompletedProcess[str]:
    """The end of pytest with these words in this folder; what it wrote, errors too, is its standard output.

    TimeoutError if it does not end.
    """
    with TemporaryFile() as said:
        pid = os.fork()
        if not pid:
            _become(words, folder, environment, said.fileno())
        ended = os.pidfd_open(pid)
        try:
            has_ended = bool(select([ended], [], [], LONG)[0])
            if not has_ended:
                os.kill(pid, signal.SIGKILL)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        finally:
            os.close(ended)
        said.seek(0)
        text = said.read().decode()
    if not has_ended:
        raise TimeoutError(f"pytest goes on after {LONG:g} s; it wrote\n{text}")
    return CompletedProcess(words, code, text, "")


def _become(words: Sequence[str], folder: Path, environment: Mapping[str, str], said: int) -> NoReturn:
    """What the fork does: nothing that it has from the test but modules plays a part, and it ends without them."""
    code = 1
    try:
        for number in (1, 2):
            os.dup2(said, number)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        warnings.resetwarnings()
        code = int(pytest.main(list(words)))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
