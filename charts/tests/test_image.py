"""The Dockerfile and the lock files: what the check of the image relies on, and what it cannot see."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import dockerfile
from dockerfile import Instruction

ROOT = Path(__file__).parents[2]
IMAGE = ROOT / "charts/image"
FOLDER = "/opt/gangline"
STEPS = ("dependencies", "package", "verify")


@pytest.fixture(scope="module")
def stages() -> list[list[Instruction]]:
    return dockerfile.read(IMAGE / "Dockerfile")


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def of(stage: list[Instruction], word: str) -> list[Instruction]:
    return [each for each in stage if each.word == word]


def pins(lock: str) -> dict[str, str]:
    """Names and versions in a lock file; each must have a hash."""
    text = (ROOT / "requirements" / lock).read_text()
    found = re.findall(r"^(\S+)==(\S+) \\\n    --hash=sha256:[0-9a-f]{64}", text, re.MULTILINE)
    assert len(found) == text.count("==")
    return dict(found)


def named(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=\[ ]", each)[0].lower() for each in requirements}


def test_the_dockerfile_runs_the_steps_of_the_script_and_nothing_else(stages: list[list[Instruction]]) -> None:
    lines = [each.rest for stage in stages for each in of(stage, "RUN")]

    assert lines == [f"sh charts/image/build.sh {step} {FOLDER}" for step in STEPS]
    assert re.findall(r"^([a-z]+)\)$", (IMAGE / "build.sh").read_text(), re.MULTILINE) == list(STEPS)


def test_the_image_is_verified_and_runs_as_user_1000(stages: list[list[Instruction]]) -> None:
    _, build, last = stages

    assert [each.word for each in build[-2:]] == ["USER", "RUN"] and build[-1].rest.split()[2] == "verify"
    assert [each.rest for stage in (build, last) for each in of(stage, "USER")] == ["1000:1000"] * 2
    assert [each.rest for each in of(last, "ENTRYPOINT")] == ['["gangline"]']


def test_the_image_is_nothing_but_what_was_built_on_the_same_base(stages: list[list[Instruction]]) -> None:
    _, build, last = stages

    assert [each.rest for stage in (build, last) for each in of(stage, "FROM")] == ["${BASE} AS build", "${BASE}"]
    assert [each.rest for each in of(last, "COPY")] == [f"--from=build {FOLDER} {FOLDER}"]


def test_labels_name_version_commit_and_licence(stages: list[list[Instruction]], project: dict[str, Any]) -> None:
    last = stages[-1]
    arguments = {"COMMIT": "abc1234", "VERSION": "1.2.3", "CREATED": "2026-01-01T00:00:00Z"}
    (label,) = of(last, "LABEL")

    labels = label.pairs(arguments)

    assert labels["org.opencontainers.image.revision"] == "abc1234"
    assert labels["org.opencontainers.image.version"] == "1.2.3"
    assert labels["org.opencontainers.image.created"] == "2026-01-01T00:00:00Z"
    assert labels["org.opencontainers.image.licenses"] == project["project"]["license"]
    assert f"VERSION={project['project']['version']}" in [each.rest for each in of(last, "ARG")]


def test_the_programs_know_their_commit_and_write_no_bytecode(stages: list[list[Instruction]]) -> None:
    (env,) = of(stages[-1], "ENV")

    environ = env.pairs({"COMMIT": "abc1234"})

    assert environ["GANGLINE_COMMIT"] == "abc1234" and environ["PYTHONDONTWRITEBYTECODE"] == "1"
    assert environ["PATH"].split(":")[0] == f"{FOLDER}/bin"


def test_what_is_copied_is_there_and_is_all_that_goes_to_the_builder(
    stages: list[list[Instruction]], project: dict[str, Any]
) -> None:
    copied = {source for each in of(stages[1], "COPY") for source in each.words[:-1]}
    ignore = (IMAGE / "Dockerfile.dockerignore").read_text()

    assert all((ROOT / source).exists() for source in copied)
    assert set(re.findall(r"^!(.*)$", ignore, re.MULTILINE)) == copied
    assert set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) < copied


def test_the_locks_of_the_image_agree_with_what_is_tested() -> None:
    tested = pins("dev.txt")

    assert pins("runtime.txt").items() <= tested.items()
    assert pins("build.txt").items() <= tested.items()


def test_every_requirement_is_locked(project: dict[str, Any]) -> None:
    wanted = project["project"]["dependencies"] + project["project"]["optional-dependencies"]["agent"]

    assert named(wanted) <= pins("runtime.txt").keys()
    assert named(project["build-system"]["requires"]) <= pins("build.txt").keys()
    assert project["dependency-groups"]["build"] == project["build-system"]["requires"]


def test_continuous_integration_builds_what_the_image_holds() -> None:
    assert re.search(r"^step image-check \d+$", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    assert "charts/image/image_check.py" in (ROOT / "Makefile").read_text()
