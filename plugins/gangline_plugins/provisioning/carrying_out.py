"""Makes and deletes ProvisioningRequests and PodTemplates, and tells pods of their request. Does the I/O.

Rules
- The request is made first: it owns its templates. A template that is missing, because the process died between the two
  writes, is made later.
- Pods get two annotations that name their request, with their status, because the scheduler may not write pods
  otherwise. cluster-autoscaler then leaves these pods to the request, and does not add nodes for them a second time.
- An object of the same name that belongs to somebody else is never changed or deleted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence

from gangline import (
    ApiError,
    Conflict,
    GanglineError,
    Handle,
    NotFound,
    PodGroup,
    PodInfo,
    custom_resources,
    model,
    resources,
)
from gangline_plugins.provisioning.arguments import ProvisioningArgs
from gangline_plugins.provisioning.asking import GangPodKind, request_of, templates_of
from gangline_plugins.provisioning.conditions import RequestState

log = logging.getLogger(__name__)
_AT_ONCE = 16


class NotOurs(GanglineError):
    """The name of an object that is to be created belongs to somebody else's object."""


def is_of(request: model.ProvisioningRequest, profile: str, key: str = "") -> bool:
    """Whether a profile has made the request, for the gang with this key if one is given."""
    annotations, labels = request.metadata.annotations or {}, request.metadata.labels or {}
    return (
        labels.get(custom_resources.PROVISIONING) == "true"
        and annotations.get(custom_resources.PROVISIONING_PROFILE) == profile
        and key in ("", annotations.get(custom_resources.PROVISIONING_GANG, ""))
    )


class Asking:
    """Writes for the requests of one profile."""

    def __init__(self, handle: Handle, args: ProvisioningArgs) -> None:
        self._handle = handle
        self._args = args

    async def ask(self, group: PodGroup, kinds: Sequence[GangPodKind], attempt: int) -> model.ProvisioningRequest:
        """Make a request with its templates. Raises NotOurs and ApiError."""
        request = request_of(self._handle.profile, group, kinds, attempt, self._args)
        namespace = group.namespace
        try:
            made = await self._handle.client.create(resources.PROVISIONING_REQUESTS, request, namespace=namespace)
        except Conflict:
            made = await self._handle.client.get(
                resources.PROVISIONING_REQUESTS, request.metadata.name, namespace=namespace
            )
            if not is_of(made, self._handle.profile, group.key):
                raise NotOurs(f"ProvisioningRequest {request.metadata.name} exists, and is not the gang's") from None
        await self.complete(made, kinds)
        return made

    async def complete(self, request: model.ProvisioningRequest, kinds: Sequence[GangPodKind]) -> None:
        """Make the templates of a request that are not there. Raises NotOurs and ApiError."""
        for template in templates_of(request, kinds):
            metadata = template.metadata
            try:
                await self._handle.client.create(resources.POD_TEMPLATES, template, namespace=metadata.namespace)
            except Conflict:
                found = await self._handle.client.get(
                    resources.POD_TEMPLATES, metadata.name, namespace=metadata.namespace
                )
                if request.metadata.uid not in (owner.uid for owner in found.metadata.owner_references):
                    raise NotOurs(f"PodTemplate {metadata.name} exists, and is not the request's") from None

    async def remove(self, request: RequestState) -> None:
        """Delete a request; its templates go with it. Raises ApiError."""
        try:
            await self._handle.client.delete(
                resources.PROVISIONING_REQUESTS, request.name, namespace=request.namespace, uid=request.uid
            )
        except (NotFound, Conflict):
            return  # the request is gone, or another request has its name now

    async def tell(self, pods: Iterable[PodInfo], request: str, class_name: str) -> None:
        """Write on pods that wait which request asks for their room. A pod for which that fails is told later."""
        wanted = {custom_resources.CONSUMED_REQUEST: request, custom_resources.CONSUMED_CLASS: class_name}
        untold = (pod for pod in pods if any(pod.annotations.get(key) != value for key, value in wanted.items()))

        async def work() -> None:
            for pod in untold:
                patch = {"metadata": {"uid": pod.uid, "annotations": wanted}}
                try:
                    await self._handle.client.patch(
                        resources.PODS, pod.name, patch, namespace=pod.namespace, subresource="status"
                    )
                except ApiError as error:
                    log.warning("pod %s cannot be told of its ProvisioningRequest yet: %s", pod.key, error)

        async with asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(work())
