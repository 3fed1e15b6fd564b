"""Says whether somebody else has written the field by which an owner is suspended, since the scheduler has written it.

The API server notes in `managedFields` who has written each field. Whoever changes a field is its only author then, and
who applies an equal value becomes one of several. So while the scheduler alone is the author, nobody has resumed and
stopped the owner again meanwhile, or has declared that it is to be stopped. A write that changes nothing and is no
server-side apply leaves no trace.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from gangline import model, resources

_SCHEDULER = "gangline"
"""The author of the scheduler's writes: the first word of its User-Agent."""


class FieldsOfSpec(model.Object):
    """The fields that one author has written."""

    spec: dict[str, Any] = msgspec.field(default_factory=dict, name="f:spec")


class ManagedFields(model.Object):
    """An author."""

    manager: str = ""
    fields_v1: FieldsOfSpec = msgspec.field(default_factory=FieldsOfSpec)


class MetaWithAuthors(model.ObjectMeta):
    """metadata with the authors."""

    managed_fields: list[ManagedFields] = msgspec.field(default_factory=list)


class AuthoredJob(model.Job):
    """A Job."""

    metadata: MetaWithAuthors  # pyright: ignore[reportIncompatibleVariableOverride]  # never assigned to


class AuthoredJobSet(model.JobSet):
    """A JobSet."""

    metadata: MetaWithAuthors  # pyright: ignore[reportIncompatibleVariableOverride]  # never assigned to


class AuthoredWorkload(model.KueueWorkload):
    """A Workload of Kueue."""

    metadata: MetaWithAuthors  # pyright: ignore[reportIncompatibleVariableOverride]  # never assigned to


_AUTHORED: dict[str, type[Any]] = {
    resources.JOBS.kind: AuthoredJob,
    resources.JOB_SETS.kind: AuthoredJobSet,
    resources.KUEUE_WORKLOADS.kind: AuthoredWorkload,
}


def with_authors(resource: resources.Resource[Any]) -> resources.Resource[Any]:
    """The resource with which to read an owner together with the authors of its fields."""
    return replace(resource, type=_AUTHORED[resource.kind])


def has_another_author(found: Any) -> bool:
    """Whether somebody else has written the field by which an owner is suspended; read `with_authors`."""
    field = "f:active" if isinstance(found, model.KueueWorkload) else "f:suspend"
    metadata: Any = found.metadata
    authors = {each.manager for each in metadata.managed_fields if field in each.fields_v1.spec}
    return bool(authors - {_SCHEDULER})
