"""Find the control plane's programs, and build them from source by e2e/controlplane/go.mod.

What is built, and in which version, stands in that file alone (its `tool` and `require` blocks). etcd
is built too: kube-apiserver serves streaming lists, which kwok and kube-scheduler use, only on an etcd
newer than those that PyPI and most distributions have.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gangline_e2e.errors import HarnessError, NoControlPlane

MODULE = Path(__file__).resolve().parents[1] / "controlplane"
STAMP = "built-from.sha256"
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
# A main package whose path does not end in the program's name.
NAMES = {"go.etcd.io/etcd/server/v3": "etcd"}
HOW_TO_GET = "run `make control-plane`"


@dataclass(frozen=True, slots=True)
class Binaries:
    """The folder that holds the programs."""

    folder: Path

    def path(self, program: str) -> Path:
        """The path of a program by its name, such as `kube-scheduler`."""
        return self.folder / program


def cache_folder(env: Mapping[str, str] = os.environ) -> Path:
    """Where the built programs are kept: $GANGLINE_CONTROL_PLANE_DIR, or in the user's cache."""
    if chosen := env.get("GANGLINE_CONTROL_PLANE_DIR"):
        return Path(chosen)
    cache = env.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "gangline" / "control-plane"


def find(env: Mapping[str, str] = os.environ) -> Binaries:
    """The programs that are here; NoControlPlane names the first that is missing."""
    folder = cache_folder(env)
    for program in PROGRAMS:
        if not os.access(folder / program, os.X_OK):
            raise NoControlPlane(f"no {program} in {folder}: {HOW_TO_GET}")
    return Binaries(folder)


def version_flags(go_mod: Mapping[str, Any]) -> str:
    """The linker flags that write the version of k8s.io/kubernetes into the programs.

    ``go_mod`` is what `go mod edit -json` prints.
    """
    versions = {module["Path"]: module["Version"] for module in go_mod["Require"]}
    version = versions["k8s.io/kubernetes"]
    major, minor, _ = version.removeprefix("v").split(".", 2)
    values = {
        "k8s.io/component-base/version.gitVersion": version,
        "k8s.io/component-base/version.gitMajor": major,
        "k8s.io/component-base/version.gitMinor": minor,
        "k8s.io/client-go/pkg/version.gitVersion": version,
    }
    return " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in values.items())])


def build(folder: Path) -> bool:
    """Build the programs into ``folder``; False if they were up to date already."""
    go = shutil.which("go")
    if go is None:
        raise HarnessError("go is not on PATH: install Go (https://go.dev/dl) to build the control plane")
    described = subprocess.run([go, "mod", "edit", "-json"], cwd=MODULE, check=True, stdout=subprocess.PIPE)
    go_mod = json.loads(described.stdout)
    flags = ["-trimpath", "-ldflags", version_flags(go_mod)]
    stamp = _stamp(flags)
    if _is_up_to_date(folder, stamp):
        return False
    folder.mkdir(parents=True, exist_ok=True)
    (folder / STAMP).unlink(missing_ok=True)
    for package in (tool["Path"] for tool in go_mod["Tool"]):
        command = [go, "build", *flags, "-o", str(folder / program_name(package)), package]
        if (code := subprocess.run(command, cwd=MODULE, check=False).returncode) != 0:
            raise HarnessError(f"{MODULE}: go build {package} failed with exit status {code}")
    (folder / STAMP).write_text(stamp)
    return True


def program_name(package: str) -> str:
    """The program that a Go main package makes."""
    return NAMES.get(package, package.rpartition("/")[2])


def _stamp(flags: list[str]) -> str:
    """What the programs depend on, as one hash: both module files and the flags."""
    texts = [(MODULE / name).read_bytes() for name in ("go.mod", "go.sum")]
    parts = [hashlib.sha256(text).digest() for text in [*texts, "\0".join(flags).encode()]]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def _is_up_to_date(folder: Path, stamp: str) -> bool:
    written = folder / STAMP
    complete = all((folder / program).is_file() for program in PROGRAMS)
    return complete and written.is_file() and written.read_text() == stamp
