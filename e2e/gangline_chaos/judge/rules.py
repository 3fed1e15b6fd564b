"""The rules that hold at every revision, each a function from the cluster to what breaks the rule, by subject."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from decimal import Decimal

from gangline_chaos.judge.objects import COUNTED, WHOLE, Device, Pod
from gangline_chaos.judge.world import World

Broken = dict[str, str]
"""For each subject that breaks a rule, what is wrong with it."""


def devices_given_twice(world: World, node: str) -> Broken:
    """A device is held by one pod alone, or is shared up to its capacity."""
    holders: defaultdict[int, list[Pod]] = defaultdict(list)
    for pod in world.live_on(node):
        for id in pod.devices or ():
            holders[id].append(pod)
    found = {}
    for id, there in holders.items():
        taken = sum(pod.share or WHOLE for pod in there)
        if taken > WHOLE:
            names = ", ".join(sorted(pod.name for pod in there))
            found[f"GPU {id} of {node}"] = f"{taken} thousandths of it are given to {names}"
    return found


def nodes_over_capacity(world: World, node: str) -> Broken:
    """The pods on a node ask for no more than the node has."""
    if node not in world.nodes:
        return {}
    there, has = world.live_on(node), world.nodes[node].has
    found = {}
    for resource in COUNTED:
        asked = sum((pod.asks.get(resource, Decimal(0)) for pod in there), Decimal(0))
        if asked > has.get(resource, Decimal(0)):
            found[f"{resource} of {node}"] = f"pods ask for {asked} of {has.get(resource, 0)}"
    return found


def gangs_apart(world: World, gang: str) -> Broken:
    """The members of a gang are in one domain of the level that the gang requires.

    Members on nodes that are deleted or not ready do not count: they do no work, and may have been replaced already.
    """
    placed = [pod for pod in world.gang(gang) if pod.is_live and world.is_heard_of(pod.node)]
    if not placed or not placed[0].within:
        return {}
    domains = {world.domain(pod, pod.within) for pod in placed}
    if len(domains) == 1 and None not in next(iter(domains)):
        return {}
    return {f"gang {gang}": f"it is in {sorted(map(str, domains))}, and requires one of {placed[0].within}"}


def claims_given_twice(world: World) -> Broken:
    """A device of a driver is allocated to one claim of live bound pods, not to several."""
    live = {pod.uid for pod in world.pods.values() if pod.is_live}
    holders: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
    for claim in world.claims.values():
        if claim.users & live:
            for device in claim.devices:
                holders[device].append(claim.key)
    return {
        f"device {'/'.join(device)}": f"it is allocated to {', '.join(sorted(claims))}"
        for device, claims in holders.items()
        if len(claims) > 1
    }


def wrong_changes(old: Pod | None, new: Pod | None) -> Iterable[tuple[str, str, str]]:
    """A pod keeps its node and its devices, and has as many devices as it asks for. Returns rule, subject and text of
    each breach.
    """
    if new is None:
        return
    if old is not None and old.uid == new.uid and old.node:
        if old.node != new.node:
            yield "bound twice", new.name, f"it was bound to {old.node}, then to {new.node}"
        if old.devices is not None and old.devices != new.devices:
            yield "devices changed", new.name, f"it had {old.devices}, then {new.devices}"
    if new.node and new.devices is not None and len(new.devices) != new.wants:
        yield "wrong number of devices", new.name, f"it has {new.devices} and asks for {new.wants}"


def gang_in_part(world: World, gang: str) -> Broken:
    """A gang has all the members that it needs on nodes, or none. If too few pods exist, waiting members may wait."""
    members = world.gang(gang)
    placed, waiting = [pod for pod in members if pod.node], [pod for pod in members if not pod.node]
    if not placed or not waiting or len(placed) >= placed[0].least or not _is_whole(members):
        return {}
    if not world.has_room(waiting, placed):
        return {}
    return {f"gang {gang}": f"{len(placed)} of {placed[0].least} members have nodes, and the others have room"}


def locks_that_differ(world: World) -> Broken:
    """Locks are for the devices that the annotations of live bound pods name, no more and no fewer.

    The locks of `locks_nobody_wrote` are left out, because they may stay for longer.
    """
    locked = {each for found in world.locks.values() for each in found} - _nobody_wrote(world)
    held = {
        ((pod.node, id), pod.uid): pod.name for pod in world.pods.values() if pod.is_live for id in pod.devices or ()
    }
    names = {pod.uid: pod.name for pod in world.pods.values()}
    found = {
        f"GPU {id} of {node}, pod {held[(node, id), uid]}": "the pod has it, and it is not locked for the pod"
        for (node, id), uid in held.keys() - locked
    }
    for (node, id), uid in locked - held.keys():
        found[f"GPU {id} of {node}, {uid}"] = f"it is locked for pod {names.get(uid, 'that is gone')}, which has it not"
    return found


def locks_nobody_wrote(world: World) -> Broken:
    """Locks of waiting pods that do not say who wrote them: a scheduler without an election may be about to bind."""
    return {f"GPU {id} of {node}, {uid}": "a waiting pod's lock" for (node, id), uid in _nobody_wrote(world)}


def _nobody_wrote(world: World) -> set[tuple[Device, str]]:
    if not world.damaged:
        return set()
    waiting = {pod.uid for pod in world.pods.values() if not pod.node}
    found = {each for key in world.damaged for each in world.locks.get(key, ())}
    return {each for each in found if each[1] in waiting}


def devices_missing(world: World) -> Broken:
    """Live bound pods that ask for devices have them, where the node reports its devices."""
    return {
        pod.name: f"it has no devices on {pod.node} and asks for {pod.wants}"
        for pod in world.pods.values()
        if pod.is_live and pod.wants and pod.devices is None and pod.node in world.reported
    }


def left_waiting(world: World) -> Broken:
    """Pods that have room are bound."""
    found = {}
    for pod in world.pods.values():
        if pod.node or pod.is_leaving or pod.has_ended:
            continue
        mates = world.gang(pod.gang) if pod.gang else [pod]
        waiting = [mate for mate in mates if not mate.node]
        if pod.gang and not _is_whole(mates):
            continue
        if world.has_room(waiting, [mate for mate in mates if mate.node]):
            found[pod.name] = "it waits, and has room"
    return found


def _is_whole(gang: list[Pod]) -> bool:
    """Whether a gang has as many pods as it needs, without those that have ended."""
    return sum(not pod.has_ended for pod in gang) >= gang[0].least
