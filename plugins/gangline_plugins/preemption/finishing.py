"""Finds the gangs whose eviction was begun and not finished: their scheduler was killed, or a write has failed.

All victims of a preemption are marked before the first one is deleted. So if the members of a gang that are left are
all marked, the whole gang was to go, and some members may be gone already. If one is not marked, none was deleted: the
gang runs on, and kube-controller-manager takes the marks back after two minutes.
"""

from __future__ import annotations

from collections.abc import Container

from gangline import Handle, PodInfo
from gangline_plugins.memberships import key_of
from gangline_plugins.preemption.precedence import is_marked


def unfinished(handle: Handle, under_way: Container[str]) -> dict[str, list[PodInfo]]:
    """The members that are left of each such gang, by the key of the gang; without pods whose UIDs are `under_way`."""
    pods = handle.state.pods
    keys = {key_of(handle, pod) for pod in pods.values() if is_marked(pod)}
    found: dict[str, list[PodInfo]] = {}
    for key in sorted(keys - {""}):
        members = [pods.get(member.uid, member) for member in handle.members(key)]  # with the conditions of now
        if members and all(is_marked(member) and member.uid not in under_way for member in members):
            found[key] = members
    return found
