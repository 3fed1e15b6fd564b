"""What each component may do, from the rules in the chart's templates."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gangline_docs.markdown import code, table

FOLDER = Path(__file__).parents[2] / "charts" / "gpu-scheduler" / "templates"
_TEMPLATE = re.compile(r"^ *\{\{.*\}\}$\n?", re.MULTILINE)
_VALUE = re.compile(r"\{\{.*?\}\}")


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a role, whatever conditions the chart puts around it."""

    groups: tuple[str, ...]
    resources: tuple[str, ...]
    names: tuple[str, ...]
    """The only objects that it is about; none for all."""
    verbs: tuple[str, ...]
    everywhere: bool
    """Or in one namespace alone."""
    reason: str
    """The comment beside it or above it; a rule without one goes with those before it."""


def scheduler() -> str:
    """The rights of the scheduler as a table."""
    return _table("scheduler")


def agent() -> str:
    """The rights of the agent as a table."""
    return _table("agent")


def webhook() -> str:
    """The rights of the webhook as a table."""
    return _table("webhook")


def rules(component: str) -> Iterator[Rule]:
    """Every rule in the template of a component."""
    text = (FOLDER / f"{component}-rbac.yaml").read_text(encoding="utf-8")
    for document in _VALUE.sub("by-its-name", _TEMPLATE.sub("", text)).split("\n---\n"):
        head, _, body = document.partition("\nrules:\n")
        reason = ""
        for part in re.split(r"\n(?=  [-#])", f"\n{body}"):
            if part.startswith("  # "):
                reason = part.removeprefix("  # ")
            elif part.startswith("  - "):
                yield _rule(part, "kind: ClusterRole" in head, reason)
                reason = ""


def _rule(text: str, everywhere: bool, reason: str) -> Rule:
    rule: dict[str, Any] = yaml.safe_load(text)[0]
    keys = ("apiGroups", "resources", "resourceNames", "verbs")
    groups, resources, names, verbs = (tuple(rule.get(key, ())) for key in keys)
    return Rule(groups, resources, names, verbs, everywhere, text.partition("}  # ")[2] or reason)


def _table(component: str) -> str:
    rows = [
        (
            " ".join(map(code, rule.resources)) + (f" {', '.join(rule.names)}" if rule.names else ""),
            ", ".join(group or "core" for group in rule.groups),
            ", ".join(rule.verbs),
            "everywhere" if rule.everywhere else "one namespace",
            rule.reason[:1].upper() + rule.reason[1:].rstrip("."),
        )
        for rule in rules(component)
    ]
    return table(("Objects", "API group", "Verbs", "Where", "What for"), rows)
