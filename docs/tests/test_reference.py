"""The pages that are written from the code name everything that the code has, and say what it means."""

from __future__ import annotations

import dataclasses
import re
import tomllib
import types
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec import inspect
from prometheus_client import CollectorRegistry

import gangline
from gangline import main
from gangline.api.hookspecs import POINTS
from gangline.config.schema import POINT_NAMES
from gangline.groups import keys
from gangline.profile.registry import GROUP, Catalog
from gangline.state.topology import KNOWN_LEVELS
from gangline.telemetry.metrics import Metrics
from gangline.wire import custom_resources as wire
from gangline.wire.custom_resources import GpuClaim, GpuNodeStatus
from gangline_docs import commands, configuration, copies, crds, extending, members, metrics, names, plugins, site
from gangline_docs.markdown import code
from gangline_docs.structs import fields
from gangline_webhook.serving import Metrics as WebhookMetrics

ROOT = Path(__file__).parents[2]
REGISTERED = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"][GROUP]


@cache
def written(render: Callable[[], str]) -> str:
    """A page, written once."""
    return render()


def cells(page: str) -> list[list[str]]:
    """The rows of all tables of a page, without their heads."""
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in page.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows]


def families(registry: CollectorRegistry) -> set[str]:
    """Names as Prometheus has them, without those of any process."""
    found = {f"{each.name}_total" if each.type == "counter" else each.name for each in registry.collect()}
    return {name for name in found if not name.startswith(("process_", "python_"))}


def struct_paths(type_: inspect.Type, prefix: str) -> Iterator[str]:
    """Every path through a struct of a custom resource, as its CRD names it; not through those of Kubernetes."""
    if isinstance(type_, inspect.UnionType):
        for each in type_.types:
            yield from struct_paths(each, prefix)
    elif isinstance(type_, inspect.ListType):
        yield from struct_paths(type_.item_type, f"{prefix}[]")
    elif isinstance(type_, inspect.StructType) and not type_.cls.__module__.startswith("gangline.model"):
        for field in type_.fields:
            yield (path := f"{prefix}.{field.encode_name}")
            yield from struct_paths(field.type, path)


@pytest.mark.parametrize("name", sorted(REGISTERED))
def test_every_plugin_has_a_section_with_all_of_its_arguments(name: str) -> None:
    section = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", written(plugins.render), re.DOTALL | re.MULTILINE)
    args_type = getattr(Catalog.discover().load(name), "args_type", None)

    assert section is not None
    listed = {row[0] for row in cells(section[1])}
    assert {f"`{path}`" for path, _, _ in fields(args_type)} <= listed if args_type else "| Field |" not in section[1]


def test_every_argument_says_what_it_means() -> None:
    rows = [
        row for row in cells(written(plugins.render)) if len(row) == 4 and row[0].startswith("`") and "[]" not in row[0]
    ]

    assert [row[0] for row in rows if row[1] not in ("object", "list of object") and not row[3]] == []


def test_every_metric_is_there_and_says_what_it_means() -> None:
    listed = {
        row[0].strip("`"): row[3] for row in cells(written(metrics.render)) if len(row) == 4 and row[0].startswith("`")
    }

    assert families(Metrics().registry) | families(WebhookMetrics().registry) <= set(listed)
    assert [name for name, meaning in listed.items() if not meaning] == []


def test_the_metrics_of_plugins_are_there() -> None:
    assert "scheduler_preemption_victims_total" in {each.name for each in metrics.of_scheduler()}


def test_every_name_in_wire_is_there_and_says_what_it_means() -> None:
    listed = {row[0].strip("`"): row[1] for row in cells(written(names.render)) if row[0].startswith("`")}
    known = {
        value
        for name, value in vars(wire).items()
        if name.isupper() and isinstance(value, str) and value.startswith(("gpu.scheduling/", "nvidia.com/", "gpu-"))
    }

    assert len(known) > 8
    assert [name for name in known if not listed.get(name)] == []


def test_every_name_of_our_own_is_there_and_says_what_it_means() -> None:
    listed = {each.value: each.meaning for each in names.names()}
    sources = (file.read_text(encoding="utf-8") for file in (ROOT / "framework").rglob("gangline/**/*.py"))
    used = {name for text in sources for name in re.findall(r'= "((?:topology\.)?gangline\.dev/[a-z-]+)"', text)}

    assert used
    assert [name for name in used if not listed.get(name)] == []


def test_the_names_of_other_schedulers_are_there() -> None:
    page = written(names.render)

    assert [
        value for value in vars(keys).values() if isinstance(value, str) and ".k8s.io/" in value and value not in page
    ] == []
    assert [level.label for level in KNOWN_LEVELS if f"`{level.label}`" not in page] == []


@pytest.mark.parametrize("kind", [GpuClaim, GpuNodeStatus], ids=lambda kind: kind.__name__)
def test_every_field_of_a_custom_resource_is_there(kind: type[msgspec.Struct]) -> None:
    struct = inspect.type_info(kind)
    assert isinstance(struct, inspect.StructType)
    section = re.search(rf"^## {kind.__name__}\n(.*?)(?=^## |\Z)", written(crds.render), re.DOTALL | re.MULTILINE)
    known = {path for part in struct.fields if part.name in ("spec", "status") for path in part_paths(part)}

    assert section is not None
    assert {f"`{path}`" for path in known} <= {row[0] for row in cells(section[1])}


def part_paths(part: inspect.Field) -> set[str]:
    return {part.encode_name, *struct_paths(part.type, part.encode_name)}


def test_every_field_of_a_custom_resource_says_what_it_means() -> None:
    rows = [row for row in cells(written(crds.render)) if len(row) == 4 and row[0].startswith("`")]

    assert len(rows) > 50
    assert [row[0] for row in rows if not row[3]] == []


@pytest.mark.parametrize("struct", configuration.structs(), ids=lambda struct: struct.__name__)
def test_every_field_of_the_configuration_is_there_and_says_what_it_means(struct: type[msgspec.Struct]) -> None:
    page = written(configuration.render)
    section = re.search(rf"^## {struct.__name__}\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
    assert section is not None
    listed = {row[0].strip("`"): row[3] for row in cells(section[1]) if len(row) == 4}

    if struct.__name__ == "Plugins":
        assert all(f"`{name}`" in section[1] for name in POINT_NAMES.values())
    else:
        assert set(struct.__struct_encode_fields__) <= set(listed)
        assert [name for name, meaning in listed.items() if not meaning] == []


def test_every_command_and_option_is_there() -> None:
    page = written(commands.render)
    said = [words for words, _ in commands.walk(main.cli, ("gangline",))]
    options = [name for _, command in commands.walk(main.cli, ("gangline",)) for name in options_of(command)]

    assert {words[1] for words in said if len(words) > 1} == {*main.COMMANDS, *main.added()}
    assert [words for words in said if f" {' '.join(words)}\n" not in page] == []
    assert [name for name in options if f"`{name}`" not in page] == []


def options_of(command: Any) -> list[str]:
    """Those that its help shows."""
    shown = [each for each in command.params if not getattr(each, "hidden", False)]
    return [name for each in shown for name in each.opts if name.startswith("-")]


def test_every_extension_point_and_every_name_of_the_api_is_there() -> None:
    page = written(extending.render)
    exported = page.partition("\n## Members\n")[0]
    listed = {row[0].strip("`"): row[1] for row in cells(exported) if row[0].startswith("`")}

    assert [point for point in POINTS if f"\n### {point}\n" not in page] == []
    assert set(listed) == set(gangline.__all__)
    assert [name for name, meaning in listed.items() if not meaning] == []


def test_parts_of_pages_are_filled_in() -> None:
    text = site.filled("# Title\n\n{{ fragmentation_table }}\n")

    assert "| default |" in text and "{{" not in text
    assert "`events_to_register`" in copies.plugin_rules()


@pytest.mark.parametrize("cls", members.CLASSES, ids=lambda cls: cls.__name__)
def test_every_public_member_is_listed_with_what_it_is(cls: type[Any]) -> None:
    slots = [name for name, each in vars(cls).items() if not name.startswith("_")]

    found = {each.name: each for each in members.of_class(cls)}

    assert set(slots) <= found.keys()
    assert [name for name, each in found.items() if not each.meaning] == []
    page = written(extending.render)
    assert [each.how for each in found.values() if f"| {code(each.how)} |" not in page] == []


@pytest.mark.parametrize("module", members.MODULES, ids=lambda module: module.__name__)
def test_what_plugins_are_tested_with_is_listed(module: types.ModuleType) -> None:
    found = {each.name: each for each in members.of_module(module)}

    assert found
    assert [name for name, each in found.items() if not each.meaning] == []


def test_members_say_their_types_and_units() -> None:
    text = written(extending.render)

    assert "`allocatable(resource: str) -> Int64Column`" in text and "milli-CPU, bytes or whole devices" in text
    assert "run_filter(plugin: type[Any], pod: model.Pod" in text


def test_the_page_says_how_a_changed_copy_of_a_value_is_made() -> None:
    page = written(extending.render)
    (said,) = (line for line in page.splitlines() if "`msgspec.structs.replace`" in line)
    structs, others = said.split("`msgspec.structs.replace`")

    assert "`Status`" in structs and "`PodInfo`" in structs and "`Placement`" not in structs
    assert "`dataclasses.replace`" in others
    assert msgspec.structs.replace(gangline.unschedulable("full"), plugin="Mine").plugin == "Mine"
    assert dataclasses.replace(gangline.Placement("a", np.arange(2)), name="b").name == "b"
