"""The pages that are written by hand: they are all in the site, and what they show works."""

from __future__ import annotations

import itertools
import re
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from framework.tests.invoking import invoked

from gangline import config
from gangline.commands.profiles import installed
from gangline.groups import keys
from gangline.kube.resources import PODS
from gangline.model import Pod
from gangline.profile.assembly import judging_runtimes
from gangline.simulate import InMemoryServer, VirtualClock, run
from gangline.testing import cluster, make_node
from gangline.wire.custom_resources import SCHEDULING_MAP, GpuClaim
from gangline.wire.scheduling_map import parse
from gangline_docs import names
from gangline_docs.glances import NODES, PROFILE
from gangline_docs.pictures import FOLDER, PICTURES
from gangline_docs.simulated import settle
from gangline_docs.site import PAGES, PARTS, filled
from gangline_docs.topology_picture import LEAF, SPINE
from gangline_plugins.gpu.wants import Carried, Want, claim_want

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
WRITTEN = {path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))}
FRONT = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "CONTRIBUTING.md")}
TUTORIAL = "writing-a-plugin.md"
"""Has a test of its own."""


class Loader(yaml.SafeLoader):
    """Reads mkdocs.yml, whose tags name objects of Python."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: None)


def in_navigation(part: Any) -> list[str]:
    if isinstance(part, str):
        return [part]
    return [path for each in (part.values() if isinstance(part, dict) else part) for path in in_navigation(each)]


def documents() -> list[dict[str, Any]]:
    """Every YAML document on a page, the tutorial left out."""
    pages = (text for name, text in WRITTEN.items() if name != TUTORIAL)
    blocks = (block for text in pages for block in re.findall(r"^```yaml\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    return [document for block in blocks for document in yaml.load_all(block, yaml.CSafeLoader)]


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [document for document in documents() if document.get("kind") == kind]


def placed(job: dict[str, Any]) -> list[Pod]:
    """The pods of a Job after a while on the nodes of the example, with racks and blocks for leaves and spines."""
    clock = VirtualClock()
    server = InMemoryServer(clock)
    for node in yaml.load_all(NODES.read_text(encoding="utf-8"), yaml.CSafeLoader):
        labels = node["metadata"]["labels"]
        labels["topology.kubernetes.io/rack"] = labels[LEAF]
        labels["topology.kubernetes.io/block"] = labels[SPINE]
        server.apply_manifest(node)
    server.apply_manifest(job)

    async def story() -> list[Pod]:
        profile = config.load(installed()[PROFILE], PROFILE)
        return (await (await settle(server, clock, profile, seconds=300)).list(PODS)).items

    return run(story(), clock)


def test_the_navigation_names_every_page() -> None:
    site = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)

    assert sorted(in_navigation(site["nav"])) == sorted([*WRITTEN, *PAGES])


def test_every_part_that_a_page_asks_for_is_written() -> None:
    asked = {name for text in WRITTEN.values() for name in re.findall(r"\{\{ (\w+) \}\}", text)}

    assert asked == set(PARTS)


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_as_it_is_drawn(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == PICTURES[name]()


def test_every_picture_is_shown() -> None:
    shown = {
        Path(path).name
        for text in (*WRITTEN.values(), *FRONT.values())
        for path in re.findall(r"!\[.*?\]\((.*?)\)", text)
    }

    assert shown == {path.name for path in FOLDER.iterdir() if path.is_file()}


@pytest.mark.parametrize("name", FRONT)
def test_links_of_the_front_pages_lead_to_files(name: str) -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)", FRONT[name])

    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.parametrize("document", of_kind("KubeSchedulerConfiguration"), ids=itertools.count(1))
def test_every_configuration_builds(document: dict[str, Any]) -> None:
    loaded = config.load(yaml.safe_dump(document), "docs")
    assert judging_runtimes(loaded, cluster([make_node("a")]))


def test_every_claim_makes_sense() -> None:
    claims = [msgspec.convert(document, GpuClaim) for document in of_kind("GpuClaim")]

    assert claims
    assert all(isinstance(claim_want(claim), Want | Carried) for claim in claims)


def test_every_scheduling_map_can_be_read() -> None:
    maps = [
        parse(document["metadata"]["annotations"][SCHEDULING_MAP])
        for document in documents()
        if SCHEDULING_MAP in document.get("metadata", {}).get("annotations", {})
    ]

    assert maps
    assert all(each.entries and not each.faults for each in maps)


def test_the_page_of_migration_names_exactly_what_is_read_of_gangs() -> None:
    section = WRITTEN["migration.md"].partition("\n## Gangs\n")[2].partition("\n## ")[0]
    named = {word for word in re.findall(r"`([a-z0-9./-]+)`", section) if "/" in word or word == keys.KAI_GROUP}

    assert named == {value for name, value in vars(keys).items() if name.isupper() and isinstance(value, str)}


def test_every_annotation_on_a_page_is_one_that_is_read() -> None:
    known = {each.value for each in names.names()} | {value for value in vars(keys).values() if isinstance(value, str)}
    metadata = (document.get("metadata", {}) for document in documents())
    used = {name for each in metadata for name in each.get("annotations", {})}

    assert used
    assert used - known == set()


@pytest.mark.parametrize("job", of_kind("Job"), ids=lambda job: job["metadata"]["name"])
def test_every_job_on_a_page_finds_its_place(job: dict[str, Any]) -> None:
    pods = placed(job)

    assert len(pods) == job["spec"].get("completions", 1)
    assert [pod.metadata.name for pod in pods if not pod.spec.node_name] == []


def test_the_page_of_rights_names_everything_that_the_chart_asks_for() -> None:
    page = filled(WRITTEN["operating/rights.md"])
    templates = (ROOT / "charts" / "gpu-scheduler" / "templates").glob("*-rbac.yaml")
    lists = re.findall(r"resources: \[([^\]{]+)\]", "".join(file.read_text(encoding="utf-8") for file in templates))
    asked = {name.strip() for each in lists for name in each.split(",")}

    assert len(asked) > 15
    assert [name for name in sorted(asked) if f"`{name}`" not in page] == []


def test_make_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[0].split()

    text = subprocess.run(["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True).stdout

    assert {line.split()[0]: len(line.split()) > 1 for line in text.splitlines()} == dict.fromkeys(phony, True)
    assert [name for name in phony if f"make {name}" not in FRONT["CONTRIBUTING.md"]] == []


def test_the_map_of_the_folders_names_them_all() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    folders = {f"`{path.split('/')[0]}/`" for path in tracked if "/" in path and not path.startswith(".")}
    listed = re.findall(r"`[a-z0-9]+/`", FRONT["README.md"].partition("\n## The folders\n")[2].partition("\n## ")[0])

    assert folders <= set(listed)


def test_the_front_page_shows_what_make_run_prints() -> None:
    shown = re.findall(r"^    (\S+) +([█░]+ \d+/\d+) +(\d+/\d+) ", FRONT["README.md"], re.MULTILINE)

    printed = invoked("simulate", ROOT / "examples/quickstart")

    assert len(shown) == 5
    assert re.findall(r"^(\S+) +([█░]+ \d+/\d+) +(\d+/\d+) ", printed, re.MULTILINE) == shown
