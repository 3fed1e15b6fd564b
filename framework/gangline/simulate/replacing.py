"""Simulates the controllers of pods whose workloads have no template in the snapshot: a deleted pod is created again.

The new pod has the name and the spec of the deleted one, so that both can be compared, but no node and no devices.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing, suppress
from typing import Any

from gangline.errors import Conflict, NotFound
from gangline.kube.interface import EventType
from gangline.kube.resources import PODS
from gangline.simulate.following import follow
from gangline.simulate.history import Data
from gangline.simulate.server import InMemoryServer
from gangline.simulate.workloads import FINISHED, OWNERS, controller, has_template
from gangline.wire.custom_resources import ALLOCATED, ALLOCATED_UUIDS

TIED = frozenset(("DaemonSet", "Node"))
"""Controllers whose pods belong to one particular node, and stay there."""
_OF_ONE_POD = ("uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


class Replacements:
    """Creates deleted pods again that were on a server from the beginning."""

    def __init__(self, server: InMemoryServer) -> None:
        self._server = server
        self._known = {each.data["metadata"]["uid"] for each in server.list(PODS) if comes_again(each.data)}

    async def run(self) -> None:
        """Creates deleted pods again until cancelled."""
        async with aclosing(follow(self._server, PODS)) as notices:
            async for notice in notices:
                data = notice.revision.data
                uid = data["metadata"]["uid"]
                if notice.type is EventType.DELETED and uid in self._known and not _has_template(data, self._server):
                    self._known.discard(uid)
                    with suppress(Conflict):  # another controller has created it
                        made = self._server.create(PODS, anew(data))
                        self._known.add(made.data["metadata"]["uid"])


def comes_again(pod: Mapping[str, Any]) -> bool:
    """Whether a controller will create the pod again once it is deleted; False for a pod that has ended, and for a pod
    that is being deleted: its replacement exists already.
    """
    owner = controller(pod)
    is_over = "deletionTimestamp" in pod["metadata"] or pod.get("status", {}).get("phase") in FINISHED
    return owner is not None and owner["kind"] not in TIED and not is_over


def anew(pod: Mapping[str, Any]) -> Data:
    """The pod that replaces a deleted one."""
    metadata = {key: value for key, value in pod["metadata"].items() if key not in _OF_ONE_POD}
    annotations = metadata.get("annotations", {})
    metadata["annotations"] = {k: v for k, v in annotations.items() if k not in (ALLOCATED, ALLOCATED_UUIDS)}
    return {"metadata": metadata, "spec": {key: value for key, value in pod["spec"].items() if key != "nodeName"}}


def _has_template(pod: Mapping[str, Any], server: InMemoryServer) -> bool:
    """Whether the workload of the pod has a template, from which `Workloads` creates pods."""
    owner = controller(pod) or {}
    resource = OWNERS.get((owner.get("apiVersion", ""), owner.get("kind", "")))
    if resource is None:
        return False
    try:
        found = server.get(resource, owner["name"], namespace=pod["metadata"].get("namespace"))
    except NotFound:
        return False
    return has_template(found.data)
