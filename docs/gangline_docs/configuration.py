"""The page of the configuration file, from the structs into which it is decoded."""

from __future__ import annotations

import inspect as python
from collections.abc import Iterator

import msgspec

from gangline.config.defaults import DEFAULT_PLUGINS
from gangline.config.schema import POINT_NAMES, KubeSchedulerConfiguration, Plugins, PluginSet
from gangline.profile.registry import Catalog
from gangline_docs.markdown import code, page, prose, table
from gangline_docs.structs import fields, struct_in, table_of


def structs() -> list[type[msgspec.Struct]]:
    """Every struct of the file, the outermost first."""
    found: list[type[msgspec.Struct]] = []
    _collect(KubeSchedulerConfiguration, found)
    return found


def render() -> str:
    """The page."""
    summary = (
        "`gangline run --config FILE` takes kube-scheduler's own file, `KubeSchedulerConfiguration` of "
        "`kubescheduler.config.k8s.io/v1` or `v1beta3`; several files are put together. Fields that are unknown, of "
        "the wrong type or out of range are errors that name the file and the field. A file that changes while "
        "Gangline runs is checked and taken between two decisions; a broken one changes nothing and is reported in "
        "the log."
    )
    return page("Configuration", summary, *_sections(), _defaults())


def _sections() -> Iterator[str]:
    for cls in structs():
        doc = prose(python.getdoc(cls) or "")
        if cls is Plugins:
            names = ", ".join(code(name) for name in POINT_NAMES.values())
            link = f"[{PluginSet.__name__}](#{PluginSet.__name__.lower()})"
            yield f"## {cls.__name__}\n\n{doc}\n\nEach of these fields is a {link}: {names}."
        else:
            yield f"## {cls.__name__}\n\n{doc}\n\n{table_of(cls, deep=False)}"


def _collect(cls: type[msgspec.Struct], found: list[type[msgspec.Struct]]) -> None:
    if cls in found:
        return
    found.append(cls)
    for _, field, _ in fields(cls, deep=False):
        inner, _ = struct_in(field.type)
        if inner is not None:
            _collect(inner, found)


def _defaults() -> str:
    installed = Catalog.discover().names
    rows = [
        (f"[{plugin.name}](plugins.md#{plugin.name.lower()})", str(plugin.weight or ""))
        for plugin in DEFAULT_PLUGINS
        if plugin.name in installed
    ]
    return "## Default plugins\n\nOn in every profile that does not disable them, in this order:\n\n" + table(
        ("Plugin", "Weight"), rows
    )
