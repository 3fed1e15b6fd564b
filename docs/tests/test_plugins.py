"""What the READMEs say of plugins is so: sections, arguments, extension points, and every example runs."""

from __future__ import annotations

import itertools
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
import yaml
from msgspec import inspect

from gangline import config, model
from gangline.api.hookspecs import POINTS
from gangline.profile.assembly import judging_runtimes
from gangline.profile.registry import GROUP, Catalog, points_of
from gangline.profile.runtime import Runtime
from gangline.testing import cluster, make_node, make_pod, make_runtime, run_filter
from gangline.wire.custom_resources import (
    CLAIM,
    SCHEDULING_MAP,
    ClaimNetwork,
    ClaimSelector,
    ClaimStorage,
    GpuClaim,
    GpuClaimSpec,
)
from gangline.wire.scheduling_map import parse
from gangline_plugins.gpu.wants import Want, claim_want

ROOT = Path(__file__).parents[2]
FRONT = (ROOT / "README.md").read_text(encoding="utf-8")
HERE = (ROOT / "plugins" / "README.md").read_text(encoding="utf-8")
REGISTERED = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"][GROUP]
CATALOG = Catalog({}, {name: [EntryPoint(name, place, GROUP)] for name, place in REGISTERED.items()})
"""The plugins of this repository, whatever else is installed."""
OURS = CATALOG.names
CONFIGURED = [name for name in OURS if hasattr(CATALOG.load(name), "args_type")]
MATURITIES = {"stable", "beta", "alpha"}


def section_of(name: str) -> str:
    """What stands under a plugin's heading; "" where there is none."""
    found = re.search(rf"^### {name}\n(.*?)(?=^##|\Z)", HERE, re.DOTALL | re.MULTILINE)
    return found[1] if found else ""


def headings() -> list[str]:
    return re.findall(r"^### (\w+)$", HERE.partition("\n## Those that come with Gangline\n")[2], re.MULTILINE)


def item(section: str, name: str) -> str:
    """The text of a list item such as `- Maturity: stable`."""
    found = re.search(rf"^- {name}: (.*)$", section, re.MULTILINE)
    return found[1] if found else ""


def rows(section: str, first: str) -> list[tuple[str, str]]:
    """Path and default of each row in the tables whose first column has this title."""
    found, inside = [], False
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            inside = False
        elif cells[0] == first:
            inside = True
        elif inside and set(line) - set("|-"):
            found.append((cells[0].strip("`"), cells[2]))
    return found


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def documents() -> Iterator[dict[str, Any]]:
    """Every YAML document of both READMEs."""
    for block in (*blocks(FRONT, "yaml"), *blocks(HERE, "yaml")):
        yield from yaml.load_all(block, yaml.CSafeLoader)


def configurations() -> list[str]:
    """Every configuration; what is part of a profile is put into one."""
    found = []
    head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    for document in documents():
        if {"plugins", "pluginConfig"} & set(document):
            found.append(yaml.safe_dump({**head, "profiles": [{"schedulerName": "batch", **document}]}))
        elif document["kind"] == "KubeSchedulerConfiguration":
            found.append(yaml.safe_dump(document))
    return found


def objects(kind: str) -> list[dict[str, Any]]:
    return [document for document in documents() if document.get("kind") == kind]


def annotations_of_pods() -> list[dict[str, str]]:
    return [msgspec.convert(each, model.Pod).metadata.annotations or {} for each in objects("Pod")]


def paths(type_: inspect.Type, prefix: str = "") -> Iterator[str]:
    """Every path through a type, as YAML names it: `a.b[].c`."""
    if isinstance(type_, inspect.UnionType):
        for each in type_.types:
            yield from paths(each, prefix)
    elif isinstance(type_, inspect.ListType):
        yield from paths(type_.item_type, f"{prefix}[]")
    elif isinstance(type_, inspect.StructType):
        for field in type_.fields:
            path = f"{prefix}.{field.encode_name}" if prefix else field.encode_name
            yield path
            yield from paths(field.type, path)


def default_at(defaults: Any, path: str) -> str:
    """The default of a field as tables show it."""
    for name in path.split("."):
        names = dict(zip(defaults.__struct_encode_fields__, defaults.__struct_fields__, strict=True))
        defaults = getattr(defaults, names[name])
    if defaults is None or defaults == "":
        return "none"
    if isinstance(defaults, float):
        return f"{defaults:g}"
    return defaults if isinstance(defaults, str) else msgspec.json.encode(defaults).decode()


def said_otherwise(table: list[tuple[str, str]], defaults: msgspec.Struct) -> dict[str, str]:
    """The defaults of those fields of which the table says something else; within lists there is none."""
    actual = {path: default_at(defaults, path) for path, _ in table if "[]" not in path}
    return {path: actual[path] for path, said in table if path in actual and said.strip("`") != actual[path]}


@pytest.fixture
def prefer_rack(monkeypatch: pytest.MonkeyPatch) -> type[Any]:
    """The plugin of the front page, importable from `my_package`."""
    module = run(blocks(FRONT, "python")[0], "my_package")
    monkeypatch.setitem(sys.modules, "my_package", module)
    plugin: type[Any] = module.PreferRack
    return plugin


def run(code: str, name: str) -> ModuleType:
    module = ModuleType(name)
    exec(compile(code, f"{name} in a README", "exec"), module.__dict__)
    return module


def build(text: str, *plugins: type[Any]) -> dict[str, Runtime]:
    return judging_runtimes(
        config.load(text, "README.md"), cluster([make_node("a")]), catalog=CATALOG.with_classes(*plugins)
    )


def test_each_plugin_has_a_section_and_each_section_a_plugin() -> None:
    assert sorted(headings()) == OURS


@pytest.mark.parametrize("name", OURS)
def test_a_section_names_the_extension_points(name: str) -> None:
    points = points_of(CATALOG.load(name))

    assert item(section_of(name), "Points") == ", ".join(f"`{point}`" for point in POINTS if point in points)


@pytest.mark.parametrize("name", OURS)
def test_a_section_says_what_a_plugin_costs_and_how_mature_it_is(name: str) -> None:
    assert item(section_of(name), "Cost")
    assert item(section_of(name), "Maturity") in MATURITIES


@pytest.mark.parametrize("name", OURS)
def test_a_section_has_all_arguments_and_no_other(name: str) -> None:
    type_ = getattr(CATALOG.load(name), "args_type", None)
    known = set(paths(inspect.type_info(type_))) if type_ else set()
    table = [path for path, _ in rows(section_of(name), "argument")]

    assert set(table) <= known
    assert {re.split(r"\W", path)[0] for path in table} == {path for path in known if path.isalnum()}


@pytest.mark.parametrize("name", CONFIGURED)
def test_the_defaults_of_arguments_are_as_said(name: str) -> None:
    assert said_otherwise(rows(section_of(name), "argument"), CATALOG.load(name).args_type()) == {}


def test_the_fields_of_a_claim_exist_and_their_defaults_are_as_said() -> None:
    table = rows(section_of("GpuClaim"), "field")
    filled = GpuClaimSpec(selector=ClaimSelector(), network=ClaimNetwork(), storage=ClaimStorage())

    assert {path for path, _ in table} <= set(paths(inspect.type_info(GpuClaimSpec)))
    assert said_otherwise(table, filled) == {}


@pytest.mark.parametrize("text", configurations(), ids=itertools.count(1))
def test_every_configuration_builds(text: str, prefer_rack: type[Any]) -> None:
    assert build(text, prefer_rack)


def test_every_plugin_with_arguments_has_an_example() -> None:
    configured = {
        entry["name"]
        for text in configurations()
        for profile in yaml.safe_load(text)["profiles"]
        for entry in profile.get("pluginConfig", ())
    }

    assert configured == set(CONFIGURED)


def test_every_claim_makes_sense_and_is_used_by_a_pod() -> None:
    claims = {each["metadata"]["name"]: msgspec.convert(each, GpuClaim) for each in objects("GpuClaim")}
    used = {annotations[CLAIM] for annotations in annotations_of_pods() if CLAIM in annotations}

    assert all(isinstance(claim_want(claim), Want) for claim in claims.values())
    assert used == set(claims) != set()


def test_every_scheduling_map_can_be_read() -> None:
    maps = [
        parse(annotations[SCHEDULING_MAP]) for annotations in annotations_of_pods() if SCHEDULING_MAP in annotations
    ]

    assert [each.faults for each in maps] == [()]
    assert all(each.entries for each in maps)


def test_the_plugin_of_the_front_page_scores_as_it_says(prefer_rack: type[Any]) -> None:
    cache = cluster([make_node("a", labels={"rack": "a"}), make_node("b", labels={"rack": "b"})])
    runtime = make_runtime(cache, prefer_rack)
    pod = cache.record(make_pod("p", annotations={"example.com/rack": "b"}))

    scores = runtime.evaluator.scores(runtime.evaluator.filter(pod))

    assert scores["PreferRack"].tolist() == [0.0, 100.0]


def test_the_example_of_a_plugins_test_passes(prefer_rack: type[Any]) -> None:
    module = run(blocks(HERE, "python")[1], "test_my_package")
    tests = [value for name, value in vars(module).items() if name.startswith("test_")]

    for test in tests:
        test()

    assert module.PreferRack is prefer_rack
    assert len(tests) == 2


def test_the_example_that_looks_node_by_node_rejects_as_it_says() -> None:
    plugin = run(blocks(HERE, "python")[0], "only_ready").OnlyReady
    cache = cluster([make_node("new"), make_node("ready", labels={"example.com/ready": ""})])

    verdicts = run_filter(plugin, make_pod("p"), cache)

    assert verdicts == {"new": ("node(s) were not marked as ready",), "ready": ()}
