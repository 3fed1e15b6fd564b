"""The failures of an API server, with its own messages."""

from __future__ import annotations

from typing import Any

from gangline.errors import Conflict, Forbidden, Gone, Invalid, NotFound, TooManyRequests, Unavailable
from gangline.kube.resources import Resource


def not_found(resource: Resource[Any], name: str) -> NotFound:
    """There is no such object."""
    return NotFound(404, "NotFound", f'{_qualified(resource)} "{name}" not found')


def already_exists(resource: Resource[Any], name: str) -> Conflict:
    """An object with the name exists."""
    return Conflict(409, "AlreadyExists", f'{_qualified(resource)} "{name}" already exists')


def conflict(resource: Resource[Any], name: str, why: str, subresource: str = "") -> Conflict:
    """The object is not as the request expects it."""
    what = f"{_qualified(resource)}/{subresource}" if subresource else _qualified(resource)
    return Conflict(409, "Conflict", f'Operation cannot be fulfilled on {what} "{name}": {why}')


def modified(resource: Resource[Any], name: str) -> Conflict:
    """The resourceVersion of the request is not the current one."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(resource, name, why)


def other_uid(resource: Resource[Any], name: str, wanted: str, found: str, subresource: str = "") -> Conflict:
    """Another object has the name now."""
    why = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"
    return conflict(resource, name, why, subresource)


def budget_exceeded() -> TooManyRequests:
    """A disruption budget does not let the pod go now."""
    why = "Cannot evict pod as it would violate the pod's disruption budget."
    return TooManyRequests(429, "TooManyRequests", why)


def invalid(resource: Resource[Any], name: str, why: str) -> Invalid:
    """The object can never be accepted."""
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    return Invalid(422, "Invalid", f'{kind} "{name}" is invalid: {why}')


def bad_request(why: str) -> Invalid:
    """The request is invalid."""
    return Invalid(400, "BadRequest", why)


def no_priority_class(pod: str, name: str) -> Forbidden:
    """The pod names a priority class that does not exist."""
    return Forbidden(403, "Forbidden", f'pods "{pod}" is forbidden: no PriorityClass with name {name} was found')


def too_old(asked: int, oldest: int) -> Gone:
    """The changes after that resourceVersion are forgotten."""
    return Gone(410, "Expired", f"too old resource version: {asked} ({oldest})")


def too_large(asked: int, current: int) -> Unavailable:
    """The refusal of a resourceVersion that the server has not reached yet."""
    return Unavailable(504, "Timeout", f"Too large resource version: {asked}, current: {current}")


def _qualified(resource: Resource[Any]) -> str:
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural
