"""The page of annotations, labels and resource names, from the constants of all components."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

from gangline.groups import keys
from gangline.state.topology import KNOWN_LEVELS
from gangline.wire import custom_resources as wire
from gangline_docs.markdown import code, page, prose, table
from gangline_docs.source import Constant, constants, sections

ROOT = Path(__file__).parents[2]
PACKAGES = {"framework": "gangline", "plugins": "gangline_plugins", "agent": "gangline_agent"}
OWN = ("gpu.scheduling/", "gangline.dev/", "topology.gangline.dev/", "topology.scheduler/")
"""How names begin that Gangline has made up, or taken over from schedulers that nobody else carries on."""
_OBJECT = re.compile(r"((?:On|As) [^:]+): (.+)", re.DOTALL)
_WORKLOADS = "On a workload or its pods"
_API = re.compile(r"/v\d")


def names() -> list[Constant]:
    """Every name that is Gangline's own or that its components share, each once."""
    found: dict[str, Constant] = {}
    for each in (*constants(wire), *_own()):
        if _is_name(each.value) and not (each.value in found and found[each.value].meaning):
            found[each.value] = each
    return list(found.values())


def render() -> str:
    """The page."""
    by_place: dict[str, list[tuple[str, str]]] = {}
    for each in names():
        said = _OBJECT.fullmatch(each.meaning)
        where, meaning = (said[1], said[2]) if said else (_WORKLOADS, each.meaning)
        by_place.setdefault(where, []).append((code(each.value), prose(_sentence(meaning))))
    parts = [f"## {where}\n\n" + table(("Name", "Meaning"), rows) for where, rows in by_place.items()]
    summary = "Annotations, labels and resources that Gangline reads or writes, by the object that carries them."
    return page("Annotations and labels", summary, *parts, _levels(), _dialects())


def _own() -> Iterator[Constant]:
    """The names of our own in all modules."""
    for folder, package in PACKAGES.items():
        for file in sorted((ROOT / folder / package).rglob("*.py")):
            if any(prefix in file.read_text(encoding="utf-8") for prefix in OWN):
                parts = file.relative_to(ROOT / folder).with_suffix("").parts
                module = importlib.import_module(".".join(parts).removesuffix(".__init__"))
                yield from (each for each in constants(module) if each.value.startswith(OWN))


def _levels() -> str:
    rows = [(code(level.name), code(level.label)) for level in KNOWN_LEVELS]
    return (
        "## Node labels that are topology levels\n\nThe widest first. Where a profile names no levels of its own, "
        "those that some node has make up the topology.\n\n" + table(("Level", "Node label"), rows)
    )


def _dialects() -> str:
    rows = [
        (dialect, " ".join(code(each.value) for each in found))
        for dialect, found in sections(keys).items()
        if not any(each.value.startswith(OWN) for each in found)
    ]
    return (
        "## Of others\n\nRead as their owners define them; [migration](../migration.md#gangs) says what becomes of "
        "them.\n\n" + table(("Whose", "Names"), rows)
    )


def _is_name(value: str) -> bool:
    """A name has a prefix or dashes; API groups have not, and API versions end in theirs."""
    bare = value in OWN or value.endswith("/")
    return ("/" in value or "-" in value) and not bare and not _API.search(value) and " " not in value


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
