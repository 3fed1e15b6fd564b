"""Running pods that would have to end, or to move, for the unit to start: the fewest GPUs in one domain.

The domain is one of the level that the gang requires. A gang without such a level has the whole cluster as its domain,
and a pod on its own has each node. The domains that lack the least room are tried first. In a domain the holders are
removed one after the other, first those that hold the fewest GPUs for each pod of the unit that gets room, until the
unit starts. Then each holder is put back on trial, and stays if the unit starts all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gangline import model
from gangline.errors import InvalidObject
from gangline.groups.gpu_count import gpus_of
from gangline.kube.resources import PDBS, RESOURCE_CLAIMS
from gangline.overview.claim_use import claim_names
from gangline.plurals import listed, many
from gangline.remedies.bisecting import first_that_does
from gangline.remedies.domains import domains_of, sums
from gangline.remedies.holders import Holder, HolderColumns, holders_of
from gangline.remedies.remedy import Remedy, RemedyCost, RemedyKind
from gangline.remedies.trying import Trial
from gangline.state import requests
from gangline.state.cache import Cache
from gangline.state.node_view import Int64Column
from gangline.state.pods import PodInfo
from gangline.state.selectors import compile_selector
from gangline.state.topology import Domains
from gangline.status import BoolColumn

_MOST_DOMAINS = 6
"""Domains that are tried, at most."""
_MOST_LOOKED_AT = 32
"""Domains, at most, that are emptied on trial to see whether the unit would start there at all."""
_MOST_PODS = 4096
"""Pods that are removed together, at most."""
_MOST_PUT_BACK = 24
"""Holders that are put back on trial in one domain, at most."""
_MOST_BUDGETS = 100


@dataclass(frozen=True, slots=True, eq=False)
class _Site:
    """A domain in which the unit is to start."""

    name: str
    level: str
    rows: BoolColumn


@dataclass(frozen=True, slots=True, eq=False)
class Vacancy:
    """A site, and the holders without which the unit would start there."""

    site: _Site
    holders: Sequence[Holder]

    @property
    def pods(self) -> list[PodInfo]:
        """All pods of the holders."""
        return [pod for holder in self.holders for pod in holder.pods]

    @property
    def cost(self) -> tuple[int, int]:
        """The number of GPUs, and of pods."""
        return sum(holder.gpus for holder in self.holders), len(self.pods)


def free_room(trial: Trial) -> Iterator[Remedy]:
    """Two remedies at most: the holders of the first domain whose holders could move elsewhere, and the holders of the
    domain in which the fewest GPUs would have to be freed.
    """
    found = list(vacancies(trial, holders_of(trial)))
    for vacancy in found:
        moved = list(_moved(trial, vacancy))
        if moved:
            yield from moved
            break
    if found:
        yield _freed(trial, min(found, key=lambda vacancy: vacancy.cost))


def vacancies(trial: Trial, holders: Sequence[Holder]) -> Iterator[Vacancy]:
    """For each of the most promising domains a few of the holders without which the unit would start there."""
    for site, numbers in _sites(trial, holders):
        chosen = _at_site(trial, site, [holders[number] for number in numbers])
        if chosen:
            yield Vacancy(site, chosen)


# Where the unit could start


def _sites(trial: Trial, holders: Sequence[Holder]) -> Iterator[tuple[_Site, list[int]]]:
    """The most promising domains, each with the numbers of its holders in the order in which they are removed."""
    level, ids = domains_of(trial)
    columns, now = HolderColumns(trial, holders), trial.capacity()
    domains = _in_order(trial, ids, columns, now)
    empty = _emptied(trial, columns, np.isin(ids, domains[:_MOST_LOOKED_AT]))
    needed = max(1, trial.progress.needed)
    most = sums(ids, empty)
    # Nodes on which no pod of the unit gets room are the last to be freed.
    rates = (columns.held + 1e-3) / np.maximum(np.maximum(0, empty - now), 1e-9)
    for domain in [each for each in domains[:_MOST_LOOKED_AT].tolist() if most[each] >= needed][:_MOST_DOMAINS]:
        rows = ids == domain
        inside = np.flatnonzero(rows[columns.rows])
        along = inside[np.lexsort((-columns.gpus[inside], rates[columns.rows[inside]]))]
        yield _site(trial, level, domain, rows), list(dict.fromkeys(columns.owners[along].tolist()))


def _site(trial: Trial, level: Domains | None, domain: int, rows: BoolColumn) -> _Site:
    if level is not None:
        return _Site(level.path(domain), level.level, rows)
    return _Site("", "", rows) if trial.group is not None else _Site(trial.cache.nodes.names[domain], "node", rows)


def _in_order(trial: Trial, ids: Int64Column, columns: HolderColumns, now: Int64Column) -> Int64Column:
    """The domains with nodes that might do, sorted: first by the number of pods that lack room, then by the amount that
    is lacking for one pod.
    """
    might = trial.might_do()
    lacks = np.maximum(0, max(1, trial.progress.needed) - sums(ids, now))
    order = np.lexsort((sums(ids, columns.held), sums(ids, _short(trial)), lacks))
    there: Int64Column = sums(ids, might.astype(np.int64))
    return order[there[order] > 0]


def _emptied(trial: Trial, columns: HolderColumns, rows: BoolColumn) -> Int64Column:
    """By row: for how many pods of the unit there would be room if the holders on these rows were gone."""
    gone = dict.fromkeys(columns.owners[rows[columns.rows]].tolist())
    left = _MOST_PODS
    with trial.cache.transaction() as tx:
        for number in gone:
            pods = columns.all[number].pods
            left -= len(pods)
            if left < 0:
                trial.is_cut = True
                break
            for pod in pods:
                tx.unplace(pod)
        return trial.capacity()


def _short(trial: Trial) -> Int64Column:
    """By row: how much room the node lacks for one pod, in thousandths of the pod's requests, summed over resources."""
    nodes, size = trial.cache.nodes, trial.cache.nodes.size
    total = np.zeros(size, dtype=np.int64)
    for resource, amount in trial.pods[0].cls.takes:
        total += (np.clip(amount - nodes.free[resource, :size], 0, amount) * 1000.0 / max(1, amount)).astype(np.int64)
    return total


# Which pods would have to end


def _at_site(trial: Trial, site: _Site, holders: list[Holder]) -> list[Holder]:
    """Holders without which the unit would start in the domain, each of them needed; [] if there are none."""
    fewest = first_that_does(len(holders), lambda number: _starts_without(trial, site, holders[: number + 1]))
    if fewest is None:
        return []
    chosen = holders[: fewest + 1]
    for holder in sorted(chosen, key=lambda each: (-each.gpus, -len(each.pods)))[:_MOST_PUT_BACK]:
        without = [each for each in chosen if each is not holder]
        if without and _starts_without(trial, site, without):
            chosen = without
    return chosen


def _starts_without(trial: Trial, site: _Site, holders: Sequence[Holder]) -> bool:
    if trial.is_over:
        return False
    with trial.cache.transaction() as tx:
        for holder in holders:
            for pod in holder.pods:
                tx.unplace(pod)
        return trial.starts(allowed=site.rows)


def _freed(trial: Trial, vacancy: Vacancy) -> Remedy:
    """The remedy that the holders of a vacancy end."""
    pods, site = vacancy.pods, vacancy.site
    names = [holder.name for holder in vacancy.holders]
    wanted = {resource for pod in trial.pods for resource in pod.cls.requests.real}
    amounts: dict[str, int] = {}
    for pod in pods:
        if site.rows[pod.row]:
            for resource in wanted & pod.cls.requests.real.keys():
                amounts[resource] = amounts.get(resource, 0) + pod.cls.requests.real[resource]
    gpus = sum(gpus_of(pod, trial.cache) for pod in pods if site.rows[pod.row])
    values: dict[str, Any] = {"level": site.level, "domain": site.name, "gpus": gpus, "amounts": amounts}
    if any(claim_names(pod) for pod in trial.pods):
        values["devices"] = _devices_of([pod for pod in pods if site.rows[pod.row]], trial.cache)
    sentence = f"{awaited(values)}, for example when {listed(names)} {'ends' if len(names) == 1 else 'end'}."
    return Remedy(
        RemedyKind.FREE_ROOM,
        sentence,
        {**values, "pods": [pod.key for pod in pods]},
        RemedyCost(len(pods), changed=len(pods)),
    )


def _devices_of(pods: Sequence[PodInfo], cache: Cache) -> int:
    """The number of devices that the ResourceClaims of some pods have."""
    claims = {(pod.namespace, name) for pod in pods for name in claim_names(pod)}
    found: list[model.ResourceClaim | None] = [cache.store(RESOURCE_CLAIMS).get(name, space) for space, name in claims]
    return sum(len(claim.status.results) for claim in found if claim is not None)


def awaited(values: Mapping[str, Any]) -> str:
    """The beginning of the sentence of a FreeRoom with these values, which names no pod."""
    gpus, domain = values["gpus"], values["domain"]
    devices = values.get("devices", 0)
    what = many(gpus, "GPU") if gpus else many(devices, "device") if devices else _other(values["amounts"])
    where = f" of {values['level']} {domain}" if domain else ""
    return f"Wait until {what}{where} {'comes' if (gpus or devices) == 1 else 'come'} free"


def _other(amounts: Mapping[str, int]) -> str:
    if requests.CPU in amounts:
        return f"{amounts[requests.CPU] / 1000:g} CPUs"
    if requests.MEMORY in amounts:
        return f"{amounts[requests.MEMORY] / 2**30:g} GiB of memory"
    return "the places of pods"


# Which pods could move instead


def _moved(trial: Trial, vacancy: Vacancy) -> Iterator[Remedy]:
    """The remedy that the holders move to other nodes, if there is room for all of them and the unit then starts."""
    pods, site = vacancy.pods, vacancy.site
    if not all(_may_move(trial, pod) for pod in pods) or not _is_within_budgets(trial, pods):
        return
    steps: list[dict[str, str]] = []
    names = trial.cache.nodes.names
    outside = trial.cache.nodes.alive[: trial.cache.nodes.size] & ~site.rows
    with trial.cache.transaction() as tx:
        for holder in vacancy.holders:
            sources = [names[pod.row] for pod in holder.pods]
            for pod in holder.pods:
                tx.unplace(pod)
            made = [pod.anew() for pod in holder.pods]
            where = trial.elsewhere(made, outside)
            if where is None or len(where) < len(made):
                return
            for pod, source in zip(made, sources, strict=True):
                tx.place(pod, where[pod.uid])
                steps.append({"pod": pod.key, "from": source, "to": names[where[pod.uid]]})
        if not trial.starts(allowed=site.rows):
            return
    said = [f"{step['pod']} from {step['from']} to {step['to']}" for step in steps]
    sentence = f"Move {'1 pod' if len(steps) == 1 else f'{len(steps)} pods'}: {listed(said)}."
    yield Remedy(RemedyKind.MOVE_PODS, sentence, {"moves": steps}, RemedyCost(len(steps), changed=len(steps)))


def _may_move(trial: Trial, pod: PodInfo) -> bool:
    """Whether a controller would create the pod again, and this profile would place it."""
    return pod.controller is not None and pod.scheduler_name == trial.runtime.name and not pod.terminating


def _is_within_budgets(trial: Trial, pods: Sequence[PodInfo]) -> bool:
    """Whether all PodDisruptionBudgets allow that these pods are evicted now."""
    budgets: list[model.PodDisruptionBudget] = list(trial.cache.store(PDBS))
    namespaces = {pod.namespace for pod in pods}
    mine = [budget for budget in budgets if budget.metadata.namespace in namespaces][:_MOST_BUDGETS]
    for budget in mine:
        try:
            selector = compile_selector(budget.spec.selector)
        except InvalidObject:
            return False
        covered = sum(pod.namespace == budget.metadata.namespace and selector.matches(pod.labels) for pod in pods)
        if covered > budget.status.disruptions_allowed:
            return False
    return True
