"""The page of plugins: what plugins/README.md says of each, with the arguments as the code has them."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from gangline.api.hookspecs import POINTS
from gangline.config.defaults import DEFAULT_PLUGINS
from gangline.profile.registry import Catalog, points_of
from gangline_docs.markdown import page, prose
from gangline_docs.structs import table_of

README = Path(__file__).parents[2] / "plugins" / "README.md"
_ARGUMENTS = re.compile(r"^\| argument \|.*?(?=\n\n)", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\((?!http|#)[^)]+\)")
"""A link to a file, which the site does not have."""
_POINTS = re.compile(r"^- Points: .*\n", re.MULTILINE)


def render() -> str:
    """The page."""
    catalog = Catalog.discover()
    summary = (
        "Every plugin that comes with Gangline. *Cost* is the time in the plugin per decision at 5,000 nodes, an order "
        "of magnitude; *maturity* is stable for kube-scheduler's plugins, which are tested against its verdicts, beta "
        "for plugins with unit tests alone, and alpha for those that may still change in what they do. `gangline "
        "plugins list` shows what is installed, plugins of others too."
    )
    text = README.read_text(encoding="utf-8")
    return page("Plugins", summary, *(_section(name, catalog.load(name), text) for name in catalog.names))


def section_of(name: str, text: str) -> str:
    """What plugins/README.md says of a plugin; "" for nothing."""
    found = re.search(rf"^### {name}\n(.*?)(?=^##|\Z)", text, re.DOTALL | re.MULTILINE)
    return found[1].strip() if found else ""


def _section(name: str, cls: type, text: str) -> str:
    said = _LINK.sub(r"\1", section_of(name, text)) or prose(inspect.getdoc(cls) or "")
    points = points_of(cls)
    facts = "Points: " + ", ".join(f"`{point}`" for point in POINTS if point in points) + f". {_use(name)}"
    said = _POINTS.sub("", said)
    args_type = getattr(cls, "args_type", None)
    if args_type is not None:
        written = _ARGUMENTS.search(said)
        arguments = table_of(args_type, meanings=_meanings(written[0]) if written else {})
        said = said.replace(written[0], arguments) if written else f"{said}\n\n{arguments}"
    return f"## {name}\n\n{facts}\n\n{said}"


def _meanings(rows: str) -> dict[str, str]:
    """Argument to meaning, the last column, in a table of plugins/README.md."""
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows.splitlines()[2:]]
    return {row[0].strip("`"): row[-1] for row in cells}


def _use(name: str) -> str:
    default = next((plugin for plugin in DEFAULT_PLUGINS if plugin.name == name), None)
    if default is None:
        return "Off unless a profile enables it."
    return f"On by default, with weight {default.weight}." if default.weight else "On by default."
