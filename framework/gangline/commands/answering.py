"""Why pods of a live cluster are on their nodes, or wait: past decisions, and decisions as they would be now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from gangline.api.plugin import Clock
from gangline.api.pod_group import Problem
from gangline.clock import SystemClock
from gangline.commands.judging import Judged, judge
from gangline.commands.keeping import keep_again, room_kept_for
from gangline.commands.running import Judges
from gangline.deciding.group_decisions import GroupDecision, GroupRejection
from gangline.deciding.group_search import decide_group
from gangline.errors import ConfigError, Forbidden, NotFound
from gangline.explain.report import Report, explain
from gangline.explain.targets import SelectedPods, Target
from gangline.kube.interface import Client
from gangline.kube.resources import GPU_CLAIMS, PODS
from gangline.overview.claim_use import ClaimUse, claims_of
from gangline.overview.summary import with_times
from gangline.plurals import listed
from gangline.profile.runtime import Runtime
from gangline.queueing.units import Unit
from gangline.remedies import Remedies, find_remedies
from gangline.remedies.finding import Tell, tell_nobody
from gangline.state.pods import PodInfo
from gangline.wire.custom_resources import ALLOCATED, CLAIM


@dataclass(frozen=True, slots=True)
class Placed:
    """A pod that has a node."""

    pod: str
    node: str
    devices: str
    """The ids of the pod's devices, "0,1"; "" for none."""
    decision: Mapping[str, Any] | None
    """The decision as the running scheduler remembers it; None if it remembers none, or does not answer."""
    was_asked: bool
    """Whether a running scheduler was asked for the decision and answered."""


class GangReport(msgspec.Struct, frozen=True, rename="camel"):
    """The decision on a gang now, as a whole."""

    name: str
    dialect: str
    min_member: int
    placed: dict[str, str]
    """The nodes of members that have a node."""
    places: dict[str, str]
    """The nodes that the other members would get; empty if there is no room for the gang."""
    placement: str
    score: float
    message: str
    """Why the gang waits; "" if it would be placed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer about a pod or workload."""

    about: str
    judged_by: str
    """The source of the profile."""
    placed: tuple[Placed, ...]
    gang: GangReport | None
    report: Report | None
    """The verdicts for the first waiting pod; if no pod waits, for the pod as if it had no node."""
    notes: tuple[str, ...]
    claims: tuple[ClaimUse, ...] = ()
    """The ResourceClaims of the pod that `report` is about."""
    remedies: Remedies | None = None
    """What would let the waiting pod, or its gang, start; None if none of the pods waits."""


async def answer(
    client: Client,
    target: Target | SelectedPods,
    judges: Judges,
    clock: Clock | None = None,
    where: str = "",
    unasked: str = "",
) -> Answer:
    """Look at the cluster once; nothing is changed. Raises ApiError, and ConfigError if there is no such pod.

    `where` names the cluster in the ConfigError, and `unasked` says why a running scheduler could not be asked.
    """
    clock = clock or SystemClock()
    judged = await judge(client, judges.configuration, clock)
    everywhere = [*judged.cluster.pods.values(), *judged.pending]
    pods = target.pods(everywhere, judged.cluster)
    if not pods:
        raise ConfigError(where, str(target), await _absent(client, target, everywhere))
    waiting = [pod for pod in pods if not pod.node_name]
    subject = (waiting or pods)[0]
    runtime = judged.runtimes.get(judges.profile or subject.scheduler_name)
    placed = tuple([await _placed(pod, judges) for pod in pods if pod.node_name])
    found = Answer(
        about=str(target),
        judged_by=judges.source,
        placed=placed,
        gang=None,
        report=None,
        notes=(*await _notes(client, subject, judges), *_unknown(placed, judges, unasked)),
        claims=tuple(claims_of(subject, judged.cluster)),
    )
    if runtime is None:
        return found
    kept = keep_again(judged, _unit(judged, runtime, subject, clock).members if waiting else ())
    found = replace(found, notes=(*found.notes, *kept), report=_report(judged, runtime, subject))
    if not waiting:
        return found
    found = replace(found, remedies=remedies_of(judged, runtime, subject, clock))
    return replace(found, gang=gang_of(judged, runtime, subject, clock))


async def _absent(client: Client, target: Target | SelectedPods, everywhere: Iterable[PodInfo]) -> str:
    if isinstance(target, SelectedPods):
        return "none of them runs or waits"
    if target.kind != "Pod":
        return "no pod of it runs or waits; -n names another namespace, `gangline status -A` shows gangs"
    try:
        pod = await client.get(PODS, target.name, namespace=target.namespace)
    except NotFound:
        others = sorted(pod.key for pod in everywhere if pod.name == target.name)
        if others:
            return f"there is no such pod; there is {listed(others)}"
        return "there is no such pod; -n names another namespace, `gangline status -A` shows the pods that wait"
    if pod.status.phase in ("Succeeded", "Failed"):
        return f"has ended on node {pod.spec.node_name or '-'}: {pod.status.phase}"
    return "cannot be used as it is: the scheduler leaves it out, and an event on it says why"


async def _placed(pod: PodInfo, judges: Judges) -> Placed:
    running = judges.running
    decision = await running.decision(pod.uid) if running is not None else None
    was_asked = running is not None and bool(running.endpoints)
    return Placed(pod.key, pod.node_name, pod.annotations.get(ALLOCATED, ""), decision, was_asked)


def _unknown(placed: Sequence[Placed], judges: Judges, unasked: str) -> Sequence[str]:
    """Why decisions are not known, if one is not and there is a reason."""
    why = unasked or (judges.running.refusal if judges.running is not None else "")
    if not why or all(pod.decision is not None for pod in placed):
        return ()
    return (f"decisions that a running scheduler remembers are not known: {why}",)


async def _notes(client: Client, pod: PodInfo, judges: Judges) -> tuple[str, ...]:
    """Reasons why the pod waits or cannot be judged that have nothing to do with nodes."""
    notes = []
    running, name = judges.running, pod.scheduler_name
    if running is not None and name not in running.serves:
        notes.append(f"{running.where} does not serve the schedulerName {name}: it serves {', '.join(running.serves)}")
    elif not judges.profile and name not in judges.serves:
        notes.append(f"nobody is known to serve the schedulerName {name}: no profile of {judges.source} does")
    if not judges.profile and name not in judges.serves:
        notes.append("where the pod would go cannot be said: --profile or --config names who is to judge it")
    if pod.gates:
        notes.append(f"the pod is held by its scheduling gates: {', '.join(pod.gates)}")
    claim = pod.annotations.get(CLAIM)
    if claim and not await _exists(client, pod.namespace, claim):
        notes.append(f"the pod names the GpuClaim {pod.namespace}/{claim}, and there is none")
    return tuple(notes)


async def _exists(client: Client, namespace: str, claim: str) -> bool:
    try:
        await client.get(GPU_CLAIMS, claim, namespace=namespace)
    except NotFound:
        return False
    except Forbidden:  # the user may lack the right to read it
        return True
    return True


def _report(judged: Judged, runtime: Runtime, pod: PodInfo) -> Report:
    """The verdict of each node on this pod alone; a pod with a node is removed first, and put back afterwards."""
    if not pod.node_name:
        return explain(runtime, pod)
    judged.cluster.remove_pod(pod.uid)
    return explain(runtime, pod.anew())


def _unit(judged: Judged, runtime: Runtime, pod: PodInfo, clock: Clock) -> Unit:
    """The unit of a waiting pod."""
    key = runtime.group_key(pod)
    if not key:
        return Unit([pod], added=clock.monotonic())
    mine = [other for other in judged.pending if runtime.group_key(other) == key]
    return judged.groups.get(key) or Unit(mine, added=clock.monotonic(), group=key)


def remedies_of(judged: Judged, runtime: Runtime, pod: PodInfo, clock: Clock, tell: Tell = tell_nobody) -> Remedies:
    """What would let the unit of a waiting pod start; the listed cluster is as before."""
    unit = _unit(judged, runtime, pod, clock)
    return find_remedies(unit, runtime, judged.cluster, runtime.handle.nominated(), clock.monotonic(), tell)


def gang_of(judged: Judged, runtime: Runtime, pod: PodInfo, clock: Clock) -> GangReport | None:
    """The decision on the whole gang of a pod; afterwards the listed cluster must not be used again."""
    membership = runtime.handle.group_of(pod)
    if membership is None:
        return None
    if isinstance(membership, Problem):
        return GangReport(membership.key.partition(":")[2], "", 0, {}, {}, "", 0.0, membership.message)
    group = membership.group
    placed = {member.key: member.node_name for member in runtime.handle.members(group.key)}
    report = GangReport(f"{group.namespace}/{group.name}", group.dialect, group.min_member, placed, {}, "", 0.0, "")
    unit = _unit(judged, runtime, pod, clock)
    held = runtime.admit(unit.members)
    if not held.is_success:
        return msgspec.structs.replace(report, message=held.message)
    nominations = runtime.handle.nominated()
    outcome: GroupDecision | GroupRejection = decide_group(
        unit, runtime, judged.cluster, nominations, clock.monotonic()
    )
    if isinstance(outcome, GroupRejection):
        return msgspec.structs.replace(report, message=_as_told(outcome.message, unit))
    places = {member.pod.key: member.node for member in outcome.members}
    return msgspec.structs.replace(
        report, places=places, placement=outcome.placement, score=outcome.score, message=outcome.why_left
    )


def _as_told(message: str, unit: Unit) -> str:
    """The message on a gang for which room is kept: since when and until when, as the running scheduler says."""
    room = next((room for pod in unit.members if (room := room_kept_for(pod)) is not None), None)
    return message if room is None else with_times(message, room)
