"""Background work of LeafSpine: the status of a DomainConfig says how many nodes it has and how many GPUs are in use.

Rules:
- A status is written when it has changed, every PERIOD seconds at most, by one profile of the scheduler that leads.
- The nodes are those of the narrowest level that has a domain of this name; where none has, there are none.
- One that cannot be written is tried again at the next look and keeps no other from being written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from gangline import ApiError, Domains, Handle, NotFound, model, resources
from gangline.overview.gpu_use import counted, gather
from gangline_plugins.leaf_spine.configured import Configured
from gangline_plugins.leaf_spine.layout import Ints

log = logging.getLogger(__name__)

PERIOD = 30.0
"""Seconds between two looks."""


class DomainStatuses:
    """Writes what DomainConfigs have come to."""

    def __init__(self, handle: Handle, configured: Configured) -> None:
        self._handle = handle
        self._configured = configured
        self._said = ""

    async def run(self) -> None:
        """Look and write until cancelled; not while another profile does."""
        async with self._handle.state.shared(_Turn):
            while True:
                await self.step()
                await asyncio.sleep(PERIOD)

    async def step(self) -> None:
        """Write each status that is not what there is now. What the API server refuses is logged once."""
        said = ""
        for domain, status in self._changed():
            try:
                await self._handle.client.patch(
                    resources.DOMAIN_CONFIGS,
                    domain.metadata.name,
                    {"status": status},
                    namespace=domain.metadata.namespace,
                    subresource="status",
                )
            except NotFound:
                continue
            except ApiError as error:
                said = f"cannot write the status of DomainConfigs now: {error}"
        if said and said != self._said:
            log.warning("%s", said)
        self._said = said

    def _changed(self) -> Sequence[tuple[model.Document, Mapping[str, Any]]]:
        """The DomainConfigs whose status is another one now, with that."""
        domains = self._configured.domain_configs()
        if not domains:
            return ()
        names = {domain.metadata.name for domain in domains}
        nodes = self._handle.nodes
        use = counted(gather(nodes, self._handle.state))
        counts = counts_of(names, self._handle.topology.chain(), nodes.alive.astype(np.int64), use.used)
        found = [(domain, _status(domain, *counts[domain.metadata.name])) for domain in domains]
        return [(domain, new) for domain, new in found if {**domain.status, **new} != domain.status]


class _Turn(asyncio.Lock):
    """Held by the profile that writes."""


def counts_of(
    names: Collection[str], levels: Sequence[Domains], nodes: Ints, gpus: Ints
) -> Mapping[str, tuple[int, int]]:
    """The sums of two columns (one value per row of the cluster) over the domains of each name; levels widest first."""
    counts = dict.fromkeys(names, (0, 0))
    for level in levels:  # a narrower one overrules
        here: dict[str, tuple[int, int]] = {}
        sums = zip(level.values, level.sums(nodes).tolist(), level.sums(gpus).tolist(), strict=True)
        for name, some, used in sums:
            if name in counts:
                before = here.get(name, (0, 0))
                here[name] = (before[0] + some, before[1] + used)
        counts |= here
    return counts


def _status(domain: model.Document, nodes: int, gpus: int) -> Mapping[str, Any]:
    return {"observedGeneration": domain.metadata.generation, "currentNodes": nodes, "allocatedGPUs": gpus}
