"""Finds the version of a kind that a server has."""

from __future__ import annotations

from gangline.kube.interface import Client
from gangline.kube.resources import Resource, T


async def newest(client: Client, resource: Resource[T]) -> Resource[T] | None:
    """The resource in the newest version that the server has; None if it has none. Raises ApiError."""
    for each in (resource, *resource.older):
        if each.plural in await client.served(each.group, each.version):
            return each
    return None
