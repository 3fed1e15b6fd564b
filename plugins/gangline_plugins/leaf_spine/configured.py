"""The present configuration of leaves and spines, from arguments, a ConfigMap and custom resources.

Rules:
- For the same setting or domain, a custom resource takes precedence over the ConfigMap, and the ConfigMap over the
  arguments.
- Objects count in the scheduler's own namespace first, and then in kube-system: only administrators write there. A
  manifest without a namespace creates the object in default, where it does not count; an event on the object says so.
- Of several SchedulerConfigs the one with the profile's name counts, else the first by name. A TopologySchedulerConfig
  takes precedence over a SchedulerConfig.
- If an object is invalid, its last valid state stays in use; an event on the object and one line in the log say so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import yaml

from gangline import HOST, Action, EventHint, Handle, InvalidObject, Level, Named, PodInfo, model, on, resources
from gangline_plugins.gpu.leases.plugin import own_namespace
from gangline_plugins.leaf_spine.arguments import LeafSpineArgs, LeafSpineSettings, settings_of
from gangline_plugins.leaf_spine.documents import Domain, Read, SchedulerConfigSpec, read_document
from gangline_plugins.telling import Told

log = logging.getLogger(__name__)

CONFIG_MAP, CONFIG_KEY = "topology-scheduler-config", "config.yaml"
SYSTEM, DEFAULT = "kube-system", "default"
"""The namespace where administrators keep such objects, and the one of manifests that name no namespace."""
LEAF, SPINE = "leaf", "spine"
_KINDS = (resources.SCHEDULER_CONFIGS, resources.TOPOLOGY_SCHEDULER_CONFIGS, resources.DOMAIN_CONFIGS)
_READ: tuple[resources.Resource[Any], ...] = (*_KINDS, resources.CONFIG_MAPS)
_ONLY = {resources.CONFIG_MAPS.key: f"metadata.name={CONFIG_MAP}"}


def configured(handle: Handle) -> Configured:
    """The configuration of a profile; the same object for all of its plugins."""
    return handle.state.shared(Configured, handle, own_namespace())


class Configured:
    """Settings and domains. `refresh` brings them up to date; it costs next to nothing while nothing changes."""

    def __init__(self, handle: Handle, namespace: str) -> None:
        self._trusted = tuple(dict.fromkeys((namespace, SYSTEM)))
        """The namespaces whose objects count, in the order of precedence."""
        self.watches: tuple[resources.Selection[Any], ...] = tuple(
            resources.Selection(kind, where, field_selector=_ONLY.get(kind.key, ""), is_needed=where == namespace)
            for where in dict.fromkeys((*self._trusted, DEFAULT))
            for kind in _READ
        )
        self.settings = LeafSpineSettings()
        self.domains: Mapping[str, Domain] = {}
        """The domains by name."""
        self.version = 0
        """Grows with each change."""
        self._profile = handle.profile
        self._topology = handle.topology
        self._recorder = handle.recorder
        self._stores = {kind.key: handle.state.store(kind) for kind in _READ}
        self._listed = list(self._stores.values())
        self._args = LeafSpineArgs()
        self._seen = -1
        """The sum of the stores' versions when they were read. Versions only grow, so each change shows in the sum."""
        self._valid: dict[tuple[str, str, str], list[Read]] = {}
        self._judged: dict[tuple[str, str, str], str] = {}
        """The version of each object that was judged last, so that a mere change of its status is not judged again."""
        self._refused: set[tuple[str, str, str]] = set()
        self._told = Told()
        self._labelled: tuple[Level, ...] | None = None
        """The levels of the topology before any domains were described."""

    def events(self) -> Sequence[EventHint]:
        """The events that may help a pod that was rejected because of the configuration."""
        return [on(watched.resource.key, Action.ALL, _says_something_else) for watched in self.watches]

    def use(self, args: LeafSpineArgs) -> None:
        """Start from these arguments."""
        self._args = args
        self._seen = -1

    def refresh(self) -> None:
        """Read the objects that have changed."""
        seen = 0
        for store in self._listed:
            seen += store.version
        if seen == self._seen:
            return
        self._seen = seen
        self._tell_those_elsewhere()
        settings, domains = self._read()
        if (settings, domains) == (self.settings, self.domains) and self.version:
            return
        self.version += 1
        self.settings = settings
        if domains != self.domains:
            self.domains = domains
            self._describe()

    def _read(self) -> tuple[LeafSpineSettings, dict[str, Domain]]:
        mapped = list(self._config_map())
        chosen = self._scheduler_config()
        specs = [each for each in mapped if isinstance(each, SchedulerConfigSpec)] + ([chosen] if chosen else [])
        domains = {domain.name: domain for domain in self._args.domains}
        for spec in ((self._args.spec,) if self._args.spec else ()) + tuple(specs):
            domains |= {each.domain.name: each.domain for each in spec.domain_configs}
        domains |= {each.name: each for each in mapped if isinstance(each, Domain)}
        for document in reversed(self._documents(resources.DOMAIN_CONFIGS)):
            read = self._checked(resources.DOMAIN_CONFIGS, document)
            domains |= {each.name: each for each in read if isinstance(each, Domain)}
        return settings_of(self._args, specs), domains

    # Sources

    def _documents(self, kind: resources.Resource[model.Document]) -> list[model.Document]:
        """The objects of a kind that count, in the order of precedence."""
        found = [each for each in self._stores[kind.key] if each.metadata.namespace in self._trusted]
        return sorted(found, key=lambda each: (self._trusted.index(each.metadata.namespace), each.metadata.name))

    def domain_configs(self) -> Sequence[model.Document]:
        """The DomainConfigs that count, as objects, after the configuration was refreshed."""
        self.refresh()
        return self._documents(resources.DOMAIN_CONFIGS)

    def level_of(self, domain: model.Document) -> str:
        """The name of the domain's level, by the type in its DomainConfig."""
        is_leaf = domain.spec.get("type") == "leaf"
        return (self._args.leaf_level or LEAF) if is_leaf else (self._args.spine_level or SPINE)

    def is_refused(self, domain: model.Document) -> bool:
        """Whether the DomainConfig is invalid, so that its last valid state is in use."""
        return _key(resources.DOMAIN_CONFIGS, domain.metadata) in self._refused

    def _tell_those_elsewhere(self) -> None:
        """Record an event on each object that does not count in its namespace."""
        if DEFAULT in self._trusted:
            return
        note = f"it does not count in the namespace {DEFAULT}, only in {' and '.join(self._trusted)}: make it there"
        for kind in _READ:
            for each in self._stores[kind.key]:
                is_ours = kind is not resources.CONFIG_MAPS or each.metadata.name == CONFIG_MAP
                if each.metadata.namespace == DEFAULT and is_ours:
                    self._tell(kind, each.metadata, "NotUsed", note)

    def _tell(self, kind: resources.Resource[Any], meta: model.ObjectMeta, reason: str, note: str) -> None:
        """Record a warning event on an object, once."""
        if self._told.is_first(meta.uid, reason, note):
            regarding = model.TypedReference(
                kind=kind.kind, namespace=meta.namespace, name=meta.name, uid=meta.uid, api_version=kind.api_version
            )
            self._recorder.about(regarding, self._profile, "Warning", reason, note, "Configuring")

    def _scheduler_config(self) -> SchedulerConfigSpec | None:
        for kind in (resources.TOPOLOGY_SCHEDULER_CONFIGS, resources.SCHEDULER_CONFIGS):
            found = self._documents(kind)
            named = [each for each in found if each.metadata.name == self._profile] or found[:1]
            for document in named:
                for read in self._checked(kind, document):
                    if isinstance(read, SchedulerConfigSpec):
                        return read
        return None

    def _checked(self, kind: resources.Resource[model.Document], document: model.Document) -> Sequence[Read]:
        meta = document.metadata
        data = {
            "apiVersion": resources.DOMAIN_CONFIGS.api_version,
            "kind": kind.kind,
            "metadata": {"name": meta.name},
            "spec": document.spec,
        }
        version = f"{meta.uid}/{meta.generation or meta.resource_version}"
        return self._valid_or_before(kind, meta, version, lambda: [data])

    def _config_map(self) -> Iterator[Read]:
        """The documents in the ConfigMap that counts."""
        store = self._stores[resources.CONFIG_MAPS.key]
        found = (store.get(CONFIG_MAP, namespace) for namespace in self._trusted)
        config_map: model.ConfigMap | None = next((each for each in found if each is not None), None)
        text = ((config_map.data if config_map else None) or {}).get(CONFIG_KEY)
        if config_map is None or text is None:
            return
        yield from self._valid_or_before(resources.CONFIG_MAPS, config_map.metadata, text, lambda: _documents_in(text))

    def _valid_or_before(
        self, kind: resources.Resource[Any], meta: model.ObjectMeta, version: str, read: Callable[[], Sequence[object]]
    ) -> Sequence[Read]:
        """The documents of one object; if one is invalid, the object's last valid documents."""
        key = _key(kind, meta)
        if self._judged.get(key) != version:
            self._judged[key] = version
            self._refused.discard(key)
            try:
                self._valid[key] = [read_document(each, f"{kind.kind} {meta.namespace}/{meta.name}") for each in read()]
            except InvalidObject as error:
                self._refused.add(key)
                log.warning("%s; what was valid before stays in use", error)
                self._tell(kind, meta, "InvalidConfiguration", f"{error}; what was valid before stays in use")
        return self._valid.get(key, ())

    # Domains

    def _describe(self) -> None:
        """Tell the topology which domains are described by a node selector."""
        leaf, spine = self._args.leaf_level or LEAF, self._args.spine_level or SPINE
        if self._labelled is None:
            self._labelled = self._topology.levels
        levels = described_levels(self._labelled, self.domains.values(), leaf, spine)
        if levels != self._topology.levels:
            self._topology.use(levels)


def _documents_in(text: str) -> list[object]:
    """The YAML documents of a text. If the text is no YAML, the only document is the error message, which is invalid
    too.
    """
    try:
        return [each for each in yaml.safe_load_all(text) if each is not None]
    except yaml.YAMLError as error:
        return [" ".join(str(error).split())]


def _key(kind: resources.Resource[Any], meta: model.ObjectMeta) -> tuple[str, str, str]:
    return kind.kind, meta.namespace, meta.name


def _says_something_else(pod: PodInfo, old: Any, new: Any) -> bool:
    """Whether the spec has changed: a status, which this plugin writes itself, helps no pod."""
    return not (isinstance(old, model.Document) and isinstance(new, model.Document) and old.spec == new.spec)


def described_levels(
    levels: Sequence[Level], domains: Iterable[Domain], leaf: str = LEAF, spine: str = SPINE
) -> tuple[Level, ...]:
    """The levels of a topology, with described leaves and spines in place of labelled ones."""
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
