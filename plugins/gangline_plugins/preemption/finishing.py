"""Finds the gangs whose eviction was begun and not finished: their scheduler was killed, or a write has failed.

All victims of a preemption are marked before the first one is deleted. So if the members of a gang that are left are
all marked, the whole gang was to go, and some members may be gone already. If one is not marked, none was deleted: the
gang runs on, and kube-controller-manager takes the marks back after two minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container

from gangline import Handle, PodInfo
from gangline_plugins.memberships import key_of
from gangline_plugins.preemption.precedence import is_marked

AT_ONCE = 10_000
"""Pods that are looked at in one turn of the loop, in some 3 ms."""


async def unfinished(handle: Handle, under_way: Callable[[], Container[str]]) -> dict[str, list[PodInfo]]:
    """The members that are left of each such gang, by the key of the gang; without pods whose UIDs are `under_way`.

    Other work of the loop goes on while all pods are looked at; what is found holds at the end.
    """
    pods, keys = handle.state.pods, set[str]()
    uids = list(pods)
    for begin in range(0, len(uids), AT_ONCE):
        if begin:
            await asyncio.sleep(0)
        some = [pod for uid in uids[begin : begin + AT_ONCE] if (pod := pods.get(uid)) is not None]
        keys.update([key_of(handle, pod) for pod in some if is_marked(pod)])
    now_under_way, found = under_way(), dict[str, list[PodInfo]]()
    for key in sorted(keys - {""}):
        members = [pods.get(member.uid, member) for member in handle.members(key)]  # with the conditions of now
        if members and all(is_marked(member) and member.uid not in now_under_way for member in members):
            found[key] = members
    return found
