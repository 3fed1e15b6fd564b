"""How many partitions of GPUs are served: MIG on nodes of 8 GPUs, in the order `upstream` and in the order `best`.

    python benchmarks/partitions.py [--nodes 8] [--load 0.95] [--mix 30,10,10,40,10] [--arrivals 4000] [--seeds 1,2,3]

Pods with a claim for one partition come at random and stay for a random time; one that finds no place is lost. Each is
decided by the framework: cache, compiled profile, filters, scores, reserve. See benchmarks/README.md.
"""

from __future__ import annotations

import heapq
import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.table import Table

from gangline import config, model
from gangline.deciding.scheduling import Decision, decide, give_back
from gangline.kube.resources import DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES
from gangline.profile.assembly import judging_runtimes
from gangline.profile.runtime import Runtime
from gangline.queueing.units import Unit
from gangline.state.cache import Cache
from gangline_agent import partitions

DRIVER = "gpu.example.com"
PRODUCT = "NVIDIA H100 80GB HBM3"
GPUS = 8
"""GPUs of a node."""
PROFILES = {"1g.10gb": 1, "2g.20gb": 2, "3g.40gb": 3, "4g.40gb": 4, "7g.80gb": 7}
"""The profiles that pods ask for, and their compute slices; a GPU has seven."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A pod that comes."""

    time: float
    profile: str
    stays: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one run."""

    served: Counter[str]
    """How many partitions were served, by profile."""
    arrivals: int
    seconds: float
    """Seconds for all decisions."""

    @property
    def slices(self) -> int:
        """Compute slices of all partitions that were served."""
        return sum(PROFILES[profile] * number for profile, number in self.served.items())


def arrivals(seed: int, number: int, gpus: int, load: float, mix: Sequence[int]) -> Iterator[Arrival]:
    """Pods at random times; the pods that run at the same time ask on average for `load` times all compute slices."""
    chance = random.Random(seed)
    names = list(PROFILES)
    mean = sum(PROFILES[name] * share for name, share in zip(names, mix, strict=True)) / sum(mix)
    now = 0.0
    for _ in range(number):
        now += chance.expovariate(load * 7 * gpus / mean)
        yield Arrival(now, chance.choices(names, mix)[0], chance.expovariate(1.0))


def offer(cache: Cache, name: str) -> None:
    """The driver of a node offers all partitions of its GPUs, as they share slices and multiprocessors."""
    parts = [each for each in partitions.of_product(PRODUCT) if each.profile in PROFILES]
    pool = model.ResourcePool(name, resource_slice_count=1 + GPUS)
    sets = [model.CounterSet(f"gpu-{gpu}", partitions.counters(parts)) for gpu in range(GPUS)]
    specs = [model.ResourceSliceSpec(DRIVER, pool, name, shared_counters=sets)]
    for gpu in range(GPUS):
        devices = [
            model.Device(
                f"gpu-{gpu}-{each.name}",
                attributes={"profile": model.DeviceAttribute(string=each.profile)},
                capacity={"memory": model.DeviceCapacity(f"{each.memory_mib}Mi")},
                consumes_counters=[partitions.consumed(f"gpu-{gpu}", partitions.amounts(each))],
            )
            for each in parts
        ]
        specs.append(model.ResourceSliceSpec(DRIVER, pool, name, devices=devices))
    for number, spec in enumerate(specs):
        cache.store(RESOURCE_SLICES).upsert(model.ResourceSlice(model.ObjectMeta(f"{name}-{number}"), spec))


def cluster(nodes: int) -> Cache:
    """Nodes that offer partitions, and a class for each profile."""
    cache = Cache()
    for profile in PROFILES:
        expression = f'device.attributes["{DRIVER}"].profile == "{profile}"'
        spec = model.DeviceClassSpec([model.DeviceSelector(model.CelDeviceSelector(expression))])
        cache.store(DEVICE_CLASSES).upsert(model.DeviceClass(model.ObjectMeta(profile), spec))
    for number in range(nodes):
        name = f"node-{number:03}"
        amounts: model.Resources = {"cpu": f"{GPUS * 16}", "memory": "2Ti", "pods": 250}
        cache.upsert_node(model.Node(model.ObjectMeta(name), status=model.NodeStatus(allocatable=amounts)))
        offer(cache, name)
    return cache


def make_pod(cache: Cache, number: int, profile: str) -> model.Pod:
    """A pod with a claim for one partition, and CPU and memory to go with it."""
    name, uid = f"pod-{number}", f"{number}"
    owner = model.OwnerReference("Pod", name, uid, "v1", controller=True)
    request = model.ExactDeviceRequest(profile, allocation_mode="ExactCount", count=1)
    spec = model.ResourceClaimSpec(model.DeviceClaim([model.DeviceRequest("gpu", request)]))
    metadata = model.ObjectMeta(name, "default", f"claim-{number}", owner_references=[owner])
    cache.store(RESOURCE_CLAIMS).upsert(model.ResourceClaim(metadata, spec))
    amounts: model.Resources = {"cpu": f"{2 * PROFILES[profile]}", "memory": f"{16 * PROFILES[profile]}Gi"}
    container = model.Container(name="main", resources=model.ResourceRequirements(requests=amounts))
    return model.Pod(
        model.ObjectMeta(name, "default", uid),
        model.PodSpec(containers=[container], resource_claims=[model.PodResourceClaim("gpu", name)]),
    )


def profile_of(order: str, scores: Sequence[tuple[str, int]] | None) -> dict[str, Any]:
    """A profile with the filters that the trace needs; with kube-scheduler's own plugins if no scores are given."""
    args = [{"name": "DynamicResources", "args": {"allocationOrder": order}}]
    found: dict[str, Any] = {"schedulerName": "default-scheduler", "pluginConfig": args}
    if scores is not None:
        names = ["PrioritySort", "DynamicResources", "NodeResourcesFit", "DefaultBinder"]
        found["plugins"] = {
            "multiPoint": {"disabled": [{"name": "*"}], "enabled": [{"name": name} for name in names]},
            "score": {
                "disabled": [{"name": "*"}],
                "enabled": [{"name": name, "weight": weight} for name, weight in scores],
            },
        }
    return found


POLICIES = {
    "kube-scheduler's plugins": profile_of("upstream", None),
    "first node, first device": profile_of("upstream", ()),
    "first node, best device": profile_of("best", ()),
    "best": profile_of("best", (("DynamicResources", 9_000),)),
    "best, AntiFragmentation": profile_of("best", (("DynamicResources", 9_000), ("AntiFragmentation", 10_000))),
}


def runtime_of(cache: Cache, profile: dict[str, Any], seed: int) -> Runtime:
    """A profile that decides on the cache."""
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }
    loaded = config.load(msgspec.yaml.encode(document).decode(), "partitions")
    ties = random.Random(seed) if "plugins" not in profile else None
    return judging_runtimes(loaded, cache, ties=ties)["default-scheduler"]


def play(trace: Sequence[Arrival], nodes: int, profile: dict[str, Any], seed: int) -> Outcome:
    """All arrivals and departures in the order of time."""
    cache = cluster(nodes)
    runtime = runtime_of(cache, profile, seed)
    leaving: list[tuple[float, int, Decision]] = []
    served: Counter[str] = Counter()
    seconds = 0.0
    for number, each in enumerate(trace):
        while leaving and leaving[0][0] <= each.time:
            _, _, ended = heapq.heappop(leaving)
            give_back(runtime, cache, ended.cycle, ended.pod, ended.node)
            cache.store(RESOURCE_CLAIMS).remove("default", ended.pod.name)
        record = cache.record(make_pod(cache, number, each.profile))
        start = time.perf_counter()
        runtime.enqueued(record)
        decision = decide(Unit([record], added=0.0), runtime, cache, {})
        seconds += time.perf_counter() - start
        if isinstance(decision, Decision):
            served[each.profile] += 1
            heapq.heappush(leaving, (each.time + each.stays, number, decision))
        else:
            cache.store(RESOURCE_CLAIMS).remove("default", record.name)
    return Outcome(served, len(trace), seconds)


def numbers(text: str) -> list[int]:
    """The numbers in an option, separated by commas."""
    return [int(part) for part in text.split(",")]


@click.command()
@click.option("--nodes", default=8, show_default=True)
@click.option("--load", "loads", multiple=True, type=float, default=(0.95,), show_default=True)
@click.option(
    "--mix",
    "mixes",
    multiple=True,
    default=("30,10,10,40,10",),
    help=f"The shares of {', '.join(PROFILES)} in all pods.",
)
@click.option("--arrivals", "number", default=4000, show_default=True)
@click.option("--seeds", default="1,2,3", show_default=True)
def main(nodes: int, loads: Sequence[float], mixes: Sequence[str], number: int, seeds: str) -> None:
    """Play and print."""
    for mix, load in product(mixes, loads):
        outcomes: dict[str, list[Outcome]] = {name: [] for name in POLICIES}
        for seed in numbers(seeds):
            trace = list(arrivals(seed, number, nodes * GPUS, load, numbers(mix)))
            for name, profile in POLICIES.items():
                outcomes[name].append(play(trace, nodes, profile, seed))
        show(f"load {load:g}, mix {mix}, {nodes} nodes, {number} arrivals", outcomes)


def show(title: str, outcomes: dict[str, list[Outcome]]) -> None:
    """Print a table of the policies."""
    table = Table("policy", "served", *PROFILES, "slices", "to the 1st", "to the 2nd", "ms", box=None, title=title)
    base = [statistics.fmean(run.served.total() for run in runs) for runs in outcomes.values()][:2]
    for name, runs in outcomes.items():
        served = statistics.fmean(run.served.total() for run in runs)
        table.add_row(
            name,
            f"{served:.0f}",
            *(f"{statistics.fmean(run.served[profile] for run in runs):.0f}" for profile in PROFILES),
            f"{statistics.fmean(run.slices for run in runs):.0f}",
            *(f"{100 * (served / each - 1):+.2f} %" for each in base),
            f"{1e3 * sum(run.seconds for run in runs) / sum(run.arrivals for run in runs):.2f}",
        )
    Console(width=180).print(table)


if __name__ == "__main__":
    main()
