"""A fragmented cluster makes room for a gang: planned, shown, carried out, and nothing that is protected is touched."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gangline_e2e import gangs
from gangline_e2e.api import Api, connect
from gangline_e2e.gangs import GANG, LEAF, PROFILE, SPINE, Rule
from gangline_e2e.harness import ControlPlane, Options
from gangline_e2e.placements import faults
from gangline_e2e.scheduler import Gangline, configuration, profile
from gangline_e2e.workloads import Manifest, Manifests, gpu_pod, is_bound

StartControlPlane = Callable[[Options], ControlPlane]
StartGangline = Callable[..., Gangline]
NODES = "/api/v1/nodes"
OPTIONS = Options(controller_manager=True, controller_manager_args=("--kube-api-qps=500", "--kube-api-burst=1000"))
MEMBERS = 64
CPU = "16"
"""Of each small pod: enough of a node's for the scheduler to spread them."""
INTERVAL = "gangline.dev/checkpoint-interval"
PROTECTED = "example.com/protected"
"""Set on pods that are not to be moved, with the reason; only the test reads it."""

pytestmark = pytest.mark.timeout(300)


@dataclass(slots=True)
class Mix:
    """Small work of many kinds, owned by controllers that make pods anew."""

    objects: Manifests = field(default_factory=list)
    pods: int = 0

    def add_replica_set(self, name: str, replicas: int, gpus: int, why: str) -> None:
        """Pods on their own."""
        labels, notes = _marks(name, why)
        pod = gpu_pod(name, gpus=gpus, cpu=CPU, scheduler_name=PROFILE, labels=labels, annotations=notes)
        spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": _template(pod)}
        self.objects.append({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name}, "spec": spec})
        if why == "budget":
            self.objects.append(_budget(name, replicas))
        self.pods += replicas

    def add_job(self, name: str, size: int, gpus: int, why: str) -> None:
        """A gang."""
        labels, notes = _marks(name, why)
        pod = gpu_pod(name, gpus=gpus, cpu=CPU, scheduler_name=PROFILE, labels=labels, annotations=notes)
        pod["spec"]["restartPolicy"] = "Never"
        spec = {
            "parallelism": size,
            "completions": size,
            "completionMode": "Indexed",
            "backoffLimit": 1000,
            "template": _template(pod),
        }
        self.objects.append({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec})
        self.pods += size


async def test_a_gang_that_cannot_start_does_so_once_small_work_has_been_moved_aside(
    start_control_plane: StartControlPlane, start_gangline: StartGangline
) -> None:
    plane = start_control_plane(OPTIONS)
    async with connect(plane.kubeconfig) as api:
        await api.create_many(gangs.fabric(spines=5, leaves=10, nodes=10))
        scheduler = start_gangline(plane.kubeconfig, _configuration())
        command = Defrag(scheduler.config_file, plane.kubeconfig)
        mix = _mix()
        await api.create_many(mix.objects)
        await api.wait_for(api.pods, _is_running, mix.pods, timeout_s=60)
        await _budgets_are_known(api, mix)
        big = gangs.kueue("big", MEMBERS, Rule(SPINE), 8)
        await api.create_many(big.pods)
        await api.until(lambda: _waits(api), "the gang is told that it does not fit")
        before = {pod["metadata"]["name"]: pod for pod in await api.list(api.pods)}

        plan = json.loads(await command("plan", "--group", "default/big", "--max-moves", "16", "-o", "json"))
        untouched = await api.list(api.pods)
        started = time.monotonic()
        said = await command("apply", "--group", "default/big", "--max-moves", "16", "--yes")
        seconds = time.monotonic() - started
        members = await api.wait_for(api.pods, _is_bound_member, MEMBERS)
        again = await command("plan")
        still = await command("apply", "--yes")
        bound = await api.until(lambda: _all_bound(api, mix.pods + MEMBERS), "all pods are bound, and none is leaving")
        after = {pod["metadata"]["name"]: pod for pod in bound}
        nodes = await api.list(NODES)
        odd = next(name for name, pod in after.items() if not _is_member(pod) and not _protection(pod))
        await api.merge(f"{api.pods}/{odd}", {"metadata": {"annotations": {INTERVAL: "-5m"}}})
        beside_an_odd_one = await command("plan", "--free-leaves", "50")

    print(f"{len(plan['moves'])} moves, {plan['cost']:,.0f} GPU-seconds, {seconds:.1f} s")
    assert {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in untouched} == _nodes_of(before)
    planned = {step["name"] for move in plan["moves"] for step in move["steps"]}
    assert len(planned) > 20 and not any(_protection(before[name]) for name in planned)
    assert {_protection(pod) for pod in before.values()} == {"", "never-move", "min-runtime", "budget"}
    kept = {name: pod for name, pod in before.items() if is_bound(pod) and _protection(pod)}
    assert _whereabouts(kept) == _whereabouts({name: after[name] for name in kept})
    assert len(_spines(members, nodes)) == 1
    assert faults(list(after.values()), nodes) == []
    assert "done:" in said
    assert "no move is needed" in again and "no move is needed" in still
    assert "50: no moves free so many" in beside_an_odd_one


class Defrag:
    """`gangline defrag` as a program of its own."""

    def __init__(self, config: Path, kubeconfig: Path) -> None:
        self._options = ("--config", str(config), "--kubeconfig", str(kubeconfig))

    async def __call__(self, verb: str, *options: str) -> str:
        """What it prints; it has to succeed."""
        words = (sys.executable, "-m", "gangline", "defrag", verb, *self._options, *options)
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*words, stdout=pipe, stderr=pipe)
        out, errors = await process.communicate()
        assert process.returncode == 0, errors.decode() + out.decode()
        return out.decode()


def _mix() -> Mix:
    """About 500 pods; a fifth of the work says, in three ways, that it is not to be moved."""
    chance, mix = random.Random(6), Mix()
    reasons = ["never-move", "min-runtime", "budget", *[""] * 12]
    for number in range(165):
        mix.add_replica_set(f"small-{number}", chance.randint(1, 4), chance.choice((1, 1, 2)), chance.choice(reasons))
    for number in range(40):
        mix.add_job(
            f"gang-{number}", chance.randint(2, 4), chance.choice((1, 2, 4)), chance.choice(reasons[:2] + [""] * 8)
        )
    return mix


def _marks(name: str, why: str) -> tuple[dict[str, str], dict[str, str]]:
    notes = {PROTECTED: why} if why else {}
    if why == "never-move":
        notes["gangline.dev/never-move"] = "true"
    elif why == "min-runtime":
        notes["gangline.dev/min-runtime"] = "2h"
    else:
        notes[INTERVAL] = "10m"
    return {"app": name}, notes


def _template(pod: Manifest) -> Manifest:
    metadata = {key: pod["metadata"][key] for key in ("labels", "annotations")}
    return {"metadata": metadata, "spec": pod["spec"]}


def _budget(name: str, least: int) -> Manifest:
    """A disruption budget that lets nobody go."""
    spec = {"minAvailable": least, "selector": {"matchLabels": {"app": name}}}
    metadata = {"name": name}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec}


def _configuration() -> Manifest:
    """Plugins of kube-scheduler, which spread pods over all nodes, and those that place gangs and keep room."""
    enabled = [{"name": name} for name in ("GangPermit", "TopologyPlacement", "Defragmentation")]
    levels = [{"name": "spine", "nodeLabel": SPINE}, {"name": "leaf", "nodeLabel": LEAF}]
    return configuration(profile(PROFILE, enabled=enabled, args={"TopologyPlacement": {"levels": levels}}))


async def _budgets_are_known(api: Api, mix: Mix) -> None:
    """Wait until the controller has counted the pods of every budget."""
    path = f"/apis/policy/v1/namespaces/{api.namespace}/poddisruptionbudgets"
    number = sum(each["kind"] == "PodDisruptionBudget" for each in mix.objects)
    await api.wait_for(path, _counts, number)


def _counts(budget: Manifest) -> bool:
    status = budget.get("status", {})
    return bool(status.get("expectedPods")) and status["currentHealthy"] == status["expectedPods"]


async def _all_bound(api: Api, number: int) -> Manifests | None:
    """All pods, if there are so many, all have nodes, and none is on its way out."""
    pods = await api.list(api.pods)
    stay = [pod for pod in pods if is_bound(pod) and "deletionTimestamp" not in pod["metadata"]]
    return pods if len(stay) == len(pods) == number else None


async def _waits(api: Api) -> bool:
    pods = [pod for pod in await api.list(api.pods) if _is_member(pod)]
    return all(any("no spine of 5 holds" in each.get("message", "") for each in _conditions(pod)) for pod in pods)


def _conditions(pod: Manifest) -> Iterator[Manifest]:
    yield from pod["status"].get("conditions") or []


def _is_member(pod: Manifest) -> bool:
    return bool(pod["metadata"].get("labels", {}).get(GANG) == "big")


def _is_bound_member(pod: Manifest) -> bool:
    return _is_member(pod) and is_bound(pod)


def _is_running(pod: Manifest) -> bool:
    return bool(pod["status"].get("phase") == "Running" and pod["status"].get("startTime"))


def _protection(pod: Manifest) -> str:
    text: str = pod["metadata"].get("annotations", {}).get(PROTECTED, "")
    return text


def _nodes_of(pods: dict[str, Manifest]) -> dict[str, str | None]:
    return {name: pod["spec"].get("nodeName") for name, pod in pods.items()}


def _whereabouts(pods: dict[str, Manifest]) -> dict[str, tuple[str, str]]:
    return {name: (pod["metadata"]["uid"], pod["spec"]["nodeName"]) for name, pod in pods.items()}


def _spines(pods: Manifests, nodes: Manifests) -> set[str]:
    labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in nodes}
    return {labels[pod["spec"]["nodeName"]][SPINE] for pod in pods}
