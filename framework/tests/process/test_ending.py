"""A process that is told to stop ends, whatever goes on in it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, logging, threading
from contextlib import suppress
from gangline.process.ending import LastResort

async def deaf():
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)

async def stuck():
    await asyncio.to_thread(threading.Event().wait)

async def well_behaved():
    await asyncio.sleep(3600)

async def main(last_resort):
    going_on = asyncio.create_task(WORK(), name="of a plugin")
    await asyncio.sleep(0.05)
    last_resort.start()

with LastResort(SECONDS) as last_resort, asyncio.Runner() as runner:
    runner.run(main(last_resort))
print("ended by itself")
"""


def ended(work: str, seconds: float) -> subprocess.CompletedProcess[str]:
    program = PROGRAM.replace("WORK", work).replace("SECONDS", str(seconds))
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(("work", "named"), [("deaf", "of a plugin (deaf)"), ("stuck", "thread asyncio_0")])
def test_what_goes_on_is_named_and_the_process_ends(work: str, named: str) -> None:
    end = ended(work, 0.5)

    assert end.returncode == 1
    assert "stopped 0.5 s ago, and these still go on: " in end.stderr
    assert named in end.stderr
    assert "Traceback" not in end.stderr


def test_a_process_that_ends_by_itself_is_left_alone() -> None:
    end = ended("well_behaved", 60.0)

    assert (end.returncode, end.stdout, end.stderr) == (0, "ended by itself\n", "")


LOGGING = """
import logging
from gangline.process import logs
logs.configure("info", "text")
for number in range(5_000):
    logging.getLogger("test").info("line %d of a log that nobody reads", number)
print("went on", flush=True)
"""
HOLDER = """
import logging, threading
held = threading.Event()
def hold():
    for handler in logging.getLogger().handlers:
        handler.acquire()
    held.set()
    threading.Event().wait()
logging.basicConfig()
threading.Thread(target=hold, daemon=True).start()
held.wait()
"""


@pytest.mark.parametrize("stderr", ["full pipe", "full disk"])
def test_a_log_that_takes_nothing_holds_up_neither_the_work_nor_the_end(stderr: str) -> None:
    reading, writing = os.pipe()
    if stderr == "full disk":
        os.close(writing)
        writing = os.open("/dev/full", os.O_WRONLY)
    program = LOGGING + PROGRAM.replace("WORK", "stuck").replace("SECONDS", "0.2")
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=writing, text=True)
    os.close(writing)
    try:
        said, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        os.close(reading)

    assert (process.returncode, said) == (1, "went on\n")


def test_a_thread_that_keeps_the_log_for_itself_does_not_hold_up_the_end() -> None:
    program = HOLDER + PROGRAM.replace("WORK", "deaf").replace("SECONDS", "0.2")
    end = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)

    assert end.returncode == 1
