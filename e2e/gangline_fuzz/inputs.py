"""What can be done to a cluster, as values that can be kept as JSON: a case is a list of such inputs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from gangline.kube import resources
from gangline.kube.resources import Resource

RESOURCES: Mapping[str, Resource[Any]] = {
    each.key: each for each in vars(resources).values() if isinstance(each, Resource)
}
"""Every kind that Gangline knows, by its key."""


class Write(msgspec.Struct, frozen=True, tag="write", tag_field="do"):
    """Somebody creates or replaces an object; it is sent as it is, whatever it says."""

    resource: str
    object: Any
    damage: tuple[int, int, str] | None = None
    """Where the text of the event, not of what is stored, is damaged: position, characters that go, what comes."""


class Delete(msgspec.Struct, frozen=True, tag="delete", tag_field="do"):
    """Somebody deletes an object; nothing happens where there is none."""

    resource: str
    name: str
    namespace: str = ""


class Line(msgspec.Struct, frozen=True, tag="line", tag_field="do"):
    """A watch says something that no write stands behind."""

    resource: str
    text: str
    """Bytes that are not UTF-8 are lone surrogates, as `surrogateescape` has it."""


class Relist(msgspec.Struct, frozen=True, tag="relist", tag_field="do"):
    """A watch ends with 410, and the next list of its kind is odd; the one after that is not."""

    resource: str
    how: str
    """The name of an entry of `streams.LISTS`."""


class Reset(msgspec.Struct, frozen=True, tag="reset", tag_field="do"):
    """Every watch breaks off."""


class Several(msgspec.Struct, frozen=True, tag="several", tag_field="do"):
    """Things that happen at once: a gang, or an object with what it needs."""

    inputs: list[Write | Delete | Line]


class Review(msgspec.Struct, frozen=True, tag="review", tag_field="do"):
    """The API server asks the webhook."""

    path: str
    text: str
    """Bytes that are not UTF-8 are lone surrogates."""


class Readings(msgspec.Struct, frozen=True, tag="readings", tag_field="do"):
    """NVML answers the agent; functions that are not named answer as usual."""

    answers: dict[str, Any]


class Configuration(msgspec.Struct, frozen=True, tag="configuration", tag_field="do"):
    """A KubeSchedulerConfiguration is loaded."""

    text: str


Input = Write | Delete | Line | Relist | Reset | Several | Review | Readings | Configuration


class Case(msgspec.Struct, frozen=True):
    """What happens to one cluster, one thing after the other; or one review, reading or configuration."""

    inputs: list[Input]
    note: str = ""
    """What was found with it."""
    plugin: dict[str, str] = {}
    """By extension point: how an odd plugin answers there, as `answers.ANSWERS` has it; none for no such plugin."""


def plain(case: Case) -> Any:
    """A case as JSON data."""
    return msgspec.to_builtins(case)


def parsed(data: Any) -> Case:
    """The case that JSON data is. Raises msgspec.ValidationError."""
    return msgspec.convert(data, Case)


def read(path: Path) -> Case:
    """A case from a file."""
    # The standard library reads and writes lone surrogates; msgspec has no way to.
    return parsed(json.loads(path.read_text("ascii")))


def write(case: Case, path: Path) -> None:
    """Keep a case in a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(plain(case), indent=1) + "\n", "ascii")
