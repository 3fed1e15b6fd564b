"""Judge who has which GPU by the API's own objects alone: pods, claims, node statuses and leases.

On purpose not Gangline's own arithmetic, and nothing here is fast.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from gangline_e2e.workloads import GPU, Manifest, Manifests, is_bound

ALLOCATED = "gpu.scheduling/allocated"
UUIDS = "gpu.scheduling/allocated-uuids"
CLAIM = "gpu.scheduling/claim"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
MANAGED = "gpu.scheduling/managed=true"
ROUNDING = 0.005
"""Parts of a device are kept in thousandths."""
Device = tuple[str, int]
"""The name of the node and the device's id."""
Claims = Mapping[str, Manifest]
"""By name."""


def devices_of(pod: Manifest) -> list[Device]:
    """The devices of a pod, as its annotation says; none while it has no node."""
    text = pod["metadata"].get("annotations", {}).get(ALLOCATED, "")
    return [(pod["spec"]["nodeName"], int(id)) for id in text.split(",") if id] if is_bound(pod) else []


def holders(pods: Iterable[Manifest]) -> dict[Device, Manifests]:
    """For each device that is in use the pods on it."""
    found: dict[Device, Manifests] = defaultdict(list)
    for pod in pods:
        for device in devices_of(pod):
            found[device].append(pod)
    return dict(found)


def locked(leases: Iterable[Manifest]) -> dict[Device, set[str]]:
    """For each device that is locked the UIDs of the pods for which it is."""
    found: dict[Device, set[str]] = defaultdict(set)
    for lease in leases:
        notes = lease["metadata"]["annotations"]
        for holder, hold in json.loads(notes["gpu.scheduling/holders"]).items():
            for id in hold["ids"]:
                found[notes["gpu.scheduling/node"], id].add(holder.partition("/")[0])
    return dict(found)


def wanted(pod: Manifest, claims: Claims) -> dict[str, Any]:
    """What a pod wants: the spec of its claim, or for a plain request that of a claim for as many whole devices."""
    if name := pod["metadata"].get("annotations", {}).get(CLAIM):
        spec: dict[str, Any] = claims[name]["spec"]
        return spec
    count = int(pod["spec"]["containers"][0]["resources"]["limits"][GPU])
    return {"devices": {"count": count, "exclusivity": "Exclusive"}, "topology": {"mode": "Preferred"}}


def faults(pods: Manifests, claims: Claims, statuses: Manifests) -> list[str]:
    """One line for each bound pod without what it wants, and for each device that gives more than it has."""
    by_node = {each["metadata"]["name"]: _by_id(each) for each in statuses}
    found = []
    for pod in filter(is_bound, pods):
        if why := _shortage(pod, wanted(pod, claims), by_node[pod["spec"]["nodeName"]]):
            found.append(f"pod {pod['metadata']['name']} on node {pod['spec']['nodeName']}: {why}")
    for (node, id), there in holders(pods).items():
        if why := _excess(there, claims, by_node[node].get(id, {})):
            names = ", ".join(sorted(pod["metadata"]["name"] for pod in there))
            found.append(f"GPU {id} of node {node}: {why}: {names}")
    return found


def disagreements(pods: Manifests, leases: Manifests) -> list[str]:
    """One line for each device of which leases and annotations do not say the same."""
    by_lease = locked(leases)
    by_pod = {device: {pod["metadata"]["uid"] for pod in there} for device, there in holders(pods).items()}
    return [
        f"GPU {id} of node {node}: leases say {by_lease.get((node, id))}, pods {by_pod.get((node, id))}"
        for node, id in sorted(by_lease.keys() | by_pod.keys())
        if by_lease.get((node, id)) != by_pod.get((node, id))
    ]


def misreported(pods: Manifests, claims: Claims) -> list[str]:
    """One line for each claim in use whose status does not tell of one of its pods, as bound."""
    right: dict[str, Manifests] = defaultdict(list)
    for pod in filter(is_bound, pods):
        if name := pod["metadata"].get("annotations", {}).get(CLAIM):
            right[name].append(_status_for(pod))
    return [
        f"claim {name} says {claims[name].get('status')}, which is true of none of its {len(true)} pods"
        for name, true in right.items()
        if {key: value for key, value in claims[name].get("status", {}).items() if value} not in true
    ]


def _status_for(pod: Manifest) -> Manifest:
    ids, node = [id for _, id in devices_of(pod)], pod["spec"]["nodeName"]
    return {"phase": "Bound", "nodeName": node, "gpuIds": ids, "allocated": f"{node}:{','.join(map(str, ids))}"}


def _by_id(status: Manifest) -> dict[int, Manifest]:
    return {device["id"]: device for device in status["status"]["devices"]}


def _shortage(pod: Manifest, want: Manifest, node: Mapping[int, Manifest]) -> str:
    """What a bound pod lacks of what it wants; empty if nothing."""
    ids = [id for _, id in devices_of(pod)]
    uuids = pod["metadata"].get("annotations", {}).get(UUIDS, "").split(",")
    if missing := [id for id in ids if node.get(id, {}).get("health") != "Healthy"]:
        return f"GPUs {missing} are not there or not healthy"
    if want["devices"]["exclusivity"] == "MIG":
        fit = _instances(ids, want, node)
        wrong = len(uuids) != want["devices"]["count"] or not set(uuids) <= fit
        return f"its instances {uuids} are not of its {ids} and profile" if wrong else ""
    if len(ids) != want["devices"]["count"] or uuids != [node[id]["uuid"] for id in ids]:
        return f"it has {ids} ({uuids}) and wants {want['devices']['count']}"
    return _bad_links(ids, want["topology"], node)


def _instances(ids: list[int], want: Manifest, node: Mapping[int, Manifest]) -> set[str]:
    profile = want["devices"]["migProfile"]
    return {each["uuid"] for id in ids for each in node[id].get("migDevices", []) if each["profile"] == profile}


def _bad_links(ids: list[int], topology: Manifest, node: Mapping[int, Manifest]) -> str:
    if topology["mode"] == "Required" and len({node[id].get("island", id) for id in ids}) > 1:
        return f"{ids} are not in one island"
    least = topology.get("minBandwidthGBps", 0)
    for id in ids:
        speeds = {link["peer"]: link["bandwidthGBps"] for link in node[id].get("links", [])}
        if slow := [peer for peer in ids if peer != id and speeds.get(peer, 0) < least]:
            return f"GPU {id} is linked to {slow} with less than {least} GB/s"
    return ""


def _excess(there: Manifests, claims: Claims, device: Manifest) -> str:
    """Why the pods on a device are too much for it; empty if they are not."""
    wants = [wanted(pod, claims)["devices"] for pod in there]
    kinds = {want["exclusivity"] for want in wants}
    if kinds == {"Shared"}:
        total = device["memoryMiB"] / 1024
        parts = [max(want.get("fraction", 0), want.get("memoryGiB", 0) / total) for want in wants]
        return f"{sum(parts):.3f} of it is shared out" if sum(parts) > 1 + ROUNDING else ""
    if kinds == {"MIG"}:
        uuids = [uuid for pod in there for uuid in pod["metadata"]["annotations"][UUIDS].split(",")]
        return "an instance was given away twice" if len(uuids) != len(set(uuids)) else ""
    return f"{len(there)} pods have it, {', '.join(sorted(kinds))}" if len(there) > 1 else ""
