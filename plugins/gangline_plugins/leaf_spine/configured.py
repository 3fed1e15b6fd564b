"""What is configured of leaves and spines, from arguments, a ConfigMap and custom resources, as they are now.

Rules:
- Of the same setting or domain the custom resource counts before the ConfigMap, and that before the arguments.
- Only objects in the scheduler's own namespace count. Of several SchedulerConfigs it is the one named like the profile,
  else the first by name; a TopologySchedulerConfig counts before a SchedulerConfig.
- Something invalid leaves what was valid before in place, and is logged in one line.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

import yaml

from gangline import Handle, InvalidObject, Level, Named, model, resources
from gangline.topology import HOST
from gangline_plugins.gpu.device_lease import own_namespace
from gangline_plugins.leaf_spine.arguments import LeafSpineArgs, Settings, settings_of
from gangline_plugins.leaf_spine.documents import DOMAIN_KIND, Domain, Read, SchedulerConfigSpec, read_document

log = logging.getLogger(__name__)

CONFIG_MAP, CONFIG_KEY = "topology-scheduler-config", "config.yaml"
LEAF, SPINE = "leaf", "spine"
_KINDS = (resources.SCHEDULER_CONFIGS, resources.TOPOLOGY_SCHEDULER_CONFIGS, resources.DOMAIN_CONFIGS)
_configured: WeakValueDictionary[int, Configured] = WeakValueDictionary()


def configured(handle: Handle) -> Configured:
    """What is configured for a profile; the same object for all of its plugins."""
    key = id(handle.topology)  # not used again while there is a Configured, which holds the topology
    found = _configured.get(key)
    if found is None:
        found = _configured[key] = Configured(handle, own_namespace())
    return found


class Configured:
    """Settings and domains; `refresh` brings them up to date and costs next to nothing while nothing changes."""

    def __init__(self, handle: Handle, namespace: str) -> None:
        self.watches: tuple[resources.Selection[Any], ...] = (
            *(resources.Selection(kind, namespace) for kind in _KINDS),
            resources.Selection(resources.CONFIG_MAPS, namespace, field_selector=f"metadata.name={CONFIG_MAP}"),
        )
        self.settings = Settings()
        self.domains: Mapping[str, Domain] = {}
        """By name."""
        self.version = 0
        """Grows when something changes."""
        self._profile = handle.profile
        self._topology = handle.topology
        self._namespace = namespace
        self._stores = {kind.key: handle.state.store(kind.key) for kind in (*_KINDS, resources.CONFIG_MAPS)}
        self._args = LeafSpineArgs()
        self._seen: tuple[int, ...] = ()
        self._valid: dict[tuple[str, str], list[Read]] = {}
        self._refused: dict[tuple[str, str], str] = {}
        self._labelled: tuple[Level, ...] | None = None
        """The levels of the topology before any were described."""

    def use(self, args: LeafSpineArgs) -> None:
        """Start from these arguments."""
        self._args = args
        self._seen = ()

    def refresh(self) -> None:
        """Read what has changed."""
        seen = tuple(store.version for store in self._stores.values())
        if seen == self._seen:
            return
        self._seen = seen
        settings, domains = self._read()
        if (settings, domains) == (self.settings, self.domains) and self.version:
            return
        self.version += 1
        self.settings = settings
        if domains != self.domains:
            self.domains = domains
            self._describe()

    def _read(self) -> tuple[Settings, dict[str, Domain]]:
        mapped = list(self._config_map())
        chosen = self._scheduler_config()
        specs = [each for each in mapped if isinstance(each, SchedulerConfigSpec)] + ([chosen] if chosen else [])
        domains = {domain.name: domain for domain in self._args.domains}
        for spec in ((self._args.spec,) if self._args.spec else ()) + tuple(specs):
            domains |= {each.domain.name: each.domain for each in spec.domain_configs}
        domains |= {each.name: each for each in mapped if isinstance(each, Domain)}
        for document in self._documents(resources.DOMAIN_CONFIGS):
            domains |= {each.name: each for each in self._checked(DOMAIN_KIND, document) if isinstance(each, Domain)}
        return settings_of(self._args, specs), domains

    # Sources

    def _documents(self, kind: resources.Resource[model.Document]) -> list[model.Document]:
        found = [each for each in self._stores[kind.key] if each.metadata.namespace == self._namespace]
        return sorted(found, key=lambda each: each.metadata.name)

    def _scheduler_config(self) -> SchedulerConfigSpec | None:
        for kind in (resources.TOPOLOGY_SCHEDULER_CONFIGS, resources.SCHEDULER_CONFIGS):
            found = self._documents(kind)
            named = [each for each in found if each.metadata.name == self._profile] or found[:1]
            for document in named:
                for read in self._checked(kind.kind, document):
                    if isinstance(read, SchedulerConfigSpec):
                        return read
        return None

    def _checked(self, kind: str, document: model.Document) -> Sequence[Read]:
        name = document.metadata.name
        data = {
            "apiVersion": resources.DOMAIN_CONFIGS.api_version,
            "kind": kind,
            "metadata": {"name": name},
            "spec": document.spec,
        }
        return self._valid_or_before(kind, name, f"{document.metadata.resource_version}", [data])

    def _config_map(self) -> Iterator[Read]:
        config_map: model.ConfigMap | None = self._stores[resources.CONFIG_MAPS.key].get(CONFIG_MAP, self._namespace)
        text = ((config_map.data if config_map else None) or {}).get(CONFIG_KEY)
        if text is None:
            return
        try:
            documents = [each for each in yaml.safe_load_all(text) if each is not None]
        except yaml.YAMLError as error:
            documents = [" ".join(str(error).split())]
        yield from self._valid_or_before("ConfigMap", CONFIG_MAP, text, documents)

    def _valid_or_before(self, kind: str, name: str, version: str, documents: Sequence[object]) -> Sequence[Read]:
        """The documents of one object; where one is invalid, what was valid of the object before."""
        key = (kind, name)
        try:
            self._valid[key] = [read_document(each, f"{kind} {self._namespace}/{name}") for each in documents]
            self._refused.pop(key, None)
        except InvalidObject as error:
            if self._refused.get(key) != version:
                self._refused[key] = version
                log.warning("%s; what was valid before stays in use", error)
        return self._valid.get(key, ())

    # Domains

    def _describe(self) -> None:
        """Let the topology know of the domains that are described by their nodes' labels."""
        leaf, spine = self._args.leaf_level or LEAF, self._args.spine_level or SPINE
        if self._labelled is None:
            self._labelled = self._topology.levels
        levels = described_levels(self._labelled, self.domains.values(), leaf, spine)
        if levels != self._topology.levels:
            self._topology.use(levels)


def described_levels(
    levels: Sequence[Level], domains: Iterable[Domain], leaf: str = LEAF, spine: str = SPINE
) -> tuple[Level, ...]:
    """The levels of a topology, with leaves and spines that are described in place of those that are labelled."""
    described = {leaf: tuple[Named, ...](), spine: tuple[Named, ...]()}
    for domain in domains:
        if domain.node_selector:
            described[leaf if domain.type == "leaf" else spine] += (Named(domain.name, domain.node_selector),)
    kept = list(levels)
    for name in (spine, leaf):
        if not described[name]:
            continue
        level = Level(name, domains=described[name])
        at = next((i for i, other in enumerate(kept) if other.name == name), None)
        if at is not None:
            kept[at] = level
            continue
        narrower = {leaf, HOST} if name == spine else {HOST}
        kept.insert(next((i for i, other in enumerate(kept) if other.name in narrower), len(kept)), level)
    return tuple(kept)
