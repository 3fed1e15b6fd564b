"""Ctrl-C ends a command at any moment with exit code 130, without a traceback, and is no fault of a plugin."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest

from gangline.process.interrupting import INTERRUPTED

from ..installing import install

PRESSED = """
import os, signal, sys
from gangline import start

when = sys.argv.pop()

class Presses:
    def find_spec(self, name, path=None, target=None):
        if name == when:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Presses())
start.main()
"""
"""Runs the command of the arguments; Ctrl-C is pressed when it imports the module that the last argument names."""
LOOP = """
import asyncio, os, signal, threading
from gangline.process import interrupting

async def work():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(10)
    finally:
        print("closed", flush=True)

interrupting.end_at_once()
thread = threading.Thread(target=lambda: interrupting.run(asyncio.sleep(0)))  # where no signal can be handled
thread.start()
thread.join()
try:
    interrupting.run(work())
except KeyboardInterrupt:
    print("interrupted", flush=True)
os.kill(os.getpid(), signal.SIGINT)
print("not reached")
"""


def run(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    "module",
    [
        pytest.param("click", id="at the start"),
        pytest.param("gangline.commands.simulate", id="while the command is loaded"),
        pytest.param("gangline_plugins.node_name", id="while a plugin is loaded"),
    ],
)
def test_ctrl_c_ends_a_command_with_130_and_no_word(module: str, tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text("{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: []}}")

    ended = run(PRESSED, "simulate", str(tmp_path), "--profile", "default", module)

    assert (ended.returncode, ended.stdout, ended.stderr) == (INTERRUPTED, "", "\n")


def test_ctrl_c_closes_what_an_event_loop_has_opened() -> None:
    ended = run(LOOP)

    assert (ended.returncode, ended.stdout.split(), ended.stderr) == (INTERRUPTED, ["closed", "interrupted"], "\n")


def test_every_program_takes_care_of_ctrl_c_before_it_imports_anything_else() -> None:
    programs = [each for each in distribution("gangline").entry_points if each.group == "console_scripts"]

    assert {each.module for each in programs} == {"gangline.start"} and all(callable(each.load()) for each in programs)


def test_a_command_of_another_distribution_gets_a_keyboard_interrupt(tmp_path: Path) -> None:
    text = """
import os, signal, click

@click.command()
def command():
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        print("mine")
"""
    install(tmp_path, "others", {"odd": "others:command"}, {"others": text}, "gangline.commands")

    ended = run(f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from gangline.start import main; main()", "odd")

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "mine\n", "")
