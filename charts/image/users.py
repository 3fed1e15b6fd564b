"""Runs commands as the user of the image, if this process may change its user."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

USER = 1000
_FITS = "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))"


@dataclass(frozen=True, slots=True)
class User:
    """The user who runs commands: 1000 if this process is root, else its own. ``path`` has a Python for this user."""

    prefix: tuple[str, ...]
    path: str

    def run(self, command: Sequence[str], environ: Mapping[str, str], folder: Path) -> str:
        """Run a command, looked up on the PATH of its environment; returns its output. Raises CalledProcessError."""
        program = shutil.which(command[0], path=environ["PATH"]) or command[0]
        words = [*self.prefix, program, *command[1:]]
        return subprocess.run(words, cwd=folder, env=environ, check=True, stdout=subprocess.PIPE, text=True).stdout


def find(path: str) -> User:
    """The user for a PATH; its Python goes first. ValueError if there is no Python that fits."""
    drop = shutil.which("setpriv") if os.getuid() == 0 else None
    prefixes: list[tuple[str, ...]] = [()]
    if drop:  # other users cannot run a Python in root's home: then commands run as root
        prefixes.insert(0, (drop, f"--reuid={USER}", f"--regid={USER}", "--clear-groups"))
    for prefix in prefixes:
        for folder in path.split(os.pathsep):
            command = [*prefix, f"{folder}/python3", "-c", _FITS]
            if shutil.which("python3", path=folder) and not subprocess.run(command, capture_output=True).returncode:
                return User(prefix, f"{folder}{os.pathsep}{path}")
    raise ValueError("no python3 of version 3.11 or newer with venv is on the PATH")
