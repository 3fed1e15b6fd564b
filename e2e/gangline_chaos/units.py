"""What the workload consists of: gangs, gangs with controllers, single pods, shares of a device, ResourceClaims."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from gangline_chaos import owned
from gangline_chaos.judge import objects as told
from gangline_e2e import gangs
from gangline_e2e.day.fabric import Fabric
from gangline_e2e.day.objects import COMPLETES, paths
from gangline_e2e.devices import CLAIM
from gangline_e2e.gangs import ANYWHERE, LEAF, SPINE, Dialect, Gang, Rule, pod_of
from gangline_e2e.gpu_crds import claim
from gangline_e2e.workloads import Manifest, Manifests

FABRIC = Fabric(nodes=12, gpus=8, leaves=4, spines=2)
"""Leaves of 3 nodes, spines of 2 leaves."""
DIALECTS: tuple[Dialect, ...] = (gangs.koordinator, gangs.scheduler_plugins, gangs.kueue, gangs.volcano)
CORES = 11
"""The CPUs of a pod for each of its GPUs: pods with 8 GPUs and a few small pods fill a node of 96 CPUs."""
MOST = {"": 40, SPINE: 24, LEAF: 12}
"""The most GPUs of a gang, by the level that it requires: half of those in a domain."""
SHARES = (200, 250, 500, 700)
"""The sizes of shares, in thousandths of a device."""
DRIVER = CLASS = "nic.example.com"
CARDS = 4
"""Devices of the driver on each node."""
LONGER, SHARE_LONGER = 20.0, 0.02
"""How much longer some units stay, so that they see many faults; and the share of these units."""
RESOURCES = "resource.k8s.io/v1"
CLAIMS = f"/apis/{RESOURCES}/namespaces/{{}}/resourceclaims"


@dataclass(slots=True)
class Unit:
    """Pods that come and go together."""

    name: str
    gpus: int
    """The devices of all pods together; a share of a device counts as one."""
    objects: Manifests
    claims: Manifests
    """The ResourceClaims of the pods. Objects and claims are created before the pods."""
    pods: Manifests
    seconds: float
    """For how many seconds the unit stays once it has its nodes."""
    controlled: int = 0
    """How many pods the unit's controllers create; 0 if `pods` has them."""
    placed_at: float | None = None
    made_at: float = field(default=0.0)

    @property
    def owners(self) -> Manifests:
        """The objects that make pods."""
        return owned.owners(self.objects)

    def paths(self, namespace: str) -> list[str]:
        """Where the objects and claims are, those that make pods first."""
        owners = self.owners
        others = paths(namespace, [each for each in self.objects if each not in owners])
        claims = [f"{CLAIMS.format(namespace)}/{each['metadata']['name']}" for each in self.claims]
        return [*(owned.path_of(each, namespace) for each in owners), *others, *claims]


def make(rng: random.Random, number: int, seconds: tuple[float, float]) -> Unit:
    """The next unit of a workload; it stays for a time between these seconds, and a few units for much longer."""
    kind = rng.choices(("gang", "owned", "single", "share", "claims"), (4, 3, 3, 3, 2))[0]
    name = f"{kind}-{number}"
    stays = rng.uniform(*seconds) * (LONGER if rng.random() < SHARE_LONGER else 1)
    match kind:
        case "gang":
            return gang(rng, name, stays)
        case "owned":
            return gang(rng, name, stays, owned.DIALECTS)
        case "single":
            unit = single(name, rng.randint(1, 8), stays)
            if rng.random() < 0.3:
                unit.pods[0]["metadata"]["annotations"][COMPLETES] = f"{stays:.1f}s"
            return unit
        case "share":
            return share(name, rng.choice(SHARES), stays)
    size = rng.choice((1, 1, 3))
    return with_claims(name, [rng.randint(1, 2) for _ in range(size)], stays)


def driver_objects(fabric: Fabric) -> Manifests:
    """The DeviceClass, and a slice with the devices of each node."""
    expression = f'device.driver == "{DRIVER}"'
    made: Manifests = [
        {
            "apiVersion": RESOURCES,
            "kind": "DeviceClass",
            "metadata": {"name": CLASS},
            "spec": {"selectors": [{"cel": {"expression": expression}}]},
        }
    ]
    for number in range(fabric.nodes):
        name = fabric.name(number)
        spec = {
            "driver": DRIVER,
            "nodeName": name,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"nic-{card}"} for card in range(CARDS)],
        }
        made.append({"apiVersion": RESOURCES, "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec})
    return made


def gang(rng: random.Random, name: str, stays: float, dialects: Sequence[Dialect] = DIALECTS) -> Unit:
    """A gang of 4 to 8 pods that requires a leaf, a spine or nothing."""
    level = rng.choice((LEAF, SPINE, ""))
    size = rng.randint(4, 8)
    gpus = rng.randint(1, min(8, MOST[level] // size))
    rule = Rule(required=level) if level else ANYWHERE
    return gang_of(rng.choice(dialects)(name, size, rule, gpus), gpus, stays)


def single(name: str, gpus: int, stays: float = 0.0) -> Unit:
    """A pod on its own."""
    return Unit(name, gpus, [], [], [_cores(pod_of(name, 0, gpus), CORES * gpus)], stays)


def exclusive(name: str, gpus: int, stays: float = 0.0) -> Unit:
    """A pod that takes whole devices by a GpuClaim, with the requests that the webhook adds."""
    unit = single(name, gpus, stays)
    unit.pods[0]["metadata"]["annotations"][CLAIM] = name
    unit.objects.append(claim(name, devices={"count": gpus, "exclusivity": "Exclusive"}))
    return unit


def share(name: str, milli: int, stays: float = 0.0) -> Unit:
    """A pod that takes so many thousandths of a device, by a GpuClaim."""
    spec: Manifest = {"devices": {"count": 1, "exclusivity": "Shared", "fraction": milli / told.WHOLE}}
    pod = pod_of(name, 0, 0, annotations={CLAIM: name, told.SHARE: str(milli)})
    return Unit(name, 1, [claim(name, **spec)], [], [pod], stays)


def gang_of(made: Gang, gpus: int, stays: float = 0.0) -> Unit:
    """A gang whose pods take so many GPUs each, with what the judge reads on its pods."""
    for pod in (*made.pods, *(each["spec"]["template"] for each in owned.owners(made.objects))):
        metadata = pod["metadata"]
        metadata["labels"][told.GANG] = made.name
        least, within = str(made.min_member), _WITHIN[made.rule.required]
        metadata["annotations"] = {**metadata.get("annotations", {}), told.LEAST: least, told.WITHIN: within}
        _cores(pod, CORES * gpus)
    controlled = 0 if made.pods else made.size
    return Unit(made.name, made.size * gpus, made.objects, [], made.pods, stays, controlled)


def with_claims(name: str, cards: Sequence[int], stays: float = 0.0, gpus_by_card: int = 0) -> Unit:
    """A gang of pods, or a single one, each with a claim of its own for so many network cards.

    Each pod takes one GPU, or so many for each card.
    """
    size = len(cards)
    pods = [pod_of(name, 0, 1)] if size == 1 else gangs.koordinator(name, size, ANYWHERE, 1).pods
    claims: Manifests = []
    total = 0
    for number, (pod, count) in enumerate(zip(pods, cards, strict=True)):
        gpus = gpus_by_card * count or 1
        total += gpus
        own = f"{name}-{number}"
        exactly = {"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": count}
        spec = {"devices": {"requests": [{"name": "nic", "exactly": exactly}]}}
        claims.append({"apiVersion": RESOURCES, "kind": "ResourceClaim", "metadata": {"name": own}, "spec": spec})
        pod["spec"]["resourceClaims"] = [{"name": "nic", "resourceClaimName": own}]
        resources = pod["spec"]["containers"][0]["resources"]
        resources["claims"] = [{"name": "nic"}]
        resources["requests"][told.GPU] = resources["limits"][told.GPU] = str(gpus)
        if size > 1:
            pod["metadata"]["labels"][told.GANG] = name
            pod["metadata"]["annotations"] |= {told.LEAST: str(size)}
    return Unit(name, total, [], claims, pods, stays)


_WITHIN = {LEAF: f"{SPINE},{LEAF}", SPINE: SPINE, "": ""}
"""The labels of nodes that the judge compares, by the level that a gang requires."""


def _cores(pod: Manifest, cores: int) -> Manifest:
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = str(cores)
    return pod
