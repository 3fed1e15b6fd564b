"""Simulates the controller of ResourceClaims: creates claims from templates, and takes devices back from ended pods.

The rules are those of kube-controller-manager. A claim that is created for a pod has the pod as its owner, and the
status of the pod has its name. A pod that has ended, or is gone, no longer reserves a claim. A claim that loses its
last consumer in this way gives its devices back. A claim that was created for a pod is deleted with the pod, or when
the pod has ended. A template in spec.resourceClaims of a PodGroup gives one claim to the PodGroup, reserved for it
until the PodGroup is deleted. Only an API server with the feature gate DRAWorkloadResourceClaims keeps this field, so
the controller needs no gate of its own.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from gangline.errors import Conflict, NotFound
from gangline.kube.claim_writing import FINALIZER
from gangline.kube.interface import EventType
from gangline.kube.resources import (
    POD_GROUPS_V1ALPHA2,
    POD_GROUPS_V1BETA1,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    Resource,
)
from gangline.simulate.following import follow_all
from gangline.simulate.history import Data, Notice, Revision
from gangline.simulate.server import InMemoryServer
from gangline.simulate.workloads import FINISHED, controller

ENTRY = "resource.kubernetes.io/pod-claim-name"
"""The annotation of a claim that was created for a pod: the name of the entry in the pod's spec.resourceClaims."""

POD_GROUPS = (POD_GROUPS_V1BETA1, POD_GROUPS_V1ALPHA2)
"""PodGroups in both of their versions; an API server serves one of them."""
Key = tuple[str, str]
"""Namespace and name."""


class ClaimController:
    """Looks after the claims of one server."""

    def __init__(self, server: InMemoryServer) -> None:
        self._server = server
        self._lacking: defaultdict[Key, set[Key]] = defaultdict(set)  # by template that is not there: the pods

    async def run(self) -> None:
        """Makes claims and takes devices back until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            followed: list[tuple[Resource[Any], Callable[[Notice], None]]] = [
                *((each, self._see_group) for each in POD_GROUPS),
                (RESOURCE_CLAIM_TEMPLATES, self._see_template),
                (RESOURCE_CLAIMS, self._see_claim),
                (PODS, self._see_pod),
            ]
            for resource, see in followed:
                tasks.create_task(follow_all(self._server, resource, see), name=f"claims: {resource.plural}")

    def _see_template(self, notice: Notice) -> None:
        for namespace, name in self._lacking.pop(_key(notice.revision.data), ()):
            self._make(self._get(PODS, namespace, name))

    def _see_claim(self, notice: Notice) -> None:
        namespace, name = _key(notice.revision.data)
        self._tidy(namespace, name)
        owner = controller(notice.revision.data)
        if notice.type is EventType.DELETED and owner is not None and owner["kind"] == PODS.kind:
            self._make(self._get(PODS, namespace, owner["name"]))

    def _see_group(self, notice: Notice) -> None:
        """A PodGroup was created, for which pods may have waited, or was deleted, so that its claims are free."""
        group = notice.revision.data
        namespace, name = _key(group)
        if not group.get("spec", {}).get("resourceClaims"):
            return
        if notice.type is not EventType.DELETED:
            for pod in self._server.list(PODS, namespace=namespace):
                if _group_of(pod.data) == name:
                    self._make(self._get(PODS, *_key(pod.data)))
            return
        for claim in self._server.list(RESOURCE_CLAIMS, namespace=namespace):
            self._tidy(*_key(claim.data))

    def _see_pod(self, notice: Notice) -> None:
        pod = notice.revision.data
        if not pod["spec"].get("resourceClaims") and "extendedResourceClaimStatus" not in pod.get("status", {}):
            return
        namespace, name = _key(pod)
        self._make(self._get(PODS, namespace, name))
        for claim in _claims(pod):
            if pod["spec"].get("nodeName"):
                self._reserve(self._get(RESOURCE_CLAIMS, namespace, claim), pod)
            self._tidy(namespace, claim)

    def _make(self, pod: Data | None) -> None:
        """Create the claims that a pod lacks, and write their names into its status."""
        if pod is None or _is_done(pod) or "deletionTimestamp" in pod["metadata"]:
            return
        namespace, name = _key(pod)
        before = pod["status"].get("resourceClaimStatuses", [])
        known = {each["name"]: each.get("resourceClaimName") for each in before}
        made: dict[str, str] = {}
        for entry in pod["spec"].get("resourceClaims", ()):
            wanted, claim = entry.get("resourceClaimTemplateName"), known.get(entry["name"])
            if not wanted or (entry["name"] in known and claim is None):
                continue
            if claim is not None and self._get(RESOURCE_CLAIMS, namespace, claim) is not None:
                continue
            template = self._get(RESOURCE_CLAIM_TEMPLATES, namespace, wanted)
            if template is None:
                self._lacking[namespace, wanted].add((namespace, name))
                continue
            made[entry["name"]] = self._made(template, pod, entry)
        if made:
            statuses = [*(each for each in before if each["name"] not in made), *map(_status, made.items())]
            status = {**pod["status"], "resourceClaimStatuses": statuses}
            self._server.replace(PODS, {**pod, "status": status}, subresource="status")

    def _made(self, template: Data, pod: Data, entry: Data) -> str:
        """The name of the claim for an entry of a pod: of a new claim, or of the claim of the pod's group."""
        group = self._group(pod["metadata"]["namespace"], _group_of(pod))
        if group is None or entry not in group.get("spec", {}).get("resourceClaims", ()):
            return _name_of(self._server.create(RESOURCE_CLAIMS, _made_from(template, pod, entry["name"], PODS)))
        for claim in self._server.list(RESOURCE_CLAIMS, namespace=pod["metadata"]["namespace"]):
            owner, annotations = controller(claim.data), claim.data["metadata"].get("annotations", {})
            if owner and owner["uid"] == group["metadata"]["uid"] and annotations.get(ENTRY) == entry["name"]:
                return _name_of(claim)
        made = _made_from(template, group, entry["name"], POD_GROUPS_V1ALPHA2)
        return _name_of(self._server.create(RESOURCE_CLAIMS, made))

    def _group(self, namespace: str, name: str) -> Data | None:
        found = (self._get(each, namespace, name) for each in POD_GROUPS if name)
        return next((each for each in found if each is not None), None)

    def _reserve(self, claim: Data | None, pod: Data) -> None:
        """Reserve a claim that has devices for a pod whose node no scheduler has chosen."""
        if claim is None or "allocation" not in claim.get("status", {}) or _is_done(pod):
            return
        consumers = claim["status"].get("reservedFor", [])
        metadata = pod["metadata"]
        group = {"apiGroup": POD_GROUPS_V1ALPHA2.group, "resource": POD_GROUPS_V1ALPHA2.plural, "name": _group_of(pod)}
        if "deletionTimestamp" not in claim["metadata"] and not any(
            each["uid"] == metadata["uid"] or group.items() <= each.items() for each in consumers
        ):
            consumer = {"resource": PODS.plural, "name": metadata["name"], "uid": metadata["uid"]}
            self._write(claim, {**claim["status"], "reservedFor": [*consumers, consumer]})

    def _tidy(self, namespace: str, name: str) -> None:
        """Remove ended consumers from a claim. A claim without consumers gives its devices back, or is deleted."""
        claim = self._get(RESOURCE_CLAIMS, namespace, name)
        if claim is None:
            return
        status = claim.get("status", {})
        consumers = status.get("reservedFor", [])
        valid = [each for each in consumers if self._is_alive(namespace, each)]
        is_deleted = "deletionTimestamp" in claim["metadata"]
        if not valid and (consumers or is_deleted) and FINALIZER in claim["metadata"].get("finalizers", ()):
            left = {key: value for key, value in status.items() if key not in ("allocation", "reservedFor")}
            changed = self._write(claim, left)
            finalizers = [each for each in claim["metadata"]["finalizers"] if each != FINALIZER]
            metadata = {**changed["metadata"], "finalizers": finalizers}
            self._server.replace(RESOURCE_CLAIMS, {**changed, "metadata": metadata})
        elif len(valid) < len(consumers):
            self._write(claim, {**status, "reservedFor": valid})
        owner = controller(claim)
        if valid or is_deleted or owner is None or owner["kind"] != PODS.kind:
            return
        pod = self._get(PODS, namespace, owner["name"])
        if pod is None or pod["metadata"]["uid"] != owner["uid"] or _is_done(pod):
            with suppress(NotFound, Conflict):
                self._server.delete(RESOURCE_CLAIMS, name, namespace=namespace, uid=claim["metadata"]["uid"])

    def _is_alive(self, namespace: str, consumer: Mapping[str, Any]) -> bool:
        """Whether a consumer still uses the claim. A consumer that is neither a pod nor a PodGroup always does."""
        if (consumer.get("apiGroup"), consumer["resource"]) == (POD_GROUPS_V1ALPHA2.group, POD_GROUPS_V1ALPHA2.plural):
            group = self._group(namespace, consumer["name"])
            return group is not None and group["metadata"]["uid"] == consumer["uid"]
        if consumer.get("apiGroup") or consumer.get("resource") != PODS.plural:
            return True
        pod = self._get(PODS, namespace, consumer["name"])
        return pod is not None and pod["metadata"]["uid"] == consumer["uid"] and not _is_done(pod)

    def _write(self, claim: Data, status: Data) -> Data:
        new = self._server.replace(RESOURCE_CLAIMS, {**claim, "status": status}, subresource="status")
        return new.data

    def _get(self, resource: Resource[Any], namespace: str, name: str) -> Data | None:
        try:
            return self._server.get(resource, name, namespace=namespace).data
        except NotFound:
            return None


def _group_of(pod: Data) -> str:
    """The name of the PodGroup of a pod; "" for none."""
    return str((pod["spec"].get("schedulingGroup") or {}).get("podGroupName", ""))


def _name_of(made: Revision) -> str:
    return str(made.data["metadata"]["name"])


def _key(data: Data) -> Key:
    return data["metadata"].get("namespace", "default"), data["metadata"]["name"]


def _claims(pod: Data) -> Iterator[str]:
    """The names of the claims of a pod, as far as the claims have been created."""
    for entry in pod["spec"].get("resourceClaims", ()):
        if entry.get("resourceClaimName"):
            yield entry["resourceClaimName"]
    status = pod.get("status", {})
    for each in status.get("resourceClaimStatuses", ()):
        if each.get("resourceClaimName"):
            yield each["resourceClaimName"]
    extended = status.get("extendedResourceClaimStatus", {}).get("resourceClaimName")
    if extended:
        yield extended


def _is_done(pod: Data) -> bool:
    """Whether a pod uses no devices any more, and never will."""
    is_ending = "deletionTimestamp" in pod["metadata"] and not pod["spec"].get("nodeName")
    return is_ending or pod.get("status", {}).get("phase") in FINISHED


def _status(made: tuple[str, str]) -> Data:
    entry, claim = made
    return {"name": entry, "resourceClaimName": claim}


def _made_from(template: Data, whose: Data, entry: str, kind: Resource[Any]) -> Data:
    """The claim for an entry of a pod or PodGroup."""
    spec, metadata = template.get("spec", {}), whose["metadata"]
    given = spec.get("metadata", {})
    owner = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    own: Data = {
        "generateName": f"{metadata['name']}-{entry}-",
        "namespace": metadata["namespace"],
        "annotations": {**given.get("annotations", {}), ENTRY: entry},
        "ownerReferences": [owner],
    }
    if given.get("labels"):
        own["labels"] = given["labels"]
    return {"metadata": own, "spec": spec.get("spec", {})}
