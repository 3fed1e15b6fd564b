"""What `make image` says of the image: a valid SBOM, and a provenance with everything that went in."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

import locks
import make_image
from make_image import BASE, PROVENANCE, SBOM, make
from statements import parse_base

ROOT = Path(__file__).parents[2]
DIGEST = "ab" * 32
IMAGE = "cd" * 32
COMMIT = "ef" * 20
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def what_is_wrong(sbom: str) -> str:
    """Why it is no CycloneDX document; "" when it is one.

    The validator makes 39 parsers of addresses, in a second of CPU, and parses with one of them. It parses an address
    that comes again once.
    """
    import lark

    real = lark.Lark

    def in_time(*words: Any, **how: Any) -> SimpleNamespace:
        made = cache(partial(real, *words, **how))
        return SimpleNamespace(parse=cache(lambda *text, **more: made().parse(*text, **more)))

    with patch.object(lark, "Lark", in_time):  # each is made when it parses
        from cyclonedx.schema import SchemaVersion
        from cyclonedx.validation.json import JsonStrictValidator

    return str(JsonStrictValidator(SchemaVersion.V1_6).validate_str(sbom) or "")


class Commands:
    """git and Docker as `make image` calls them; what was called stands in ``called``."""

    def __init__(self, changes: str = "", digest: str = f"sha256:{DIGEST}") -> None:
        self.called: list[list[str]] = []
        self._changes = changes
        self._digest = digest

    def __call__(self, words: Sequence[str]) -> str:
        self.called.append(list(words))
        match words:
            case ["git", "status", *_]:
                return self._changes
            case ["git", "rev-parse", _]:
                return f"{COMMIT}\n"
            case ["docker", "buildx", "imagetools", "inspect", *_]:
                return f"{self._digest}\n"
            case ["docker", "build", *_]:
                Path(words[words.index("--iidfile") + 1]).write_text(f"sha256:{IMAGE}")
                return ""
        raise AssertionError(words)


def made(folder: Path, base: str = "") -> tuple[Commands, dict[str, Any], dict[str, Any]]:
    """The commands of a build, its SBOM and its provenance."""
    commands = Commands()
    make("gangline:1", base, folder, commands, lambda: NOW)
    sbom, provenance = (json.loads((folder / name).read_text()) for name in (SBOM, PROVENANCE))
    return commands, sbom, provenance


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The texts of the SBOM and of the provenance of a build."""
    folder = tmp_path_factory.mktemp("usual")
    made(folder)
    return (folder / SBOM).read_text(), (folder / PROVENANCE).read_text()


def test_the_sbom_is_valid_cyclonedx_and_names_every_package_of_the_image(usual: tuple[str, str]) -> None:
    sbom, plain = json.loads(usual[0]), json.loads(usual[0])
    packages = [each for each in plain["components"] if "purl" in each]
    for each in packages[5:]:  # the validator takes 15 ms for an address
        (reference,) = each["externalReferences"]
        assert re.fullmatch(r"https://pypi\.org/project/[A-Za-z0-9._-]+/[A-Za-z0-9._-]+/", reference["url"])
        reference["url"] = packages[0]["externalReferences"][0]["url"]

    assert what_is_wrong(json.dumps(plain)) == ""
    found = {each["purl"]: each for each in sbom["components"] if "purl" in each}
    pins = locks.read(ROOT / "requirements/runtime.txt")
    assert found.keys() == {pin.purl for pin in pins}
    for pin in pins:
        (reference,) = found[pin.purl]["externalReferences"]
        assert {each["content"] for each in reference["hashes"]} == set(pin.hashes)
    (base,) = [each for each in sbom["components"] if each["type"] == "container"]
    assert base["hashes"] == [{"alg": "SHA-256", "content": DIGEST}]
    assert (sbom["metadata"]["component"]["name"], sbom["metadata"]["timestamp"]) == ("gangline", NOW.isoformat())


def test_an_sbom_that_is_wrong_is_noticed(usual: tuple[str, str]) -> None:
    sbom = json.loads(usual[0])
    part = next(each for each in sbom["components"] if each.get("externalReferences"))
    small = {**sbom, "components": [part], "dependencies": []}
    assert what_is_wrong(json.dumps(small)) == ""

    odd, link = {**part, "kind": "package"}, {**part["externalReferences"][0], "url": "https://[::x"}
    assert what_is_wrong(json.dumps({**small, "components": [odd]}))
    assert what_is_wrong(json.dumps({**small, "components": [{**part, "externalReferences": [link]}]}))


def test_the_provenance_names_all_that_went_in_and_what_came_out(usual: tuple[str, str]) -> None:
    statement = json.loads(usual[1])

    assert (statement["_type"], statement["predicateType"]) == (
        "https://in-toto.io/Statement/v1",
        "https://slsa.dev/provenance/v1",
    )
    assert statement["subject"] == [{"name": "gangline:1", "digest": {"sha256": IMAGE}}]
    build = statement["predicate"]["buildDefinition"]
    materials = {each.get("uri"): each for each in build["resolvedDependencies"]}
    assert build["resolvedDependencies"][0] == {"name": "source", "digest": {"gitCommit": COMMIT}}
    assert materials[f"docker://{BASE}"]["digest"] == {"sha256": DIGEST}
    for lock in make_image.LOCKS:
        assert re.fullmatch(r"[0-9a-f]{64}", materials[f"file:{lock}"]["digest"]["sha256"])
        for pin in locks.read(ROOT / lock):
            assert materials[pin.purl]["annotations"] == {"sha256AnyOf": list(pin.hashes)}
    assert build["externalParameters"]["commit"] == COMMIT
    assert statement["predicate"]["runDetails"]["metadata"]["startedOn"] == NOW.isoformat()
    assert [each["name"] for each in statement["predicate"]["runDetails"]["byproducts"]] == [SBOM]


def test_the_same_build_says_the_same(tmp_path: Path, usual: tuple[str, str]) -> None:
    made(tmp_path)

    assert ((tmp_path / SBOM).read_text(), (tmp_path / PROVENANCE).read_text()) == usual


def test_the_image_is_built_on_the_digest_that_is_written_down(tmp_path: Path) -> None:
    given = f"registry.example.com/python:3.11@sha256:{'12' * 32}"

    asked, _, resolved = made(tmp_path)
    told, _, stated = made(tmp_path, given)

    for commands, statement, base in ((asked, resolved, f"{BASE}@sha256:{DIGEST}"), (told, stated, given)):
        (build,) = [each for each in commands.called if each[:2] == ["docker", "build"]]
        assert f"BASE={base}" in build and f"COMMIT={COMMIT}" in build
        assert statement["predicate"]["buildDefinition"]["externalParameters"]["base"] == base
    assert not [each for each in told.called if "imagetools" in each]


@pytest.mark.parametrize(
    "base", ["python:3.11", "python@sha256:abc", f"python@sha512:{DIGEST}", f"@sha256:{DIGEST}", f"a b@sha256:{DIGEST}"]
)
def test_a_base_without_a_digest_is_refused(tmp_path: Path, base: str) -> None:
    commands = Commands()

    with pytest.raises(ValueError, match="IMAGE@sha256:DIGEST"):
        make("gangline", base, tmp_path, commands, lambda: NOW)

    assert not [each for each in commands.called if each[0] == "docker"]


def test_a_registry_that_gives_no_digest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="IMAGE@sha256:DIGEST"):
        make("gangline", "", tmp_path, Commands(digest=""), lambda: NOW)


def test_a_tree_with_changes_is_not_built(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the tree has changes that no commit names"):
        make("gangline", "", tmp_path, Commands(changes=" M setup.py\n"), lambda: NOW)


def test_every_base_in_the_repository_has_a_digest_or_is_an_argument() -> None:
    lines = (ROOT / "charts/image/Dockerfile").read_text().splitlines()

    named = [line.split()[1] for line in lines if line.startswith("FROM ")]
    defaults = [line.partition("=")[2] for line in lines if line.startswith("ARG BASE=")]
    assert named and all(name == "${BASE}" or parse_base(name) for name in named)
    assert defaults == [] or all(parse_base(each) for each in defaults)


@pytest.mark.parametrize(
    "text", ["numpy>=2 --hash=sha256:" + DIGEST, "numpy==2.0", "numpy==2.0 --hash=md5:abc", "./wheel"]
)
def test_a_lock_that_does_not_pin_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "lock.txt").write_text(text)

    with pytest.raises(ValueError, match=r"lock\.txt: .* is not pinned to a version and to hashes"):
        locks.read(tmp_path / "lock.txt")


def test_uv_itself_is_locked_and_installed_by_its_hash() -> None:
    (uv,) = locks.read(ROOT / "requirements/uv.txt")

    makefile = (ROOT / "Makefile").read_text()
    assert uv.name == "uv"
    assert re.search(r"pip install .*--require-hashes .*-r requirements/uv\.txt", makefile)
    assert "uv==" not in makefile


def unpinned(workflow: str) -> list[str]:
    """The Actions in a workflow that are neither of this repository nor named by a commit."""
    used = re.findall(r"\buses:\s*[\"']?([^\s\"'#]+)", workflow)
    return [
        each for each in used if not re.fullmatch(r"\./.+|[^@]+@[0-9a-f]{40}|docker://[^@]+@sha256:[0-9a-f]{64}", each)
    ]


def test_actions_are_pinned_by_their_commit() -> None:
    """There are no workflows now; those that come are held to it."""
    folder = ROOT / ".github"
    workflows = [*folder.glob("workflows/*.y*ml"), *folder.glob("actions/**/action.y*ml")]
    steps = [f"- uses: actions/checkout@{COMMIT} # v4", "- uses: ./local", "- uses: actions/checkout@v4", "uses: 'a/b'"]

    assert unpinned("\n".join(steps)) == ["actions/checkout@v4", "a/b"]
    assert [each for file in workflows for each in unpinned(file.read_text())] == []
