"""Builds the container image with Docker, and writes its SBOM and its provenance beside it, in dist/.

The base image is named by its digest: the digest that is given, or the one that the registry has for BASE at this
moment. The tree has to be committed: otherwise the image would not be made of the commit in the statement. The
statement is not signed here: `cosign attest --predicate` does that, with a key that this program must not have.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import locks
from statements import Base, Build, bill_of_materials, parse_base, provenance

ROOT = Path(__file__).parents[2]
BASE = "docker.io/library/python:3.11-slim-bookworm"
"""The base image whose digest is looked up if none is given."""
LOCKS = ("requirements/runtime.txt", "requirements/build.txt")
"""The lock files of the packages in the image, and of the packages that build its wheel."""
SBOM, PROVENANCE = "sbom.cdx.json", "provenance.json"

Run = Callable[[Sequence[str]], str]
"""Runs a command in the root of the repository and returns what it prints; CalledProcessError if it fails."""


def make(tag: str, base: str, folder: Path, run: Run, clock: Callable[[], datetime]) -> Build:
    """Build, and write the two files into ``folder``. ValueError for a tree with changes or a base without a digest."""
    if changes := run(["git", "status", "--porcelain"]).strip():
        raise ValueError(f"the tree has changes that no commit names:\n{changes}")
    commit = run(["git", "rev-parse", "HEAD"]).strip()
    found = parse_base(base) if base else resolve(run)
    version: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    folder.mkdir(exist_ok=True)
    written = folder / "image.id"
    started = clock()
    arguments = {"BASE": str(found), "VERSION": version, "COMMIT": commit, "CREATED": started.isoformat()}
    words = [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
    run(["docker", "build", "-f", "charts/image/Dockerfile", *words, "--iidfile", str(written), "-t", tag, "."])
    image = written.read_text().strip().removeprefix("sha256:")
    pins = {name: (_digest((ROOT / name).read_bytes()), locks.read(ROOT / name)) for name in LOCKS}
    build = Build(tag, version, commit, found, image, started, clock(), pins)
    write(build, folder)
    return build


def resolve(run: Run) -> Base:
    """The digest that the registry has for the base image now."""
    template = "{{.Manifest.Digest}}"
    digest = run(["docker", "buildx", "imagetools", "inspect", BASE, "--format", template]).strip()
    return parse_base(f"{BASE}@{digest}")


def write(build: Build, folder: Path) -> None:
    """Write the SBOM and the provenance of a build."""
    sbom = bill_of_materials(build.version, build.base, build.locks[LOCKS[0]][1], build.started)
    (folder / SBOM).write_text(sbom)
    statement = provenance(build, SBOM, _digest(sbom.encode()))
    (folder / PROVENANCE).write_text(json.dumps(statement, indent=2) + "\n")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _run(words: Sequence[str]) -> str:
    return subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> None:
    """Exit 0 if the image and both files are there, 1 with one line if not."""
    parser = argparse.ArgumentParser(description="Build the image, its SBOM and its provenance.")
    parser.add_argument("--tag", default="gangline")
    parser.add_argument(
        "--base",
        default="",
        help="the base image, as IMAGE@sha256:DIGEST; by default the one that the registry has now",
    )
    words = parser.parse_args()
    try:
        build = make(words.tag, words.base, ROOT / "dist", _run, lambda: datetime.now(UTC))
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        sys.exit(f"make image: {error}")
    print(f"{build.tag}: sha256:{build.image}, on {build.base}; dist/{SBOM}, dist/{PROVENANCE}")


if __name__ == "__main__":
    main()
