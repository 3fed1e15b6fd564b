"""What a running pod takes is the same for Gangline and for kube-scheduler: requests of whole pods, sidecars, resizes.

Both run at the same time, each for pods of its own, on the same nodes. What a running pod takes is seen from outside: a
pod that asks for all that is left fits, one that asks for a little more does not; and a pod that asks for nothing
prefers its node to one on which a little more is taken, but not to one on which a little less is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangline_e2e.api import Api
from gangline_e2e.harness import ControlPlane, Options
from gangline_e2e.isolation import isolated
from gangline_e2e.scheduler import Gangline, configuration
from gangline_e2e.workloads import IMAGE, Manifest, is_bound, is_unschedulable

MI = 2**20
CAPACITY = {"cpu": 10_000, "memory": 10_000 * MI}
STEP = {"cpu": 100, "memory": 100 * MI}
"""One in a hundred of a node: scores are whole numbers from 0 to 100."""
INFEASIBLE = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}

pytestmark = pytest.mark.timeout(300)
StartControlPlane = Callable[[Options], ControlPlane]
StartGangline = Callable[..., Gangline]


@dataclass(frozen=True)
class Case:
    """A running pod, and what it takes: for what fits, and for scores; milli-CPU and MiB."""

    name: str
    takes: tuple[int, int]
    counts: tuple[int, int]
    containers: list[Manifest]
    init: list[Manifest] = field(default_factory=list)
    whole: Manifest | None = None
    status: Manifest = field(default_factory=dict)


def asks(name: str, cpu: str = "", memory: str = "", **more: Any) -> Manifest:
    """A container."""
    requests = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value}
    return {"name": name, "image": IMAGE, "resources": {"requests": requests}, **more}


def says(name: str, **requests: str) -> Manifest:
    """What the kubelet says of a container: it has been given these, and runs with them."""
    plain = {"name": name, "image": IMAGE, "imageID": IMAGE, "ready": True, "restartCount": 0}
    return {**plain, "allocatedResources": requests, "resources": {"requests": requests}}


CASES = [
    Case("nothing", (0, 0), (200, 400), [asks("a"), asks("b")]),
    Case("memory-of-the-whole", (1000, 2000), (1000, 2000), [asks("a", "1"), asks("b")], whole={"memory": "2000Mi"}),
    Case("cpu-of-the-whole", (2000, 1000), (2000, 1000), [asks("a", "", "1000Mi"), asks("b")], whole={"cpu": "2"}),
    Case("cpu-that-nobody-names", (0, 2000), (200, 2000), [asks("a"), asks("b")], whole={"memory": "2000Mi"}),
    Case(
        "whole-and-sidecar",
        (1000, 3000),
        (1000, 3000),
        [asks("a")],
        [asks("side", "1", restartPolicy="Always"), asks("init", "", "100Mi")],
        {"memory": "3000Mi"},
    ),
    Case(
        "plain-init-container",
        (2000, 0),
        (2000, 400),
        [asks("a", "1"), asks("b", "0")],
        [asks("init", "2")],
        status={"initContainerStatuses": [says("init", cpu="8")]},
    ),
    Case(
        "sidecar-that-shrinks",
        (4000, 0),
        (4000, 400),
        [asks("a", "1")],
        [asks("side", "2", restartPolicy="Always")],
        status={"initContainerStatuses": [says("side", cpu="3")]},
    ),
    Case(
        "container-that-cannot-grow",
        (3000, 1000),
        (3000, 1000),
        [asks("a", "5", "1000Mi")],
        status={"containerStatuses": [says("a", cpu="3", memory="1000Mi")], "conditions": [INFEASIBLE]},
    ),
    Case(
        "whole-that-shrinks",
        (4000, 500),
        (4000, 500),
        [asks("a", "1", "500Mi"), asks("b")],
        whole={"cpu": "2"},
        status={"resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "4", "memory": "9000Mi"}},
    ),
]


async def test_a_running_pod_takes_of_its_node_what_it_takes_for_kube_scheduler(
    start_control_plane: StartControlPlane, start_gangline: StartGangline, tmp_path: Path
) -> None:
    plane = start_control_plane(Options())
    async with isolated(plane) as api:
        for number, case in enumerate(CASES):
            await _run(api, number, case)
        theirs = configuration(_by("cpu", "theirs"), _by("memory", "theirs"), leaderElection={"leaderElect": False})
        theirs["clientConnection"] = {"kubeconfig": str(plane.kubeconfig_for("system:kube-scheduler"))}
        file = tmp_path / "kube-scheduler.yaml"
        file.write_text(yaml.safe_dump(theirs))
        plane.start_scheduler([f"--config={file}"])
        scheduler = start_gangline(plane.kubeconfig, configuration(_by("cpu", "ours"), _by("memory", "ours")))

        asked = await api.create_many(
            probe for number in range(len(CASES)) for who in ("ours", "theirs") for probe in _probes(number, who)
        )
        done = await api.wait_for(api.pods, _is_decided, len(asked), timeout_s=120)
        scheduler.stop()  # before the pods go

    found = {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in done if _is_probe(pod)}
    for who in ("theirs", "ours"):  # what does not hold for kube-scheduler is wrong here
        wrong = {name: node for name, node in found.items() if f"-{who}-" in name and not _as_expected(name, node)}
        assert wrong == {}, who
    assert len(found) == len(asked)


def _by(resource: str, who: str) -> Manifest:
    """A profile that prefers the node with the most of one resource, and looks at nothing else."""
    strategy = {"type": "LeastAllocated", "resources": [{"name": resource, "weight": 1}]}
    disabled = ["DynamicResources"] if who == "theirs" else []
    return {
        "schedulerName": f"{who}-{resource}",
        "plugins": {
            "multiPoint": {"disabled": [{"name": name} for name in disabled]},
            "score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit", "weight": 1}]},
        },
        "pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}],
    }


async def _run(api: Api, number: int, case: Case) -> None:
    """Nodes for a case: copies to fill, and one to compare with others, where a little more or less is taken."""
    copies = [f"{number}-{use}" for use in ("score", *(f"{fit}-{who}-{r}" for fit, who, r in _fits()))]
    for name in copies:
        await api.create(_node(name))
        spec: Manifest = {"nodeName": name, "containers": case.containers, "initContainers": case.init}
        if case.whole:
            spec["resources"] = {"requests": case.whole}
        await api.create(_pod(name, spec))
        if case.status:
            await api.merge(f"{api.pods}/{name}/status", {"status": case.status})
    for sign in (-1, 1):
        for index, resource in enumerate(CAPACITY):
            name = f"{number}-{resource}-{'less' if sign < 0 else 'more'}"
            taken = case.counts[index] * (1 if resource == "cpu" else MI) + sign * STEP[resource]
            await api.create(_node(name))
            held = {"cpu": "0", "memory": "0", resource: _quantity(resource, taken)}
            await api.create(_pod(name, {"nodeName": name, "containers": [asks("main", **held)]}))


def _probes(number: int, who: str) -> Iterator[Manifest]:
    case = CASES[number]
    for index, resource in enumerate(CAPACITY):
        free = CAPACITY[resource] - case.takes[index] * (1 if resource == "cpu" else MI)
        for fit, amount in (("all", free), ("beyond", free + 1)):
            where = [f"{number}-{fit}-{who}-{resource}"]
            wanted = {"cpu": "0", "memory": "0", resource: _quantity(resource, amount)}
            yield _probe(f"{number}-{who}-{resource}-{fit}", f"{who}-cpu", where, wanted)
        for other in ("less", "more"):
            where = [f"{number}-score", f"{number}-{resource}-{other}"]
            yield _probe(f"{number}-{who}-{resource}-{other}", f"{who}-{resource}", where, {"cpu": "0", "memory": "0"})


def _fits() -> Iterator[tuple[str, str, str]]:
    return ((fit, who, r) for fit in ("all", "beyond") for who in ("ours", "theirs") for r in CAPACITY)


def _as_expected(name: str, node: str) -> bool:
    """Where a probe must be: a name ends with who decides, the resource, and what is tried."""
    number, who, resource, tried = name.removeprefix("probe-").split("-")
    expected = {
        "all": f"{number}-all-{who}-{resource}",
        "beyond": "",
        "less": f"{number}-{resource}-less",
        "more": f"{number}-score",
    }
    return node == expected[tried]


def _quantity(resource: str, amount: int) -> str:
    return f"{amount}m" if resource == "cpu" else str(amount)


def _node(name: str) -> Manifest:
    """A node that nobody plays, so that what is said of its pods stays."""
    resources = {"cpu": "10", "memory": "10000Mi", "pods": "110"}
    labels = {"kubernetes.io/hostname": name}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": resources, "allocatable": resources},
    }


def _pod(name: str, spec: Manifest) -> Manifest:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _probe(name: str, scheduler: str, nodes: list[str], wanted: dict[str, str]) -> Manifest:
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": nodes}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    spec = {"schedulerName": scheduler, "affinity": affinity, "containers": [asks("main", **wanted)]}
    return _pod(f"probe-{name}", spec)


def _is_probe(pod: Manifest) -> bool:
    return str(pod["metadata"]["name"]).startswith("probe-")


def _is_decided(pod: Manifest) -> bool:
    return _is_probe(pod) and (is_bound(pod) or is_unschedulable(pod))
