"""Builds what the image holds, without Docker: does what the Dockerfile says in a scratch folder, and runs the result.

COPY, RUN and USER of the build stage are carried out one after the other, with a scratch folder for /opt/gangline; then
the three programs run with the environment of the last stage, as user 1000 if this process may change its user, in a
home that nobody may write to. It needs the network for the wheels.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path

import dockerfile
import users

ROOT = Path(__file__).parents[2]
IMAGE = "/opt/gangline"
"""Where the image has its virtual environment."""
COMMIT = "abc1234"
PROGRAMS = ("gangline", "gangline-agent", "gangline-webhook")

Say = Callable[[str], None]


def check(scratch: Path, say: Say) -> None:
    """Build and run. CalledProcessError for a step that fails, ValueError for a program that says the wrong thing."""
    _, build, last = dockerfile.read(ROOT / "charts/image/Dockerfile")
    home = scratch / "home"
    home.mkdir(mode=0o555)
    user = users.find(os.environ["PATH"])
    run = _Runner(scratch, user, {"HOME": str(home), "PATH": user.path}, say)
    for instruction in build:
        run.instruction(instruction)
    arguments = {"COMMIT": COMMIT, "VERSION": "", "CREATED": ""}
    environ = {"HOME": str(home)}
    for instruction in last:
        if instruction.word == "ENV":
            environ |= instruction.pairs(arguments)
    inside = {name: value.replace(IMAGE, str(run.installed)) for name, value in environ.items()}
    for program in PROGRAMS:
        expected = f"{program} {metadata.version('gangline')} ({COMMIT})"
        if (said := user.run([program, "--version"], inside, home).strip()) != expected:
            raise ValueError(f"{program} --version says {said!r}, not {expected!r}")
        if not (said := user.run([program, "--help"], inside, home)).startswith(f"Usage: {program}"):
            raise ValueError(f"{program} --help says {said!r}")
    simulated = user.run(["gangline", "simulate", str(run.copied("examples/quickstart"))], inside, home)
    if "PENDING" not in simulated:
        raise ValueError(f"gangline simulate says {simulated!r}")
    say(f"{', '.join(PROGRAMS)}: fine ({_megabytes(run.installed):.0f} MB beside the base image)")


class _Runner:
    """Carries out the instructions of the build stage in ``scratch``: copied files go to src, installed ones to opt."""

    def __init__(self, scratch: Path, user: users.User, environ: Mapping[str, str], say: Say) -> None:
        self.installed = scratch / "opt"
        self._source = scratch / "src"
        self._source.mkdir()
        self._environ = environ
        self._user = user
        self._as_user = False
        self._say = say

    def instruction(self, instruction: dockerfile.Instruction) -> None:
        """Carry out one instruction; instructions without an effect outside of Docker are skipped."""
        if instruction.word == "COPY":
            *sources, target = instruction.words
            for source in sources:
                _copy(ROOT / source, self._source / target, into=target.endswith("/"))
        elif instruction.word == "USER":
            self._as_user = True
        elif instruction.word == "RUN":
            self._say(f"RUN {instruction.rest}")
            command = [word.replace(IMAGE, str(self.installed)) for word in instruction.words]
            if self._as_user:
                self._say(self._user.run(command, self._environ, self._source).rstrip())
            else:
                subprocess.run(command, cwd=self._source, env=self._environ, check=True)

    def copied(self, path: str) -> Path:
        """A folder of the repository where every user may read it."""
        shutil.copytree(ROOT / path, self._source / path, dirs_exist_ok=True)
        return self._source / path


def _copy(source: Path, target: Path, into: bool) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        return
    folder = target if into else target.parent
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, folder / source.name if into else target)


def _megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink()) / 1e6


def main() -> None:
    """Exit 0 if all is well, 1 with one line if not."""
    with tempfile.TemporaryDirectory(prefix="gangline-image-") as folder:
        Path(folder).chmod(0o755)
        try:
            check(Path(folder), lambda line: print(line, flush=True))
        except (subprocess.CalledProcessError, ValueError) as error:
            sys.exit(f"image-check: {error}")


if __name__ == "__main__":
    main()
