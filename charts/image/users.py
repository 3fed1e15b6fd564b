"""Runs commands as the image's user, where the one who asks may become another."""

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
    """Who runs a command: user 1000 for root, else whoever asks. ``path`` finds a Python that this user may execute."""

    prefix: tuple[str, ...]
    path: str

    def run(self, command: Sequence[str], environ: Mapping[str, str], folder: Path) -> str:
        """What a command prints that was found on the PATH of its environment. Raises CalledProcessError."""
        program = shutil.which(command[0], path=environ["PATH"]) or command[0]
        words = [*self.prefix, program, *command[1:]]
        return subprocess.run(words, cwd=folder, env=environ, check=True, stdout=subprocess.PIPE, text=True).stdout


def find(path: str) -> User:
    """The user for a PATH; its Python goes first. ValueError if there is no Python that fits."""
    drop = shutil.which("setpriv") if os.getuid() == 0 else None
    prefixes: list[tuple[str, ...]] = [()]
    if drop:  # a Python in the home of root is none for others: then all is done as root
        prefixes.insert(0, (drop, f"--reuid={USER}", f"--regid={USER}", "--clear-groups"))
    for prefix in prefixes:
        for folder in path.split(os.pathsep):
            command = [*prefix, f"{folder}/python3", "-c", _FITS]
            if shutil.which("python3", path=folder) and not subprocess.run(command, capture_output=True).returncode:
                return User(prefix, f"{folder}{os.pathsep}{path}")
    raise ValueError("no python3 of version 3.11 or newer with venv is on the PATH")
