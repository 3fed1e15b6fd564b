"""Installs a plugin as its user would, away from everything else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from gangline_e2e.errors import HarnessError


def installed(project: Path, folder: Path) -> Path:
    """Have pip install a project into a folder, which PYTHONPATH has to name then; returns the folder."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), str(project)]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    if done.returncode:
        raise HarnessError(f"{project.name} cannot be installed: {done.stderr}")
    return folder
