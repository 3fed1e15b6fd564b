"""Find the control plane's programs and helm, and build them from source by the go.mod files beside this package.

The programs and their versions are named only in controlplane/go.mod and helm/go.mod (in the `tool` and
`require` blocks; helm needs other versions of the same libraries). etcd is built too: kube-apiserver serves
streaming lists, which kwok and kube-scheduler use, only on an etcd newer than those that PyPI and most
distributions have.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gangline_e2e.errors import HarnessError, NoControlPlane

GoMod = Mapping[str, Any]
"""A go.mod, as `go mod edit -json` prints it."""

SOURCES = Path(__file__).resolve().parents[1]
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
HELM = "helm"
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


def find_helm(env: Mapping[str, str] = os.environ) -> Path:
    """The path of helm; NoControlPlane if it was not built."""
    helm = cache_folder(env) / HELM
    if not os.access(helm, os.X_OK):
        raise NoControlPlane(f"no {HELM} in {helm.parent}: {HOW_TO_GET}")
    return helm


def version_flags(go_mod: GoMod) -> str:
    """The linker flags that write the version of k8s.io/kubernetes into the programs."""
    version = _required(go_mod, "k8s.io/kubernetes")
    major, minor, _ = version.removeprefix("v").split(".", 2)
    values = {
        "k8s.io/component-base/version.gitVersion": version,
        "k8s.io/component-base/version.gitMajor": major,
        "k8s.io/component-base/version.gitMinor": minor,
        "k8s.io/client-go/pkg/version.gitVersion": version,
    }
    return _flags(values)


def helm_flags(go_mod: GoMod) -> str:
    """The linker flags that tell helm its own version, and the Kubernetes that it renders for without a cluster."""
    minor = _required(go_mod, "k8s.io/client-go").split(".")[1]
    values = {"internal/version.version": _required(go_mod, "helm.sh/helm/v3")}
    for package in ("pkg/lint/rules", "pkg/chartutil"):
        values |= {f"{package}.k8sVersionMajor": "1", f"{package}.k8sVersionMinor": minor}
    return _flags({f"helm.sh/helm/v3/{name}": value for name, value in values.items()})


@dataclass(frozen=True, slots=True)
class Module:
    """A go.mod whose tools are built; the file ``stamp`` has a hash of what they were built from."""

    folder: Path
    programs: tuple[str, ...]
    stamp: str
    flags: Callable[[GoMod], str]

    def build(self, go: str, folder: Path) -> bool:
        """Build the programs into ``folder``; False if they were up to date already."""
        described = subprocess.run([go, "mod", "edit", "-json"], cwd=self.folder, check=True, stdout=subprocess.PIPE)
        go_mod = json.loads(described.stdout)
        flags = ["-trimpath", "-ldflags", self.flags(go_mod)]
        digest = _digest(self.folder, flags)
        stamp = folder / self.stamp
        complete = all((folder / program).is_file() for program in self.programs)
        if complete and stamp.is_file() and stamp.read_text() == digest:
            return False
        folder.mkdir(parents=True, exist_ok=True)
        stamp.unlink(missing_ok=True)
        for package in (tool["Path"] for tool in go_mod["Tool"]):
            command = [go, "build", *flags, "-o", str(folder / program_name(package)), package]
            if (code := subprocess.run(command, cwd=self.folder, check=False).returncode) != 0:
                raise HarnessError(f"{self.folder}: go build {package} failed with exit status {code}")
        stamp.write_text(digest)
        return True


MODULES = (
    Module(SOURCES / "controlplane", PROGRAMS, "built-from.sha256", version_flags),
    Module(SOURCES / "helm", (HELM,), "helm-built-from.sha256", helm_flags),
)


def build(folder: Path) -> bool:
    """Build the programs into ``folder``; False if they were up to date already."""
    go = shutil.which("go")
    if go is None:
        raise HarnessError("go is not on PATH: install Go (https://go.dev/dl) to build the control plane")
    return any([module.build(go, folder) for module in MODULES])


def program_name(package: str) -> str:
    """The program that a Go main package makes."""
    return NAMES.get(package, package.rpartition("/")[2])


def _required(go_mod: GoMod, module: str) -> str:
    versions: dict[str, str] = {each["Path"]: each["Version"] for each in go_mod["Require"]}
    return versions[module]


def _flags(values: Mapping[str, str]) -> str:
    return " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in values.items())])


def _digest(module: Path, flags: list[str]) -> str:
    """What the programs of a module depend on, as one hash: both module files and the flags."""
    texts = [(module / name).read_bytes() for name in ("go.mod", "go.sum")]
    parts = [hashlib.sha256(text).digest() for text in [*texts, "\0".join(flags).encode()]]
    return hashlib.sha256(b"".join(parts)).hexdigest()
