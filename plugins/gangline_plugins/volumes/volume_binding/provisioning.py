"""The nodes for which a volume could be provisioned for a claim: by allowed topologies, and by the space that the
driver reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from gangline import BoolColumn, GanglineError, NodeView, model, node_selection
from gangline_plugins.volumes.objects import StorageObjects, class_of_claim, limit_bytes, requested_bytes

_NO_PROVISIONER = "kubernetes.io/no-provisioner"


class ProvisioningOutcome(NamedTuple):
    """The nodes for which all claims can be provisioned, and the reasons for the others."""

    impossible: BoolColumn
    no_room: BoolColumn


class VolumeProvisioning:
    """Reads the drivers, and the free space that they report."""

    def __init__(self, objects: StorageObjects, drivers: Any, capacities: Any) -> None:
        self._objects = objects
        self._drivers = drivers
        self._capacities = capacities

    def check(
        self, claims: Sequence[tuple[model.PersistentVolumeClaim, BoolColumn]], nodes: NodeView
    ) -> ProvisioningOutcome:
        """Check claims in order, each on the nodes where it needs a volume; the first failure on a node counts.

        Raises GanglineError for a claim whose class is not there.
        """
        impossible, no_room = nodes.full(False), nodes.full(False)
        for claim, where in claims:
            where = where & ~impossible & ~no_room
            if not where.any():
                continue
            storage_class = self._class_of(claim)
            if storage_class.provisioner in ("", _NO_PROVISIONER):
                impossible |= where
                continue
            allowed = _allowed(storage_class.allowed_topologies, nodes)
            impossible |= where & ~allowed
            no_room |= where & allowed & ~self._has_room(claim, storage_class, nodes)
        return ProvisioningOutcome(impossible, no_room)

    def _class_of(self, claim: model.PersistentVolumeClaim) -> model.StorageClass:
        name = class_of_claim(claim)
        storage_class = self._objects.storage_class(name)
        if storage_class is None:
            raise GanglineError(f'failed to find storage class "{name}"')
        return storage_class

    def _has_room(
        self, claim: model.PersistentVolumeClaim, storage_class: model.StorageClass, nodes: NodeView
    ) -> BoolColumn:
        size = requested_bytes(claim)
        driver = self._drivers.get(storage_class.provisioner)
        if size is None or driver is None or not driver.spec.storage_capacity:
            return nodes.full(True)
        room = nodes.full(False)
        by_label: dict[str, set[str]] = {}
        for capacity in self._capacities:
            limit = limit_bytes(capacity)
            if capacity.storage_class_name != storage_class.metadata.name or limit is None or limit < size:
                continue
            topology = capacity.node_topology
            labels = (topology.match_labels or {}) if topology is not None else {}
            if topology is not None and len(labels) == 1 and not topology.match_expressions:
                ((key, value),) = labels.items()
                by_label.setdefault(key, set()).add(value)
            elif topology is not None:
                room |= _matches(topology, nodes)
        for key, values in by_label.items():
            room |= nodes.label(key).isin(values)
        return room


def _allowed(terms: Sequence[model.TopologySelectorTerm], nodes: NodeView) -> BoolColumn:
    """Nodes that one of the terms allows; all when there is no term, none for an empty one."""
    if not terms:
        return nodes.full(True)
    allowed = nodes.full(False)
    for term in terms:
        if term.match_label_expressions:
            masks = [nodes.label(wanted.key).isin(wanted.values) for wanted in term.match_label_expressions]
            allowed |= reduce(np.logical_and, masks)
    return allowed


def _matches(selector: model.LabelSelector, nodes: NodeView) -> BoolColumn:
    """Nodes whose labels match; an empty selector matches all."""
    expressions = [
        *(model.Requirement(key, "In", [value]) for key, value in (selector.match_labels or {}).items()),
        *selector.match_expressions,
    ]
    if not expressions:
        return nodes.full(True)
    return node_selection.match_term(model.NodeSelectorTerm(match_expressions=expressions), nodes)
