"""Deciding gangs whose members have a ResourceClaim each, without an API server: which nodes, and which devices.

    python benchmarks/claimed_gangs.py [--nodes 5000] [--members 512] [--runs 7] [--profile gpu-scheduler]

Half of the nodes' devices are taken at random. The claims of the members have the spec of one template, so that the
first gang makes the columns which the later ones use; it is not counted. The gang has to be in one zone of 2,500 nodes.
The time is that of the decision, until all members are assumed with their devices.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Sequence

import click
import msgspec
from rich.console import Console
from rich.table import Table

import gangs
from claims import DRIVER, PER_NODE, claim, gpu_slice, gpus, taken
from gangline import config, model
from gangline.deciding.group_decisions import GroupDecision
from gangline.deciding.group_search import decide_group
from gangline.deciding.scheduling import give_back
from gangline.groups import Groups
from gangline.kube.resources import DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES, SCHEDULER_PLUGINS_POD_GROUPS
from gangline.process.memory import keep_memory, settle_memory
from gangline.profile.assembly import judging_runtimes
from gangline.profile.runtime import Runtime
from gangline.queueing.units import Unit
from gangline.state.cache import Cache

DEFAULT = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default
  plugins: {multiPoint: {enabled: [{name: GangPermit}, {name: TopologyPlacement}]}}
"""
"""kube-scheduler's plugins and those that gangs need."""


def cluster(nodes: int) -> Cache:
    """Nodes of 8 devices in zones; claims have half of the devices."""
    cache = gangs.cluster(nodes, 0.0)
    for node in range(nodes):
        cache.store(RESOURCE_SLICES).upsert(gpu_slice(node))
    spec = {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]}
    gpu = msgspec.convert({"metadata": {"name": "gpu"}, "spec": spec}, model.DeviceClass)
    cache.store(DEVICE_CLASSES).upsert(gpu)
    chance = random.Random(1)
    held = [(node, at) for node in range(nodes) for at in chance.sample(range(PER_NODE), PER_NODE // 2)]
    for version, (node, at) in enumerate(held, start=1):
        name = f"held-{node}-{at}"
        metadata = model.ObjectMeta(name, "default", uid=name, resource_version=str(version))
        status = model.ResourceClaimStatus(allocation=taken(node, at))
        cache.store(RESOURCE_CLAIMS).upsert(model.ResourceClaim(metadata, claim(gpus(1)).spec, status))
    return cache


def gang(cache: Cache, runtime: Runtime, number: int, members: int) -> Unit:
    """A gang as the queue has it: its groups have been read, and kube-controller-manager has made the claims."""
    name = f"gang-{number}"
    meta = model.ObjectMeta(name, "default", uid=name, annotations={gangs.REQUIRED: "zone"})
    cache.store(SCHEDULER_PLUGINS_POD_GROUPS).upsert(model.PodGroup(meta, model.PodGroupSpec(min_member=members)))
    pods = []
    for at in range(members):
        pod = f"{name}-{at}"
        owner = model.OwnerReference(api_version="v1", kind="Pod", name=pod, uid=pod, controller=True)
        version = str(10**6 + number * members + at)
        made = model.ObjectMeta(pod, "default", uid=f"{pod}-gpu", owner_references=[owner], resource_version=version)
        cache.store(RESOURCE_CLAIMS).upsert(model.ResourceClaim(made, claim(gpus(1)).spec))
        pods.append(cache.record(member(name, pod, runtime.name)))
    (key,) = {runtime.group_key(pod) for pod in pods}
    return Unit(pods, added=gangs.NOW, group=key)


def member(group: str, name: str, profile: str) -> model.Pod:
    """A pod with a claim that was made from a template."""
    requests: model.Resources = {"cpu": "1", "memory": "4Gi"}
    container = model.Container(name="main", image="train:1", resources=model.ResourceRequirements(requests=requests))
    return model.Pod(
        metadata=model.ObjectMeta(name, "default", uid=name, labels={gangs.GROUP: group}),
        spec=model.PodSpec(
            containers=[container],
            resource_claims=[model.PodResourceClaim("gpu", None, "gpus")],
            scheduler_name=profile,
        ),
        status=model.PodStatus(resource_claim_statuses=[model.PodResourceClaimStatus("gpu", name)]),
    )


def runtime_for(profile: str, cache: Cache) -> Runtime:
    """A packaged profile, or kube-scheduler's plugins with those that gangs need."""
    if profile != "default":
        return gangs.runtime_for(profile, cache)
    loaded = config.load(DEFAULT, "default")
    return judging_runtimes(loaded, cache, ties=random.Random(1), grouping=Groups(cache))["default"]


def measure(cache: Cache, runtime: Runtime, number: int, members: int) -> float:
    """Milliseconds of one decision; it is given back."""
    unit = gang(cache, runtime, number, members)
    gc.collect()
    start = time.perf_counter()
    decided = decide_group(unit, runtime, cache, {}, gangs.NOW)
    milliseconds = 1e3 * (time.perf_counter() - start)
    assert isinstance(decided, GroupDecision), decided.message
    assert len(decided.members) == members
    for each in decided.members:
        give_back(runtime, cache, each.cycle, each.pod, each.node)
    return milliseconds


@click.command()
@click.option("--nodes", default=5000, show_default=True)
@click.option("--members", default=512, show_default=True)
@click.option("--runs", default=7, show_default=True)
@click.option("--profile", "profiles", multiple=True, default=("default", "gpu-scheduler"), show_default=True)
def main(nodes: int, members: int, runs: int, profiles: Sequence[str]) -> None:
    """Measure and print."""
    keep_memory()  # as `gangline run` does
    table = Table("profile", "median ms", "shortest ms", "longest ms", "first gang ms", box=None)
    for profile in profiles:
        cache = cluster(nodes)
        runtime = runtime_for(profile, cache)
        settle_memory()
        first, *times = [measure(cache, runtime, number, members) for number in range(runs + 1)]
        figures = (statistics.median(times), min(times), max(times), first)
        table.add_row(profile, *(f"{figure:.1f}" for figure in figures))
        gc.unfreeze()
    console = Console(width=100)
    console.print(
        f"a gang of {members} with a claim each, over {nodes} nodes of {PER_NODE} devices, half of them taken"
    )
    console.print(table)


if __name__ == "__main__":
    main()
