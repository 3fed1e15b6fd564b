"""To which group a pod belongs, for plugins that keep something by group."""

from __future__ import annotations

from gangline import Handle, Membership, PodGroup, PodInfo


def group_of(handle: Handle, pod: PodInfo) -> PodGroup | None:
    """The group of a pod; None for a pod on its own, and for one whose group cannot be read."""
    membership = handle.group_of(pod)
    return membership.group if isinstance(membership, Membership) else None


def key_of(handle: Handle, pod: PodInfo) -> str:
    """The key of the group of a pod; "" where `group_of` has none."""
    group = group_of(handle, pod)
    return group.key if group is not None else ""
