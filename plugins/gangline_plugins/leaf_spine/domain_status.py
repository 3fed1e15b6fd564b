"""Background work of LeafSpine: the status of a DomainConfig says how many nodes it has and how many GPUs are in use.

Rules:
- A status is written when it has changed, every PERIOD seconds at most, by one profile of the scheduler that leads.
- The nodes are those of the leaf or spine of this name, as the DomainConfig says which; where there is none, of the
  narrowest domain of this name that is no node, or none.
- The generation is that of the specification in use: one that is refused is not said to be observed.
- One that cannot be written is tried again at the next look and keeps no other from being written.
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
"""Seconds between two looks."""


class DomainStatuses:
    """Writes what DomainConfigs have come to."""

    def __init__(self, handle: Handle, configured: Configured) -> None:
        self._handle = handle
        self._configured = configured
        self._turn = handle.state.shared(_Turn)
        self._said = ""

    async def run(self) -> None:
        """Look and write until cancelled; not while another profile does."""
        async with self._turn:
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
    """Held by the profile that writes."""


def counts_of(
    wanted: Sequence[tuple[str, str]], levels: Sequence[Domains], nodes: Ints, gpus: Ints
) -> Sequence[tuple[int, int]]:
    """The sums of two columns (one value per row of the cluster) over domains, by level and name; levels widest first.

    Domains of equal names under different wider ones are added.
    """
    named, names = {level for level, _ in wanted}, {name for _, name in wanted}
    sums: dict[str, dict[str, tuple[int, int]]] = {}
    for level in levels:
        if level.level == HOST and HOST not in named:
            continue  # as many domains as nodes
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
