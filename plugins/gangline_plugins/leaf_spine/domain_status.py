"""Background work of LeafSpine: writes the number of nodes and the number of GPUs in use into the status of each
DomainConfig.

Rules:
- A status is written if it has changed, at most every PERIOD seconds, by one profile of the scheduler that leads.
- The nodes are those of the leaf or spine with the DomainConfig's name and type. If there is none, they are those of
  the narrowest domain of this name that is no node; if there is no such domain either, there are no nodes.
- The observed generation is that of the specification in use; that of a refused specification is never written.
- A status that cannot be written is tried again in the next round, and does not keep others from being written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gangline import HOST, ApiError, Domains, Handle, NotFound, gpu_use, model, resources
from gangline_plugins.leaf_spine.configured import Configured
from gangline_plugins.leaf_spine.layout import Ints

log = logging.getLogger(__name__)

PERIOD = 30.0
"""Seconds between two rounds."""


class DomainStatuses:
    """Writes the status of DomainConfigs."""

    def __init__(self, handle: Handle, configured: Configured) -> None:
        self._handle = handle
        self._configured = configured
        self._turn = handle.state.shared(_Turn)
        self._said = ""

    async def run(self) -> None:
        """Write changed statuses until cancelled; waits while another profile does so."""
        async with self._turn:
            while True:
                await self.step()
                await asyncio.sleep(PERIOD)

    async def step(self) -> None:
        """Write each status that has changed. A failure of the API server is logged once."""
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
        """The DomainConfigs whose status has changed, each with its new status."""
        domains = self._configured.domain_configs()
        if not domains:
            return ()
        nodes = self._handle.nodes
        use = gpu_use.counted(gpu_use.gather(nodes, self._handle.state))
        wanted = [(self._configured.level_of(domain), domain.metadata.name) for domain in domains]
        counts = counts_of(wanted, self._handle.topology.chain(), nodes.alive.astype(np.int64), use.used)
        found = [
            (domain, _status(domain, *numbers, is_refused=self._configured.is_refused(domain)))
            for domain, numbers in zip(domains, counts, strict=True)
        ]
        return [(domain, new) for domain, new in found if {**domain.status, **new} != domain.status]


class _Turn(asyncio.Lock):
    """The lock of the profile that writes."""


def counts_of(
    wanted: Sequence[tuple[str, str]], levels: Sequence[Domains], nodes: Ints, gpus: Ints
) -> Sequence[tuple[int, int]]:
    """For each wanted domain, given by level and name, the sums of two columns (one value per row of the cluster).
    `levels` are given widest first.

    Domains of equal names within different wider domains are added up.
    """
    named, names = {level for level, _ in wanted}, {name for _, name in wanted}
    sums: dict[str, dict[str, tuple[int, int]]] = {}
    for level in levels:
        if level.level == HOST and HOST not in named:
            continue  # there are as many such domains as nodes
        here = sums[level.level] = {}
        columns = zip(level.values, level.sums(nodes).tolist(), level.sums(gpus).tolist(), strict=True)
        for name, some, used in columns:
            if name in names:
                before = here.get(name, (0, 0))
                here[name] = (before[0] + some, before[1] + used)
    order = [sums[level.level] for level in reversed(levels) if level.level != HOST]
    return [
        next((each[name] for each in (sums.get(level, {}), *order) if name in each), (0, 0)) for level, name in wanted
    ]


def _status(domain: model.Document, nodes: int, gpus: int, *, is_refused: bool) -> Mapping[str, Any]:
    numbers: dict[str, Any] = {"currentNodes": nodes, "allocatedGPUs": gpus}
    return numbers if is_refused else {"observedGeneration": domain.metadata.generation, **numbers}
