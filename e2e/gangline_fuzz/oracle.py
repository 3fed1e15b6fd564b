"""What must hold, judged from the objects of the API server and not from what the scheduler believes."""

from __future__ import annotations

import enum
import re
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np

from gangline.errors import NotFound
from gangline.kube.resources import NODES, PODS
from gangline.loop.scheduler import Scheduler
from gangline.state.cache import Cache
from gangline.wire.custom_resources import ALLOCATED, CLAIM, GPU, SCHEDULING_MAP
from gangline_fuzz.server import Given, OddClient, OddServer

_SUFFIXES: Mapping[str, int | Fraction] = {
    "": 1,
    "m": Fraction(1, 1000),
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
}
_QUANTITY = re.compile(r"(\d{1,15}(?:\.\d{1,3})?)(m|k|M|G|Ki|Mi|Gi|)", re.ASCII)


class Kind(enum.Enum):
    """What did not hold."""

    ENDED = "the scheduler ended"
    STALLED = "a healthy pod was not bound"
    CPU = "too much CPU"
    MEMORY = "too much memory"
    DEVICES = "a device is held twice"
    CAPACITY = "a node is over capacity"
    COLUMNS = "the columns are not what the objects say"
    BACKGROUND = "a task failed that nobody looked at"
    ANSWER = "an answer is not one"
    HELD = "a scheduler that has ended is held"
    GROWTH = "memory grows with each cluster"


class Found(msgspec.Struct, frozen=True):
    """Something that did not hold."""

    kind: Kind
    at: int
    """The number of the input after which it did not."""
    said: str
    place: str
    """The exception and where in Gangline it was raised, if one was."""

    @property
    def signature(self) -> str:
        """What two findings of one fault have in common."""
        return f"{self.kind.value}: {self.place}" if self.place else self.kind.value


class Failed(Exception):
    """Raised where something does not hold."""

    def __init__(self, found: Found) -> None:
        super().__init__(found)
        self.found = found


def raised(kind: Kind, at: int, error: BaseException) -> Found:
    """An exception that nobody should see; the groups of asyncio are left out."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/gangline" in frame.filename]
    ours = [frame for frame in frames if "/gangline_fuzz/" not in frame.filename] or frames
    where = f" gangline{ours[-1].filename.rsplit('/gangline', 1)[-1]}:{ours[-1].name}" if ours else ""
    said = "".join(traceback.format_exception(error))[-4000:]
    return Found(kind, at, said, type(error).__name__ + where)


def others_on(server: OddServer, node: str, namespace: str) -> bool:
    """Whether pods of other namespaces are on a node."""
    return any(
        each.data["spec"].get("nodeName") == node and each.data["metadata"]["namespace"] != namespace
        for each in server.list(PODS)
    )


def check_devices(server: OddServer, client: OddClient, at: int) -> None:
    """No device that the scheduler gave out, as a whole and by its own choice, is held by two pods that live."""
    holders: dict[tuple[str, str], str] = {}
    for name, given, pod in _given(server, client):
        annotations = pod["metadata"]["annotations"]
        if annotations.get(CLAIM) or SCHEDULING_MAP in annotations or not _requests(pod).get(GPU):
            continue
        for device in filter(None, given.annotations.get(ALLOCATED, "").split(",")):
            other = holders.setdefault((given.node, device), name)
            if other != name:
                raise Failed(Found(Kind.DEVICES, at, f"GPU {device} of {given.node} is held by {other} and {name}", ""))


def check_capacity(server: OddServer, client: OddClient, at: int) -> None:
    """The pods that the scheduler put on a node ask for no more than the node has."""
    used: dict[str, Counter[str]] = {}
    for _, given, pod in _given(server, client):
        used.setdefault(given.node, Counter()).update(_requests(pod))
    for node, asked in used.items():
        found = next((each.data for each in server.list(NODES) if each.data["metadata"]["name"] == node), None)
        if found is None or ("", node) in server.sent["nodes"]:
            continue  # it may have had more when they were put there
        has = found["status"]["allocatable"]
        for resource, amount in asked.items():
            room = _amount(has.get(resource, "0")) or 0
            if amount > room:
                said = f"{node}: pods ask for {float(amount):g} {resource} of {float(room):g}"
                raise Failed(Found(Kind.CAPACITY, at, said, ""))


def check_columns(kept: Scheduler, fresh: Scheduler, server: OddServer, at: int) -> None:
    """What was kept step by step is what comes out when all is listed anew; both have listed everything just now."""
    said = _sums(kept.cache)
    pods = [each.data["metadata"] for each in server.list(PODS)]
    if not said and len({pod["uid"] for pod in pods}) == len(pods):
        said = _differences(kept.cache, fresh.cache)
    if said:
        raise Failed(Found(Kind.COLUMNS, at, "; ".join(said[:5]), ""))


def _sums(cache: Cache) -> list[str]:
    """Where what is requested of a node is not what the pods on it request."""
    nodes = cache.nodes
    wrong = []
    for row in range(nodes.size):
        total = np.zeros_like(nodes.requested[:, row])
        for pod in nodes.pods_on[row].values():
            total[pod.cls.resources] += pod.cls.amounts
            if pod.row != row or cache.pods.get(pod.uid) is not pod:
                wrong.append(f"pod {pod.key} is on row {row} and says {pod.row}")
        if not np.array_equal(total, nodes.requested[:, row]):
            wrong.append(f"node {nodes.names[row]}: {nodes.requested[:, row].tolist()} is not {total.tolist()}")
        if (nodes.allocatable[:, row] < 0).any() or (nodes.requested[:, row] < 0).any():
            wrong.append(f"node {nodes.names[row]}: less than nothing")
    return wrong


def _differences(kept: Cache, fresh: Cache) -> list[str]:
    """Nodes and pods that a list gives and that are not kept so. What can no longer be read is left as it was."""
    wrong = []
    for name in filter(None, fresh.nodes.names):
        one, other = _node(kept, name), _node(fresh, name)
        if one != other:
            wrong.append(f"node {name}: {one} is not {other}")
    for uid, pod in fresh.pods.items():
        known = kept.pods.get(uid)
        if known is None or known.node_name != pod.node_name or known.cls.requests.real != pod.cls.requests.real:
            wrong.append(
                f"pod {pod.key}: {known and (known.node_name, known.cls.requests.real)} is not {pod.node_name}"
            )
    return wrong


def _node(cache: Cache, name: str) -> Any:
    nodes = cache.nodes
    row = nodes.row_of(name)
    if row is None:
        return None
    has = {key: int(n) for key, n in zip(nodes.axis.names, nodes.allocatable[:, row], strict=False) if n}
    return has, bool(nodes.unschedulable[row]), nodes.taint_sets[nodes.taints[row]]


def _given(server: OddServer, client: OddClient) -> Iterator[tuple[str, Given, Mapping[str, Any]]]:
    """Name and object of the pods that this scheduler has bound and that nobody has written since."""
    for (namespace, name), given in client.given.items():
        try:
            pod = server.get(PODS, name, namespace=namespace).data
        except NotFound:
            continue
        same = pod["metadata"]["uid"] == given.uid and pod["spec"].get("nodeName") == given.node
        if same and pod["status"].get("phase") not in ("Succeeded", "Failed"):
            yield f"{namespace}/{name}", given, pod


def _requests(pod: Mapping[str, Any]) -> Counter[str]:
    """What the containers of a pod request, as far as it can be read."""
    found: Counter[str] = Counter()
    containers = pod["spec"].get("containers")
    for container in containers if isinstance(containers, list) else ():
        try:
            asked = container["resources"]["requests"].items()
        except (AttributeError, KeyError, TypeError):
            continue
        for resource, amount in asked:
            found[resource] += _amount(amount) or 0  # type: ignore[assignment]  # exact thousandths are no int
    return found


def _amount(text: object) -> Fraction | None:
    """A plain quantity; None for one that is not."""
    match = _QUANTITY.fullmatch(str(text))
    return Fraction(match[1]) * _SUFFIXES[match[2]] if match else None
