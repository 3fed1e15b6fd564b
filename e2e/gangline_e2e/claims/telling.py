"""Tells stories to the scheduler that runs on a control plane, and reads what has become of pods and claims."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from gangline_e2e.api import Api
from gangline_e2e.claims.building import (
    API,
    Changed,
    Created,
    Decided,
    Deleted,
    Given,
    Gone,
    Step,
    Story,
    Withheld,
    claim,
    exactly,
    pod,
)
from gangline_e2e.errors import Refused, WaitedTooLong
from gangline_e2e.workloads import IMAGE, Manifest, Manifests

DECIDED_S = 40.0
"""Seconds until a step ends at the latest; the outcome shows what has happened by then."""
CLUSTER_WIDE = {"ResourceSlice": "resourceslices", "DeviceClass": "deviceclasses"}
EXTENDED = "resource.kubernetes.io/extended-resource-claim"
CLAIMED = "resource.kubernetes.io/pod-claim-name"


@dataclass(slots=True)
class Outcome:
    """The outcome of a story, without values that differ from run to run."""

    decided: dict[str, list[str]] = field(default_factory=dict)
    """For each pod, for each step that waited for it: its node, or why it has none."""
    claims: dict[str, Any] = field(default_factory=dict)
    """For each claim, named CLAIM, POD/ENTRY or POD/extended: its spec, allocation, consumers and finalizers."""
    mapped: dict[str, Any] = field(default_factory=dict)
    """For each pod: which container uses which request of the claim for extended resources."""

    def devices(self, claim: str) -> list[str]:
        """REQUEST=DEVICE of a claim in order."""
        allocation = self.claims[claim]["allocation"] or {}
        return [f"{each['request']}={each['device']}" for each in allocation.get("devices", {}).get("results", [])]


async def prepare(api: Api, stories: Sequence[Story]) -> None:
    """Create all objects that have to exist before the first pod."""
    await api.merge(
        f"/api/v1/namespaces/{api.namespace}", {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    )
    await api.create_many(story.told(each) for story in stories for each in story.there)
    for story in stories:
        for step in story.before:
            await _take(api, story, step, Outcome())


async def tell(api: Api, stories: Sequence[Story]) -> dict[str, Outcome]:
    """Tell all stories at once, each step by step."""
    async with asyncio.TaskGroup() as group:
        told = {story.name: group.create_task(_tell(api, story)) for story in stories}
    outcomes = {name: each.result() for name, each in told.items()}
    with suppress(WaitedTooLong):
        await api.until(lambda: _is_settled(api), "the controllers have done their work", DECIDED_S)
    claims, pods = await api.list(_collection(api, "ResourceClaim")), await api.list(api.pods)
    for name, outcome in outcomes.items():
        outcome.mapped = {
            _short(each["metadata"]["name"], name): each["status"]["extendedResourceClaimStatus"]["requestMappings"]
            for each in pods
            if _is_of(each, name) and "extendedResourceClaimStatus" in each["status"]
        }
        outcome.claims = {_called(each, name): _kept(each, name) for each in claims if _is_of(each, name)}
    return outcomes


async def _tell(api: Api, story: Story) -> Outcome:
    """Tell one story as far as the API server lets it; a step that it refuses is noted, and harms no other story."""
    outcome = Outcome()
    try:
        for step in story.steps:
            await _take(api, story, step, outcome)
    except Refused as error:
        outcome.decided["a step is refused"] = [str(error)]
    return outcome


async def _is_settled(api: Api) -> bool:
    """Whether the controllers have nothing left to do for claims of pods and groups that are gone."""
    claims, there = await api.list(_collection(api, "ResourceClaim")), await api.list(api.pods)
    with suppress(Refused):  # the API server may have no such groups
        there += await api.list(_collection(api, "PodGroup"))
    uids = {each["metadata"]["uid"] for each in there}
    for held in claims:
        metadata, status = held["metadata"], held.get("status", {})
        users = {each["uid"] for each in (*metadata.get("ownerReferences", []), *status.get("reservedFor", []))}
        is_freed = bool(status.get("allocation")) or not metadata.get("finalizers")
        if "deletionTimestamp" in metadata or not users <= uids or not is_freed:
            return False
    return True


async def _take(api: Api, story: Story, step: Step, outcome: Outcome) -> None:
    match step:
        case Created():
            made = await api.create(story.told(step.manifest))
            if step.at or step.refused:
                await _decision(api, story, made["metadata"]["name"], step, outcome)
        case Decided():
            await _decision(api, story, story.told(step.name), step, outcome)
        case Deleted():
            await api.delete(f"{_collection(api, step.kind)}/{story.told(step.name)}", at_once=True)
            if step.kind == "Node":
                await _forgotten(api, story.told(step.name))
        case Changed():
            path = f"{_collection(api, step.kind)}/{story.told(step.name) or api.namespace}"
            await api.merge(f"{path}/{step.subresource}" if step.subresource else path, story.told(step.patch))
        case Given():
            await _devices(api, story, step)
        case Gone():
            await _gone(api, f"{_collection(api, step.kind)}/{story.told(step.name)}")
        case Withheld():
            await _withheld(api, story)


async def _gone(api: Api, path: str) -> None:
    """Wait until an object is gone. If it stays, the outcome shows that it is there still."""

    async def is_gone() -> bool:
        try:
            await api.get(path)
        except Refused as error:
            return error.status == 404
        return False

    with suppress(WaitedTooLong):
        await api.until(is_gone, f"{path} is gone", DECIDED_S)


async def _forgotten(api: Api, node: str) -> None:
    """Wait until the scheduler knows that a node is gone, as it reads nodes and pods by watches of their own: it gives
    this node to no other pod that asks for it.
    """
    tries = count()

    async def is_forgotten() -> bool:
        probe = f"{node}-{next(tries)}"
        await api.create(_probe(probe, node))
        found = await _tried(api, probe)
        await api.delete(f"{api.pods}/{probe}", at_once=True)
        return not found

    with suppress(WaitedTooLong):
        await api.until(is_forgotten, f"the scheduler knows that {node} is gone", DECIDED_S)


async def _withheld(api: Api, story: Story) -> None:
    """Wait until the scheduler knows the taints of the free devices, as it reads rules and slices by watches of their
    own: it gives the devices to no claim.
    """
    tries = count()

    async def is_withheld() -> bool:
        name = f"probe{next(tries)}"
        await api.create(story.told(claim(name, exactly())))
        await api.create(story.told(pod(name, name).manifest))
        found = await _tried(api, story.told(f"@{name}"))
        for kind in ("Pod", "ResourceClaim"):
            await api.delete(f"{_collection(api, kind)}/{story.told(f'@{name}')}", at_once=True)
        return not found

    with suppress(WaitedTooLong):
        await api.until(is_withheld, f"the devices of {story.name} are withheld", DECIDED_S)


async def _tried(api: Api, name: str) -> str:
    """The node of a pod, or "", when the scheduler has tried the pod."""
    found = ""

    async def is_tried() -> bool:
        nonlocal found
        now = await api.get(f"{api.pods}/{name}")
        found = now["spec"].get("nodeName", "")
        return bool(found or _reason(now))

    await api.until(is_tried, f"{name} is decided", DECIDED_S)
    return found


def _probe(name: str, node: str) -> Manifest:
    """A pod that may go to this node alone."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    spec = {
        "automountServiceAccountToken": False,
        "containers": [{"name": "main", "image": IMAGE}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


async def _devices(api: Api, story: Story, step: Given) -> None:
    """Wait until a claim has a device. If the claim gets another device than the story says, later steps fail."""
    path = f"{_collection(api, 'ResourceClaim')}/{story.told(step.name)}"

    async def has_it() -> bool:
        allocation = (await api.get(path)).get("status", {}).get("allocation") or {}
        return any(each["device"] == step.device for each in allocation.get("devices", {}).get("results", []))

    with suppress(WaitedTooLong):
        await api.until(has_it, f"{step.name} has {step.device}", DECIDED_S)


async def _decision(api: Api, story: Story, pod: str, expected: Created | Decided, outcome: Outcome) -> None:
    """Note the pod's node, or why it has none: once the expected answer is there, or after DECIDED_S."""
    path, found = f"{api.pods}/{pod}", ""
    refused = story.told(expected.refused).replace("NAMESPACE", api.namespace)

    async def is_decided() -> bool:
        nonlocal found
        now = await api.get(path)
        found = now["spec"].get("nodeName", "") or _reason(now)
        return (bool(refused) and refused in found) or found == story.told(f"@{expected.at}")

    with suppress(WaitedTooLong):
        await api.until(is_decided, f"{pod} is decided", DECIDED_S)
    said = _short(found, story.name).replace(api.namespace, "NAMESPACE")
    outcome.decided.setdefault(_short(pod, story.name), []).append(said)


def _reason(pod: Manifest) -> str:
    conditions: Manifests = pod["status"].get("conditions", [])
    return next((each.get("message", "") for each in conditions if each["type"] == "PodScheduled"), "")


def _collection(api: Api, kind: str) -> str:
    if kind == "Pod":
        return api.pods
    if kind == "Node":
        return "/api/v1/nodes"
    if kind == "Namespace":
        return "/api/v1/namespaces"
    if kind == "DeviceTaintRule":
        return "/apis/resource.k8s.io/v1beta2/devicetaintrules"
    if kind == "PodGroup":
        return f"/apis/scheduling.k8s.io/v1alpha2/namespaces/{api.namespace}/podgroups"
    if kind in CLUSTER_WIDE:
        return f"/apis/{API}/{CLUSTER_WIDE[kind]}"
    return f"/apis/{API}/namespaces/{api.namespace}/{kind.lower()}s"


def _is_of(claim: Manifest, story: str) -> bool:
    return str(claim["metadata"]["name"]).startswith(f"{story}--")


def _called(claim: Manifest, story: str) -> str:
    """The name of a claim in its story; one made for a pod is named by the pod and its entry."""
    metadata = claim["metadata"]
    entry = metadata.get("annotations", {}).get(CLAIMED)
    if metadata.get("annotations", {}).get(EXTENDED) == "true":
        entry = "extended"
    if entry is None:
        return _short(metadata["name"], story)
    return f"{_short(metadata['ownerReferences'][0]['name'], story)}/{entry}"


def _kept(claim: Manifest, story: str) -> Manifest:
    status = claim.get("status", {})
    consumers = sorted(_consumer(each, story) for each in status.get("reservedFor", []))
    allocation = status.get("allocation")
    for result in (allocation or {}).get("devices", {}).get("results", []):
        if "shareID" in result:
            result["shareID"] = "some"
    if allocation is not None and "allocationTimestamp" in allocation:
        allocation["allocationTimestamp"] = "some"
    finalizers = claim["metadata"].get("finalizers", [])
    return {"spec": claim["spec"], "allocation": allocation, "reservedFor": consumers, "finalizers": finalizers}


def _consumer(reference: Manifest, story: str) -> str:
    """The name of a pod; of anything else its resource, group and name, as RESOURCE.GROUP/NAME."""
    name = _short(reference["name"], story)
    kind = f"{reference['resource']}.{reference.get('apiGroup', '')}"
    return name if kind == "pods." else f"{kind}/{name}"


def _short(text: str, story: str) -> str:
    return text.replace(f"{story}--", "")
