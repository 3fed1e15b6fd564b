"""What happens to a cluster: ordinary objects made odd, whole odd ones, gangs, streams that break."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from gangline.groups import keys
from gangline_fuzz import answers, edges, from_schemas, from_types, ordinary, streams, vocabulary
from gangline_fuzz.inputs import RESOURCES, Case, Delete, Input, Several, Write

SHORTEST, LONGEST = 3, 8
"""Inputs of a case."""
_KEYS = [key for key, (_, often) in ordinary.KINDS.items() for _ in range(often)]
_SCHEMAS = {
    "gpuclaims": "gpuclaims.gpu.scheduling",
    "gpunodestatuses": "gpunodestatuses.gpu.scheduling",
    "domainconfigs": "domainconfigs.topology.scheduler",
    "schedulerconfigs": "schedulerconfigs.topology.scheduler",
    "topologyschedulerconfigs": "topologyschedulerconfigs.topology.scheduler",
    "podgroups.v1alpha1.scheduling.x-k8s.io": "podgroups.scheduling.x-k8s.io",
}
"""By the key of the resource: the CRD of the chart."""
_FOLLOWED = ("pods", "nodes", "gpunodestatuses", "gpuclaims", "leases", "namespaces", "persistentvolumes", "jobsets")

damage = st.none() | st.none() | st.none() | st.none() | st.tuples(
    st.integers(0, 4000),
    st.integers(0, 40),
    st.sampled_from(("", '"', "}", "null", "NaN", "\udcff", "\udced\udca0\udc80", "\\ud800", "\\", "\0", "9" * 400)),
)  # fmt: skip
"""How the text of an event is damaged; mostly it is not."""


@st.composite
def objects(draw: st.DrawFn, key: str) -> Any:
    """An object of a kind: an ordinary one with a few fields made anew, by its type or by the schema of its CRD."""
    make, _ = ordinary.KINDS[key]
    data = make(draw)
    kind: Any = RESOURCES[key].type
    if key in _SCHEMAS and draw(st.integers(0, 2)) == 0:
        return data | {"spec": draw(from_schemas.strategy_for(_SCHEMAS[key], "spec"))}
    if draw(st.integers(0, 9)) == 0:
        return data | draw(from_types.strategy_for(kind).filter(lambda found: isinstance(found, dict)))
    for _ in range(draw(st.integers(0, 3))):
        data = draw(from_types.edited(kind, data))
        if not isinstance(data, dict):
            break
    if isinstance(data, dict) and draw(st.integers(0, 7)) == 0:
        data = _with_unread(draw, data)
    return data


def _with_unread(draw: st.DrawFn, data: dict[str, Any]) -> dict[str, Any]:
    """The object with fields that nobody reads."""
    value = draw(st.sampled_from(edges.DEEP))
    metadata = data.get("metadata")
    if isinstance(metadata, dict) and draw(st.booleans()):
        return data | {"metadata": metadata | {"managedFields": [{"fieldsV1": value}]}}
    return data | {"unread": value}


@st.composite
def writes(draw: st.DrawFn) -> Write:
    """Somebody writes an object."""
    key = draw(st.sampled_from(_KEYS))
    return Write(key, draw(objects(key)), draw(damage))


@st.composite
def gangs(draw: st.DrawFn) -> Several:
    """Members of a gang at once: alike but for one of them."""
    first = ordinary.pod(draw)
    spec = {key: value for key, value in first["spec"].items() if key not in ("nodeName", "schedulingGates")}
    size = draw(st.integers(2, 6))
    members = []
    for number in range(size):
        metadata = first["metadata"] | {"name": f"m{number}", "uid": f"uid-{first['metadata']['namespace']}-m{number}"}
        members.append({"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})
    at = draw(st.integers(0, size - 1))
    members[at] = draw(from_types.edited(RESOURCES["pods"].type, members[at]))
    owners = [Write(key, draw(objects(key))) for key in draw(_owners)]
    return Several([*owners, *(Write("pods", member) for member in members)])


_owners = st.lists(
    st.sampled_from([key for key in _KEYS if key.startswith("podgroups") or key.endswith("sets")]), max_size=2
)


def deletes() -> st.SearchStrategy[Delete]:
    """Somebody deletes an object."""
    names = st.sampled_from((*vocabulary.PODS, *vocabulary.NODES, "g0", "c0", "m0"))
    return st.builds(Delete, st.sampled_from(_FOLLOWED), names, st.sampled_from(("", *vocabulary.NAMESPACES)))


def inputs() -> st.SearchStrategy[Input]:
    """One thing that happens; mostly somebody writes."""
    rare = st.one_of(gangs(), deletes(), streams.lines(_FOLLOWED), streams.breaks(_FOLLOWED))
    return st.integers(0, 9).flatmap(lambda dice: rare if dice >= 7 else writes())


def stories() -> st.SearchStrategy[Case]:
    """What happens to one cluster."""
    return st.builds(Case, st.lists(inputs(), min_size=SHORTEST, max_size=LONGEST))


def stories_of_plugins() -> st.SearchStrategy[Case]:
    """Pods of a profile whose plugin answers oddly, alone and in gangs."""
    return st.builds(Case, st.lists(_pods_of_plugin(), min_size=1, max_size=3), plugin=answers.plans())


@st.composite
def _pods_of_plugin(draw: st.DrawFn) -> Several:
    size, start = draw(st.integers(1, 4)), draw(st.integers(0, 99)) * 4
    labels = {keys.POD_GROUP: "g0"} if draw(st.booleans()) else {}
    group = {"metadata": {"name": "g0", "namespace": "default", "uid": "uid-g0"}, "spec": {"minMember": size}}
    pods = []
    for number in range(start, start + size):
        metadata = {"name": f"m{number}", "namespace": "default", "uid": f"uid-m{number}", "labels": labels}
        requests = {"cpu": "1", vocabulary.GPU: draw(st.sampled_from(("0", "1", "100")))}
        container = {"name": "main", "resources": {"requests": requests}}
        spec = {"schedulerName": answers.PROFILE, "containers": [container]}
        pods.append({"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})
    return Several([Write("podgroups.v1alpha1.scheduling.x-k8s.io", group), *(Write("pods", pod) for pod in pods)])
