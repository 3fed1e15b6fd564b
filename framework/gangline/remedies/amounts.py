"""Remedies by smaller wishes: a gang that needs fewer members, and pods that request smaller amounts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np

from gangline import model, quantity
from gangline.errors import InvalidQuantity
from gangline.remedies.bisecting import first_that_does
from gangline.remedies.domains import domains_of, sums
from gangline.remedies.remedy import Remedy, RemedyCost, RemedyKind
from gangline.remedies.rewriting import rewritten
from gangline.remedies.trying import Change, Trial
from gangline.state import requests
from gangline.wire.custom_resources import AMD_GPU, GPU

_MOST_RESOURCES = 8
"""Resources that are tried, at most."""
_MOST_BESIDE = 8
"""Pods of the unit on one node for which amounts are tried."""
_MEBI = 2**20


def fewer_members(trial: Trial) -> Iterator[Remedy]:
    """The largest number of members with which the gang would start; nothing for a gang with subgroups."""
    group = trial.group
    if group is None or group.subgroups or group.min_member < 2:
        return

    def needing(number: int) -> Change:
        return lambda each: dataclasses.replace(each, min_member=number)

    progress = trial.progress
    placed = progress.placed
    _, ids = domains_of(trial)
    room = int(sums(ids, trial.capacity(needing(placed + 1))).max(initial=0))
    most = min(progress.there, placed + room, group.min_member - 1)
    numbers = range(placed + 1, most + 1)
    found = _largest_of_all(numbers, lambda number: trial.starts(change=needing(number)))
    if found is None:
        return
    less = group.min_member - found
    members = "1 member" if found == 1 else f"{found} members"
    sentence = f"Let the gang start with {members} instead of {group.min_member} (minMember)."
    yield Remedy(
        RemedyKind.FEWER_MEMBERS,
        sentence,
        {"minMember": found, "from": group.min_member, "fewer": less},
        RemedyCost(given_up=round(less / group.min_member, 3)),
    )


def smaller_requests(trial: Trial) -> Iterator[Remedy]:
    """For each resource the largest amount per pod with which the unit would start, if nothing else is changed."""
    wanted: dict[str, int] = {}
    for pod in trial.pods:
        for resource, amount in pod.cls.requests.real.items():
            wanted[resource] = max(amount, wanted.get(resource, 0))
    for resource in sorted(wanted, key=lambda name: (name not in (GPU, AMD_GPU), name))[:_MOST_RESOURCES]:

        def would_do(amount: int, resource: str = resource) -> bool:
            pods = rewritten(trial.pods, lambda spec: _reduced(spec, resource, amount), trial.cache)
            is_reduced = pods is not None and all(pod.cls.requests.real.get(resource, 0) <= amount for pod in pods)
            return is_reduced and trial.starts(pods)

        largest = _largest_of_all if resource in (GPU, AMD_GPU) else _largest
        found = largest(_amounts(trial, resource, wanted[resource]), would_do)
        if found is None:
            continue
        asked, enough = _text(resource, wanted[resource]), _text(resource, found)
        yield Remedy(
            RemedyKind.SMALLER_REQUESTS,
            f"Request {enough} {resource} per pod instead of {asked}.",
            {"resource": resource, "quantity": enough, "from": asked},
            RemedyCost(given_up=round(1 - found / wanted[resource], 3)),
        )


def _largest(numbers: Sequence[int], would_do: Callable[[int], bool]) -> int | None:
    """The largest of ascending numbers that would do, if all smaller numbers would do, too."""
    found = first_that_does(len(numbers), lambda number: would_do(numbers[-1 - number]))
    return None if found is None else numbers[-1 - found]


def _largest_of_all(numbers: Sequence[int], would_do: Callable[[int], bool]) -> int | None:
    """The largest of ascending numbers that would do, even if a smaller number would not.

    Plugins may place nine members, but not eight: for example, those that give large gangs whole leaves. So the
    bisection only finds a number that will do if attempts run out before all larger numbers have been tried.
    """
    tried: dict[int, bool] = {}

    def does(number: int) -> bool:
        if number not in tried:
            tried[number] = would_do(number)
        return tried[number]

    if numbers and does(numbers[-1]):
        return numbers[-1]
    found = _largest(numbers, does)
    return next((number for number in reversed(numbers) if number == found or does(number)), None)


def _amounts(trial: Trial, resource: str, wanted: int) -> list[int]:
    """The amounts below the wanted one that are worth an attempt: those with which one pod, or a few pods together,
    would just fit on some node. Ascending.
    """
    nodes, size = trial.cache.nodes, trial.cache.nodes.size
    at = nodes.axis.row(resource)
    free = nodes.free[at, :size][nodes.alive[:size]]
    amounts = np.unique(np.concatenate([free // beside for beside in range(1, _MOST_BESIDE + 1)]))
    if resource == requests.MEMORY:
        amounts = np.unique(amounts // _MEBI * _MEBI)
    return amounts[(amounts > 0) & (amounts < wanted)].tolist()


def _reduced(spec: model.PodSpec, resource: str, amount: int) -> model.PodSpec:
    """The spec with at most this amount of a resource: the requests of all containers are reduced in proportion."""
    asked = [_asked(container, resource) for container in spec.containers]
    left = sum(asked) - max(0, requests.compute(spec).real.get(resource, 0) - amount)
    if left >= sum(asked) or left <= 0:
        return spec
    shares = [each * left // sum(asked) for each in asked]
    shares[int(np.argmax(asked))] += left - sum(shares)
    containers = [
        _with(container, resource, _text(resource, share)) if before else container
        for container, before, share in zip(spec.containers, asked, shares, strict=True)
    ]
    return msgspec.structs.replace(spec, containers=containers)


def _with(container: model.Container, resource: str, amount: str) -> model.Container:
    """The container with this request and, if request and limit must be equal, with this limit."""
    given = container.resources or model.ResourceRequirements()
    limits = {**(given.limits or {})}
    if resource in limits and ("/" in resource or resource not in (given.requests or {})):
        limits[resource] = amount
    changed = msgspec.structs.replace(given, requests={**(given.requests or {}), resource: amount}, limits=limits)
    return msgspec.structs.replace(container, resources=changed)


def _asked(container: model.Container, resource: str) -> int:
    """The amount that a container requests; its limit if it has no request."""
    given = container.resources
    if given is None:
        return 0
    value = {**(given.limits or {}), **(given.requests or {})}.get(resource, 0)
    try:
        milli = quantity.milli(value)
    except InvalidQuantity:
        return 0
    return milli if resource == requests.CPU else quantity.whole(milli)


def _text(resource: str, amount: int) -> str:
    """An amount as a quantity of Kubernetes."""
    if resource == requests.CPU:
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if resource == requests.MEMORY and amount % _MEBI == 0:
        return f"{amount // 2**30}Gi" if amount % 2**30 == 0 else f"{amount // _MEBI}Mi"
    return str(amount)
