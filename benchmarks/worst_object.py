"""What the worst single object costs: CPU seconds and MiB on a large cluster, without an API server.

    python benchmarks/worst_object.py [--nodes 5000] [--only NAME ...] [--limit-gib 4]

The cluster is built once; each object is then tried in a process of its own that is forked from it, under a limit of
memory. An object is read as a watch event brings it, asked for its group and admitted, and decided once. `CPU s` is the
time of all of that, `at once` the longest part of the decision in which nobody else is decided, `MiB` by how much the
process has grown at its peak, `kept` what is left when the object is gone. To try another object, add a function to
`OBJECTS`.
"""

from __future__ import annotations

import gc
import os
import pickle
import random
import resource
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click
from rich.console import Console
from rich.table import Table

import gangline_profiles
from gangline import config, model
from gangline.deadline import GANG_SECONDS, STRETCH_SECONDS, Deadline
from gangline.deciding.group_decisions import GroupDecision
from gangline.deciding.group_search import GroupSearch
from gangline.deciding.scheduling import Decision, decide
from gangline.groups import Groups
from gangline.kube.resources import (
    DEVICE_CLASSES,
    GPU_NODE_STATUSES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    SCHEDULER_PLUGINS_POD_GROUPS,
)
from gangline.process.memory import keep_memory, settle_memory
from gangline.profile.assembly import judging_runtimes
from gangline.profile.runtime import Runtime
from gangline.queueing.units import Unit
from gangline.state.cache import Cache
from gangline.state.pods import PodInfo
from gangline.testing import make_node, make_pod
from gangline.wire.custom_resources import GpuNodeStatus, GpuNodeStatusSpec, GpuNodeStatusStatus
from gangline_plugins.gpu.named_hardware import devices

MANY = 256
"""The most entries of a list or map that the scheduler reads of one object."""
IMAGES = 50
"""The most images that a kubelet reports."""
GROUP = "scheduling.x-k8s.io/pod-group"
SPINE, LEAF = "topology.gangline.dev/spine", "topology.gangline.dev/leaf"
PROFILE = "gpu-scheduler"
DRIVER = "gpu.example.com"
LWS = "leaderworkerset.sigs.k8s.io"


@dataclass(slots=True)
class Bench:
    """The cluster, and a profile at work on it."""

    cache: Cache
    runtime: Runtime
    longest: float = 0.0
    """The longest time, in CPU seconds, in which no other unit could be decided."""

    @contextmanager
    def _holding(self) -> Iterator[None]:
        start = time.process_time()
        yield
        self.longest = max(self.longest, time.process_time() - start)

    def record(self, pods: Iterable[model.Pod]) -> list[PodInfo]:
        """The records of pods, made as for watch events."""
        return [self.cache.record(pod) for pod in pods]

    def decide(self, pods: Sequence[PodInfo]) -> str:
        """Admit one unit and decide it once; says what became of it."""
        key = self.runtime.group_key(pods[0])
        for pod in pods:
            self.runtime.group_key(pod)
            with self._holding():
                self.runtime.enqueued(pod)
        status = self.runtime.admit(pods)
        if not status.is_success:
            return f"held: {status.message}"
        unit = Unit(list(pods), added=0.0, group=key)
        if key:
            search, group = GroupSearch(unit, self.runtime, self.cache, Deadline(GANG_SECONDS)), None
            while group is None:  # as the scheduler goes on with it
                with self._holding():
                    group = search.go_on({}, 1.0, STRETCH_SECONDS)
            return "placed" if isinstance(group, GroupDecision) else group.message
        with self._holding():
            outcome = decide(unit, self.runtime, self.cache, {})
        return "placed" if isinstance(outcome, Decision) else outcome.message


def bench(nodes: int) -> Bench:
    """Nodes of 8 GPUs and 50 images in leaves of 16 and spines of 8 leaves, a tenth of them tainted, with reports."""
    cache, chance = Cache(), random.Random(1)
    for i in range(nodes):
        name = f"node-{i:05}"
        labels = {
            "topology.kubernetes.io/zone": f"zone-{i // 512}",
            SPINE: f"spine-{i // 128}",
            LEAF: f"leaf-{i // 16 % 8}",
            **{f"label-{n}": str(chance.randrange(4)) for n in range(16)},
        }
        images = {f"registry.example.com/team-{n % 7}/image-{chance.randrange(2000)}:v1": 2**30 for n in range(IMAGES)}
        taints = ("example.com/reserved:NoSchedule",) if i % 10 == 0 else ()
        cache.upsert_node(make_node(name, labels=labels, images=images, taints=taints))
        status = GpuNodeStatusStatus(total=8, devices=devices("hgx-h100"))
        cache.store(GPU_NODE_STATUSES).upsert(
            GpuNodeStatus(model.ObjectMeta(name=name), GpuNodeStatusSpec(name), status)
        )
    for n in range(64):
        placed = make_pod(f"there-{n}", gpus=1, cpu=1, node=f"node-{n:05}", labels={"app": f"app-{n % 8}"})
        cache.upsert_pod(cache.record(placed))
    runtimes = judging_runtimes(
        config.load(gangline_profiles.read(PROFILE), PROFILE), cache, ties=random.Random(1), grouping=Groups(cache)
    )
    return Bench(cache, runtimes[PROFILE])


# Objects


def pod(name: str = "worst", **fields: Any) -> model.Pod:
    """A pod with one GPU and these further fields."""
    return make_pod(name, gpus=fields.pop("gpus", 1), cpu=1, scheduler_name=PROFILE, **fields)


def _containers(number: int = MANY) -> list[model.Container]:
    first = model.ResourceRequirements(requests={"cpu": "1", "nvidia.com/gpu": 1})
    small = model.ResourceRequirements(requests={"cpu": "1m"})
    return [
        model.Container(f"c-{n}", f"registry.example.com/team-{n % 7}/image-{n}:v1", small if n else first)
        for n in range(number)
    ]


def _node_selector() -> dict[str, str]:
    return {f"label-{n}": str(n % 4) for n in range(MANY)}


def _requirements(operator: str = "NotIn", values: int = 48) -> list[model.Requirement]:
    return [
        model.Requirement(f"key-{n}", operator, [f"value-{v}" for v in range(values)] if operator == "NotIn" else ["5"])
        for n in range(MANY)
    ]


def _node_affinity() -> model.NodeAffinity:
    terms = [
        model.NodeSelectorTerm([model.Requirement(f"label-{n % 16}", "NotIn", [f"v-{n}-{v}" for v in range(8)])])
        for n in range(MANY)
    ]
    preferred = [model.PreferredSchedulingTerm(1 + n % 100, term) for n, term in enumerate(terms)]
    return model.NodeAffinity(model.NodeSelector([model.NodeSelectorTerm(_requirements(values=8))]), preferred)


def _selector(n: int) -> model.LabelSelector:
    return model.LabelSelector({"app": f"app-{n}"})


def _spread(action: str) -> list[model.TopologySpreadConstraint]:
    keys = ["kubernetes.io/hostname", "topology.kubernetes.io/zone", SPINE, LEAF]
    return [model.TopologySpreadConstraint(1 + n, keys[n % 4], action, _selector(n)) for n in range(MANY)]


def _pod_terms(required: bool) -> model.PodAffinity:
    keys = ["kubernetes.io/hostname", "topology.kubernetes.io/zone", SPINE, LEAF]
    terms = [model.PodAffinityTerm(keys[n % 4], _selector(n)) for n in range(MANY)]
    if required:
        return model.PodAffinity(required=terms)
    return model.PodAffinity(preferred=[model.WeightedPodAffinityTerm(1 + n % 100, t) for n, t in enumerate(terms)])


def _tolerations() -> list[model.Toleration]:
    return [model.Toleration(f"key-{n}", "Equal", f"value-{n}", "NoSchedule") for n in range(MANY)]


def _ports(first: int = 1) -> list[model.ContainerPort]:
    return [model.ContainerPort(first + n, first + n) for n in range(MANY)]


def _volumes() -> list[model.Volume]:
    disks = [model.Volume(f"d-{n}", gce_persistent_disk=model.GCEPersistentDisk(f"disk-{n}")) for n in range(MANY // 2)]
    images = [model.Volume(f"i-{n}", image=model.ImageVolume(f"image-{n}:v9")) for n in range(MANY // 2)]
    return disks + images


def _everything() -> dict[str, Any]:
    containers = _containers()
    containers[0].ports = _ports()
    return {
        "containers": containers,
        "affinity": model.Affinity(
            _node_affinity(),
            _pod_terms(required=False),
            _pod_terms(required=True),
        ),
        "topology_spread_constraints": _spread("DoNotSchedule")[: MANY // 2] + _spread("ScheduleAnyway")[MANY // 2 :],
        "tolerations": _tolerations(),
        "volumes": _volumes(),
    }


def costly_claim(bench: Bench) -> list[model.Pod]:
    """A claim with an expression that takes long for each device, and finds no two devices alike."""
    for name in bench.cache.nodes.names:
        offered = [
            model.Device(f"gpu-{n}", attributes={"uuid": model.DeviceAttribute(string=f"{name}-{n}")}) for n in range(8)
        ]
        made = model.ResourceSliceSpec(
            driver=DRIVER, pool=model.ResourcePool(name, 1, 1), node_name=name, devices=offered
        )
        bench.cache.store(RESOURCE_SLICES).upsert(model.ResourceSlice(model.ObjectMeta(name), made))
    bench.cache.store(DEVICE_CLASSES).upsert(model.DeviceClass(model.ObjectMeta("gpu"), model.DeviceClassSpec()))
    expression = f'device.attributes["{DRIVER}"].uuid != "" && x0 != x1 + 100'
    for n in range(5):  # one level more is over the limit of cost
        expression = f"[0,1,2,3,4,5,6,7,8,9].all(x{n}, {expression})"
    selector = model.DeviceSelector(model.CelDeviceSelector(expression))
    request = model.DeviceRequest("gpu", model.ExactDeviceRequest("gpu", [selector], "ExactCount", 1))
    metadata = model.ObjectMeta("costly", "default", uid="costly")
    spec = model.ResourceClaimSpec(model.DeviceClaim([request]))
    bench.cache.store(RESOURCE_CLAIMS).upsert(model.ResourceClaim(metadata, spec))
    return [pod(gpus=0, resource_claims=[model.PodResourceClaim("gpu", "costly")])]


def gang(bench: Bench, members: list[model.Pod], name: str = "gang") -> list[model.Pod]:
    """The members, of a group that needs all of them."""
    meta = model.ObjectMeta(name=name, namespace="default", uid=f"group-{name}")
    store = bench.cache.store(SCHEDULER_PLUGINS_POD_GROUPS)
    store.upsert(model.PodGroup(meta, model.PodGroupSpec(min_member=len(members))))
    return members


def slices(bench: Bench, each: Callable[[int], model.Pod], number: int = 9, size: int = 8) -> list[model.Pod]:
    """A gang that wants a spine for all and a leaf for each slice: nine of them, where every spine has eight leaves.

    A quarter of the nodes of each leaf is in use, so that twelve are free: enough for one slice of members that want a
    node each.
    """
    for i in range(0, len(bench.cache.nodes.names), 4):
        bench.cache.upsert_pod(bench.cache.record(make_pod(f"busy-{i}", gpus=8, node=f"node-{i:05}")))
    annotations = {
        "kueue.x-k8s.io/podset-required-topology": "spine",
        "kueue.x-k8s.io/podset-slice-required-topology": "leaf",
        "kueue.x-k8s.io/podset-slice-size": str(size),
    }
    members = []
    for n in range(number * size):
        member = each(n)
        member.metadata.labels = {GROUP: "gang"}
        member.metadata.annotations = {**annotations, "batch.kubernetes.io/job-completion-index": str(n)}
        members.append(member)
    return gang(bench, members)


def unlike(n: int, gpus: int = 8, **container: Any) -> model.Pod:
    """A member that is like no other."""
    wanted = model.ResourceRequirements(requests={"cpu": f"{1000 + n}m", "nvidia.com/gpu": gpus})
    return pod(f"gang-{n}", containers=[model.Container("main", f"image-{n}:v1", wanted, **container)])


def in_gang(member: model.Pod) -> model.Pod:
    """The pod as a member of the gang."""
    member.metadata.labels = {GROUP: "gang"}
    return member


def with_port(n: int) -> model.Pod:
    """A pod of which two fit on a node by their requests, but only one by a filter."""
    return unlike(n, gpus=4, ports=[model.ContainerPort(80, 80)])


def leader_worker_set(size: int, subgroup: int, pods: int) -> list[model.Pod]:
    """Pods of one replica that says it has so many pods, in sub-groups."""
    return [
        pod(
            f"lws-0-{n}",
            labels={
                f"{LWS}/name": "lws",
                f"{LWS}/group-index": "0",
                f"{LWS}/group-key": "key",
                f"{LWS}/worker-index": str(n),
            },
            annotations={f"{LWS}/size": str(size), f"{LWS}/subgroup-size": str(subgroup), "unlike": str(n)},
        )
        for n in range(pods)
    ]


OBJECTS: dict[str, Callable[[Bench], Iterable[model.Pod]]] = {
    "a plain pod": lambda bench: [pod()],
    "containers, an image each": lambda bench: [pod(containers=_containers())],
    "5,000 containers": lambda bench: [pod(containers=_containers(5000))],
    "nodeSelector": lambda bench: [pod(node_selector=_node_selector())],
    "nodeAffinity, required": lambda bench: [
        pod(affinity=model.Affinity(model.NodeAffinity(model.NodeSelector([model.NodeSelectorTerm(_requirements())]))))
    ],
    "nodeAffinity, Gt of all keys": lambda bench: [
        pod(
            affinity=model.Affinity(
                model.NodeAffinity(model.NodeSelector([model.NodeSelectorTerm(_requirements("Gt"))]))
            )
        )
    ],
    "nodeAffinity, preferred too": lambda bench: [pod(affinity=model.Affinity(_node_affinity()))],
    "spread, hard": lambda bench: [pod(topology_spread_constraints=_spread("DoNotSchedule"))],
    "spread, soft": lambda bench: [pod(topology_spread_constraints=_spread("ScheduleAnyway"))],
    "podAffinity, required": lambda bench: [pod(affinity=model.Affinity(pod_affinity=_pod_terms(required=True)))],
    "podAffinity, preferred": lambda bench: [pod(affinity=model.Affinity(pod_affinity=_pod_terms(required=False)))],
    "podAntiAffinity, required": lambda bench: [
        pod(affinity=model.Affinity(pod_anti_affinity=_pod_terms(required=True)))
    ],
    "tolerations": lambda bench: [pod(tolerations=_tolerations())],
    "host ports": lambda bench: [pod(containers=[model.Container("main", "main:1", ports=_ports())])],
    "volumes": lambda bench: [pod(volumes=_volumes())],
    "256 of each": lambda bench: [pod(**_everything())],
    "claim, a costly expression": costly_claim,
    "9,000 GPUs": lambda bench: [pod(gpus=9000)],
    "2^52 GPUs": lambda bench: [pod(gpus=2**52)],
    "2^52 GPUs on a node": lambda bench: [pod(gpus=2**52, node="node-00001")],
    "LeaderWorkerSet 9999 by 1": lambda bench: leader_worker_set(9999, 1, 1),
    "LeaderWorkerSet 9999 by 1, 64 pods": lambda bench: leader_worker_set(9999, 1, 64),
    "LeaderWorkerSet 1023 by 1, 64 pods": lambda bench: leader_worker_set(1023, 1, 64),
    "gang of 72 unlike in 9 slices": lambda bench: slices(bench, unlike),
    "the same with a host port": lambda bench: slices(bench, with_port),
    "gang of 1,024 unlike": lambda bench: gang(bench, [in_gang(unlike(n, 1)) for n in range(1024)]),
}
"""Name to what makes the object on the cluster; the pods of one gang count as one object."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one object."""

    seconds: float
    longest: float
    mib: float
    kept: float
    said: str


def measure(bench: Bench, make: Callable[[Bench], Iterable[model.Pod]]) -> Cost:
    """Read and decide the object here."""
    made = list(make(bench))
    gc.collect()
    before, start = _mib()[1], time.process_time()
    pods = bench.record(made)
    waiting = [each for each in pods if not each.node_name]
    for each in pods:
        if each.node_name:
            bench.cache.upsert_pod(each)
    said = bench.decide(waiting) if waiting else "on its node"
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    for each in pods:
        if each.uid in bench.cache.pods:
            bench.cache.remove_pod(each.uid)
    del waiting, pods, each
    gc.collect()
    return Cost(seconds, bench.longest, max(0.0, peak - before), max(0.0, _mib()[1] - before), said)


def apart(bench: Bench, make: Callable[[Bench], Iterable[model.Pod]], limit: int) -> Cost | str:
    """The same in a process of its own, which may grow by `limit` bytes; what ended it where something did."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reader)
            most = int(2**20 * _mib()[0]) + limit
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
            try:
                answer: Cost | str = measure(bench, make)
            except BaseException as error:  # every failure that an object causes is a result
                answer = f"{type(error).__name__}: {error}"
            with open(writer, "wb") as out:
                pickle.dump(answer, out)
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as found:
        data = found.read()
    os.waitpid(child, 0)
    return pickle.loads(data) if data else "the process died"


def _mib() -> tuple[float, float]:
    """MiB of this process: of addresses, and resident."""
    with open("/proc/self/statm") as numbers:
        pages, resident, *_ = (int(number) for number in numbers.read().split())
    size = os.sysconf("SC_PAGE_SIZE") / 2**20
    return pages * size, resident * size


@click.command()
@click.option("--nodes", default=5000, show_default=True)
@click.option("--only", multiple=True, help="Objects whose name holds this text; may be repeated.")
@click.option("--limit-gib", default=4.0, show_default=True, help="By how much a process may grow.")
def main(nodes: int, only: Sequence[str], limit_gib: float) -> None:
    """Measure and print."""
    keep_memory()  # as `gangline run` does
    built = bench(nodes)
    built.decide(built.record([pod("first")]))  # the first pod of all costs more, which is no object's fault
    settle_memory()
    table = Table("object", "CPU s", "at once", "MiB", "kept", "outcome", box=None)
    for name, make in OBJECTS.items():
        if only and not any(text in name for text in only):
            continue
        cost = apart(built, make, int(limit_gib * 2**30))
        if isinstance(cost, str):
            table.add_row(name, "", "", "", "", cost[:70])
        else:
            table.add_row(
                name,
                f"{cost.seconds:.3f}",
                f"{cost.longest:.3f}",
                f"{cost.mib:.0f}",
                f"{cost.kept:.0f}",
                cost.said[:70],
            )
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
