"""The plugin: decides with `claims`, `matching` and `provisioning`, and carries the decision out with `binding`."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Annotated

import msgspec
import numpy as np

from gangline import (
    SKIP,
    SKIP_CLASS,
    Action,
    BoolColumn,
    Code,
    CodeColumn,
    Cycle,
    EventHint,
    Handle,
    NodeView,
    PodInfo,
    Reason,
    StateKey,
    Status,
    hookimpl,
    model,
    on,
    resources,
    unschedulable,
)
from gangline_plugins.volumes.objects import (
    StorageObjects,
    has_ephemeral_claims,
    is_claim_of,
    limit_bytes,
    requested_bytes,
    selected_node,
    uses_claims,
)
from gangline_plugins.volumes.volume_binding.assumed import Assumed
from gangline_plugins.volumes.volume_binding.binding import Checks, PodVolumes, for_claim, for_node, wait_for, write
from gangline_plugins.volumes.volume_binding.claims import PodVolumeClaims, likeness_of, sort_claims
from gangline_plugins.volumes.volume_binding.matching import Catalogue, ChoiceColumn, VolumeChoices, reaches
from gangline_plugins.volumes.volume_binding.provisioning import VolumeProvisioning


class VolumeObstacle(IntEnum):
    """Why volumes keep a pod from a node, each with its reason. A code has the bit of each obstacle of the node."""

    reason: Reason

    def __new__(cls, bit: int, message: str) -> VolumeObstacle:
        obstacle = int.__new__(cls, bit)
        obstacle._value_ = bit
        obstacle.reason = Reason(message, resolvable=False)
        return obstacle

    UNREACHABLE = 1, "node(s) didn't match PersistentVolume's node affinity"
    NO_MATCH = 2, "node(s) didn't find available persistent volumes to bind"
    NO_ROOM = 4, "node(s) did not have enough free storage"
    MISSING = 8, "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"


@dataclass(slots=True)
class _Decision:
    """The decision about a pod's volumes in one attempt."""

    claims: PodVolumeClaims
    volumes: list[model.PersistentVolume] = field(default_factory=list)
    choices: list[tuple[model.PersistentVolumeClaim, ChoiceColumn]] = field(default_factory=list)
    """For each claim to bind the number of its volume on each row; -1 if a volume is to be provisioned."""
    is_checked: bool = False
    """Whether `choices` have been made."""


_DECISION: StateKey[_Decision] = StateKey("VolumeBinding")
_TO_BIND: StateKey[PodVolumes] = StateKey("VolumeBinding to bind")


class VolumeBindingArgs(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Arguments, named as upstream."""

    bind_timeout_seconds: Annotated[int, msgspec.Meta(ge=0)] = 600
    """The longest time, in seconds, that a pod's volumes may take to be bound before the pod is tried again."""


class VolumeBinding:
    """Finds volumes for claims, or nodes for which volumes can be provisioned, and has them bound before the pod."""

    name = "VolumeBinding"
    ignores_requests = True
    args_type = VolumeBindingArgs

    def __init__(self, args: VolumeBindingArgs, handle: Handle) -> None:
        state = handle.state
        self._timeout = float(args.bind_timeout_seconds)
        self._handle = handle
        self._objects = StorageObjects(state)
        self._volumes: Assumed[model.PersistentVolume] = Assumed(state.store(resources.PVS))
        self._claims: Assumed[model.PersistentVolumeClaim] = Assumed(state.store(resources.PVCS))
        self._catalogue = Catalogue(state.store(resources.PVS))
        self._provisioning = VolumeProvisioning(
            self._objects, state.store(resources.CSI_DRIVERS), state.store(resources.CSI_STORAGE_CAPACITIES)
        )
        self._checks = Checks(handle)

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """Objects whose change makes volumes available, reachable or possible to provision.

        Deleted pods count too: a pod whose binding fails releases volumes that were assigned in this process only.
        """
        return (
            on("storageclasses", Action.ADD | Action.UPDATE, _allows_more),
            on("persistentvolumeclaims", Action.ADD | Action.UPDATE, lambda pod, old, new: is_claim_of(pod, new)),
            on("persistentvolumes", Action.ADD | Action.UPDATE),
            on("nodes", Action.ADD | Action.UPDATE_NODE_LABEL),
            on("pods", Action.DELETE, lambda pod, old, new: old is None or uses_claims(old.cls)),
            on("csidrivers", Action.UPDATE | Action.DELETE, _reports_no_capacity),
            on("csistoragecapacities", Action.ADD | Action.UPDATE, _has_more_room),
        )

    @hookimpl
    def pre_filter(self, cycle: Cycle, pod: PodInfo) -> Status | None:
        """Check the claims; pods without claims skip the filter."""
        if not uses_claims(pod.cls):
            return SKIP_CLASS
        claims = sort_claims(pod, self._objects, self._claims)
        if isinstance(claims, Status):
            return claims
        cycle.write(_DECISION, _Decision(claims))
        return None

    @hookimpl
    def identity(self, pod: PodInfo) -> Hashable:
        """What the claims for ephemeral volumes are like: pods of one class have claims of their own there."""
        if not has_ephemeral_claims(pod.cls):
            return None
        return likeness_of(pod, self._objects, self._claims, self._volumes)

    @hookimpl
    def identity_all(self, pods: Sequence[PodInfo]) -> Sequence[Hashable] | None:
        """As `identity` for each."""
        has_some = any(map(has_ephemeral_claims, {pod.cls for pod in pods}))
        return list(map(self.identity, pods)) if has_some else None

    @hookimpl
    def filter(self, cycle: Cycle, nodes: NodeView) -> CodeColumn:
        """Nodes that cannot reach a volume, and nodes without a volume where none can be provisioned."""
        return self._check(cycle.read(_DECISION), nodes)

    def explain(self, cycle: Cycle, pod: PodInfo, code: int) -> Sequence[Reason]:
        """The reasons that a code stands for."""
        return [each.reason for each in VolumeObstacle if code & each]

    @hookimpl
    def reserve(self, cycle: Cycle, pod: PodInfo, node: str) -> Status | None:
        """Assign the volumes to the claims in memory."""
        decision = cycle.get(_DECISION)
        if decision is None:
            return None
        row = self._handle.nodes.row_of(node)
        if row is None:
            return None
        if not decision.is_checked:  # a member of a group, placed without `filter`: its volumes are chosen here
            decision = _Decision(decision.claims)
            code = int(self._check(decision, self._handle.nodes.at(np.array([row], dtype=np.intp)))[0])
            row = 0
            if code:
                why = ", ".join(each.message for each in self.explain(cycle, pod, code))
                return unschedulable(f"pod {pod.key} on node {node}: {why}")
        to_bind = PodVolumes()
        cycle.write(_TO_BIND, to_bind)
        for claim, choice in decision.choices:
            number = int(choice[row])
            if number >= 0:
                match = for_claim(decision.volumes[number], claim)
                if match.dirty and not self._volumes.assume(match.volume):
                    return _out_of_sync("volume", match.volume.metadata)
                to_bind.matches.append(match)
            else:
                provision = for_node(claim, node)
                if not self._claims.assume(provision.claim):
                    return _out_of_sync("claim", claim.metadata)
                to_bind.provisions.append(provision)
        return None

    @hookimpl
    def unreserve(self, cycle: Cycle, pod: PodInfo, node: str) -> None:
        """Undo the assignments that were not yet written."""
        to_bind = cycle.get(_TO_BIND) or PodVolumes()
        for match in to_bind.matches:
            self._volumes.restore(match.volume)
        for provision in to_bind.provisions:
            self._claims.restore(provision.claim)

    @hookimpl
    def pre_bind_pre_flight(self, cycle: Cycle) -> Status | None:
        """Whether claims have to be bound, for which controllers and drivers may take long."""
        to_bind = cycle.get(_TO_BIND)
        return None if to_bind is not None and (to_bind.matches or to_bind.provisions) else SKIP

    @hookimpl
    async def pre_bind(self, cycle: Cycle, pod: PodInfo, node: str) -> Status | None:
        """Write the decision and wait until all claims are bound. Raises ApiError."""
        to_bind = cycle.get(_TO_BIND)
        if to_bind is None or not (to_bind.matches or to_bind.provisions):
            return None
        await write(self._handle.client, to_bind)
        return await wait_for(
            lambda: self._checks.outcome(pod.uid, node, to_bind), self._timeout, self._handle.clock, asyncio.sleep
        )

    def _check(self, decision: _Decision, nodes: NodeView) -> CodeColumn:
        """The verdicts of `filter`; records the volume that each claim would get."""
        unreachable, missing = self._check_bound(decision.claims.bound, nodes)
        no_match, no_room = self._check_delayed(decision, nodes)
        code = np.zeros(len(nodes), dtype=np.uint8)
        for mask, obstacle in (
            (unreachable, VolumeObstacle.UNREACHABLE),
            (no_match, VolumeObstacle.NO_MATCH),
            (no_room, VolumeObstacle.NO_ROOM),
            (missing, VolumeObstacle.MISSING),
        ):
            code |= mask.astype(np.uint8) * np.uint8(obstacle)
        return code

    def _check_bound(
        self, claims: Sequence[model.PersistentVolumeClaim], nodes: NodeView
    ) -> tuple[BoolColumn, BoolColumn]:
        """Nodes that cannot reach a volume; and all other nodes if the volume of a claim does not exist."""
        unreachable = nodes.full(False)
        for claim in claims:
            volume = self._volumes.get(claim.spec.volume_name)
            if volume is None:
                return unreachable, ~unreachable
            unreachable |= ~reaches(volume, nodes)
        return unreachable, nodes.full(False)

    def _check_delayed(self, decision: _Decision, nodes: NodeView) -> tuple[BoolColumn, BoolColumn]:
        """Nodes where a claim finds no volume, and nodes without space to provision one; records the volume that each
        claim would get.
        """
        elsewhere = nodes.full(False)
        to_make: list[tuple[model.PersistentVolumeClaim, ChoiceColumn]] = []
        to_match: list[model.PersistentVolumeClaim] = []
        for claim in decision.claims.delayed:
            selected = selected_node(claim)
            if selected is None:
                to_match.append(claim)
                continue
            row = nodes.row_of(selected)
            elsewhere |= nodes.rows != (-1 if row is None else row)
            to_make.append((claim, np.full(len(nodes), -1, dtype=np.int64)))
        choices = VolumeChoices(self._catalogue, self._volumes, nodes)
        to_match.sort(key=lambda claim: requested_bytes(claim) or 0)
        decision.choices = to_make + [(claim, choices.choose(claim)) for claim in to_match]
        decision.volumes = choices.volumes
        decision.is_checked = True
        outcome = self._provisioning.check(
            [(claim, ~elsewhere & (choice == -1)) for claim, choice in decision.choices], nodes
        )
        return elsewhere | outcome.impossible, outcome.no_room


def _out_of_sync(kind: str, metadata: model.ObjectMeta) -> Status:
    return Status(Code.ERROR, (f'{kind} "{metadata.name}" has changed since it was looked at',))


def _allows_more(pod: PodInfo, old: model.StorageClass | None, new: model.StorageClass) -> bool:
    return old is None or old.allowed_topologies != new.allowed_topologies


def _reports_no_capacity(pod: PodInfo, old: model.CSIDriver | None, new: model.CSIDriver | None) -> bool:
    return old is None or new is None or (old.spec.storage_capacity and not new.spec.storage_capacity)


def _has_more_room(pod: PodInfo, old: model.CSIStorageCapacity | None, new: model.CSIStorageCapacity) -> bool:
    before = limit_bytes(old) if old is not None else None
    after = limit_bytes(new)
    return old is None or (after is not None and (before is None or after > before))
