"""What a KubeSchedulerConfiguration holds, in the file (camel case) and loaded (snake case).

The ranges that one value has to keep stand here as types; rules between values are in ``checks``.
Every struct is frozen and refuses fields that it does not know.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec

from gangline.durations import Seconds

Weight = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Percentage = Annotated[int, msgspec.Meta(ge=0, le=100)]
Name = Annotated[str, msgspec.Meta(min_length=1)]


class Section(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What all structs of this module share."""


class PluginRef(Section, frozen=True):
    """A plugin at an extension point; ``weight`` counts where plugins score; there 0 means 1."""

    name: Name
    """Of an installed plugin; "*" under `disabled` means all."""
    weight: Weight = 0
    """How much its score counts."""


class PluginSet(Section, frozen=True):
    """What a profile enables and disables at one extension point."""

    enabled: tuple[PluginRef, ...] = ()
    """On, in this order, besides those that are on anyway; an entry for one of these changes its weight."""
    disabled: tuple[PluginRef, ...] = ()
    """Not run; `*` turns off all that are on anyway."""


class Plugins(Section, frozen=True):
    """One PluginSet for each extension point; ``multi_point`` speaks for all of them."""

    pre_enqueue: PluginSet = PluginSet()
    queue_sort: PluginSet = PluginSet()
    pre_filter: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()
    post_filter: PluginSet = PluginSet()
    pre_score: PluginSet = PluginSet()
    score: PluginSet = PluginSet()
    reserve: PluginSet = PluginSet()
    permit: PluginSet = PluginSet()
    pre_bind: PluginSet = PluginSet()
    bind: PluginSet = PluginSet()
    post_bind: PluginSet = PluginSet()
    multi_point: PluginSet = PluginSet()
    placement_generate: PluginSet = PluginSet()
    placement_score: PluginSet = PluginSet()
    pod_group_post_filter: PluginSet = PluginSet()


class PluginConfig(Section, frozen=True):
    """The arguments of one plugin, still undecoded: only the plugin knows their type."""

    name: Name
    """Of the plugin."""
    args: dict[str, Any] | None = None
    """Its arguments; those that are not given have their defaults."""


class LeaderElection(Section, frozen=True):
    """How replicas agree on a leader; kube-scheduler's defaults, save for the lease's name."""

    leader_elect: bool = True
    """Whether replicas elect a leader; `--leader-elect` and `--no-leader-elect` come first."""
    lease_duration: Seconds = Seconds(15)
    """How long the others wait after the last renewal before one of them takes over."""
    renew_deadline: Seconds = Seconds(10)
    """How long the leader tries to renew before it stops."""
    retry_period: Seconds = Seconds(2)
    """Time between two tries to take or renew the lease."""
    resource_lock: str = "leases"
    """Only `leases`."""
    resource_name: str = "gangline"
    """Name of the Lease."""
    resource_namespace: str = "kube-system"
    """Namespace of the Lease."""


class ClientConnection(Section, frozen=True):
    """How to reach the API server; ``qps`` and ``burst`` are None unless the file sets them."""

    kubeconfig: str = ""
    """File with the credentials; `--kubeconfig` comes first."""
    accept_content_types: str = ""
    """Accepted, and has no effect: Gangline reads JSON."""
    content_type: str = "application/vnd.kubernetes.protobuf"
    """Accepted, and has no effect: Gangline writes JSON."""
    qps: float | None = None
    """Accepted, and has no effect: requests are not limited on this side."""
    burst: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None
    """Accepted, and has no effect."""


class ExtenderTLS(Section, frozen=True):
    """Certificates for an extender; the ``*_data`` fields hold PEM, base64 in the file."""

    insecure: bool = False
    """Do not check the certificate of the extender."""
    server_name: str = ""
    """The name that its certificate has to have, if not that of the URL."""
    cert_file: str = ""
    """The client certificate."""
    key_file: str = ""
    """Its key."""
    ca_file: str = ""
    """The authorities that may have signed the certificate of the extender."""
    cert_data: bytes = b""
    """Instead of `certFile`."""
    key_data: bytes = b""
    """Instead of `keyFile`."""
    ca_data: bytes = b""
    """Instead of `caFile`."""


class ManagedResource(Section, frozen=True):
    """An extended resource that an extender looks after."""

    name: Name
    """Such as example.com/device; only pods that ask for it are shown to the extender."""
    ignored_by_scheduler: bool = False
    """NodeResourcesFit does not look at it."""


class Extender(Section, frozen=True):
    """An HTTP service that filters, scores, preempts or binds; an empty verb: it does not."""

    url_prefix: Name
    """Verbs are appended to it."""
    filter_verb: str = ""
    """Asked which nodes are feasible."""
    preempt_verb: str = ""
    """Asked which victims may go."""
    prioritize_verb: str = ""
    """Asked for scores."""
    weight: Annotated[int, msgspec.Meta(le=2**63 - 1)] = 0
    """How much its scores count; needed with a `prioritizeVerb`."""
    bind_verb: str = ""
    """Binds the pod instead of the bind plugins; only one extender may."""
    enable_https: bool = msgspec.field(default=False, name="enableHTTPS")
    """With `tlsConfig` or without; where no authority is named, every certificate is trusted, as upstream."""
    tls_config: ExtenderTLS | None = None
    """Certificates."""
    http_timeout: Seconds = Seconds(5)
    """How long one answer may take."""
    node_cache_capable: bool = False
    """It knows the nodes, so that names are sent instead of objects."""
    managed_resources: tuple[ManagedResource, ...] = ()
    """It is asked only about pods that request one of these; none means about all."""
    ignorable: bool = False
    """When it fails it is left out; else the pod is tried again."""


class Settings(Section, frozen=True):
    """The top-level settings: all but the profiles.

    ``percentage_of_nodes_to_score`` 0 means adaptive. ``enable_contention_profiling`` follows
    ``enable_profiling`` unless set. The two bind addresses are from v1beta3's time.
    """

    parallelism: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] = 16
    """Accepted, and has no effect: nodes are evaluated as columns."""
    leader_election: LeaderElection = LeaderElection()
    """How replicas agree on a leader."""
    client_connection: ClientConnection = ClientConnection()
    """How to reach the API server."""
    healthz_bind_address: str | None = None
    """Accepted, and has no effect: `--listen` says where health is served."""
    metrics_bind_address: str | None = None
    """Accepted, and has no effect: `--secure-listen` says where metrics are served."""
    enable_profiling: bool = True
    """Accepted, and has no effect."""
    enable_contention_profiling: bool | None = None
    """Accepted, and has no effect."""
    percentage_of_nodes_to_score: Percentage = 0
    """Accepted, and has no effect: all nodes are scored."""
    pod_initial_backoff_seconds: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)] = 1
    """Seconds that a pod waits after its first failed attempt; they double each time."""
    pod_max_backoff_seconds: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)] = 10
    """The most seconds that it waits."""
    delay_cache_until_active: bool = False
    """Accepted, and has no effect: standbys keep their caches warm."""
    extenders: tuple[Extender, ...] = ()
    """HTTP services that take part in decisions."""


class KubeSchedulerProfile(Section, frozen=True):
    """A profile as the file has it."""

    scheduler_name: str | None = None
    """Pods with this `spec.schedulerName` are decided by this profile; a lone profile may leave it out."""
    percentage_of_nodes_to_score: Percentage | None = None
    """Accepted, and has no effect."""
    plugins: Plugins = Plugins()
    """What is enabled and disabled, for each extension point."""
    plugin_config: tuple[PluginConfig, ...] = ()
    """Arguments of plugins."""


class KubeSchedulerConfiguration(Settings, frozen=True, kw_only=True):
    """One file as it is written."""

    api_version: str
    """`kubescheduler.config.k8s.io/v1` or `v1beta3`."""
    kind: str
    """`KubeSchedulerConfiguration`."""
    profiles: tuple[KubeSchedulerProfile, ...] = ()
    """One way to schedule each; without any there is one with the defaults."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile, loaded; ``file`` and ``path`` say where it stands, and are not compared."""

    scheduler_name: str
    percentage_of_nodes_to_score: int | None = None
    plugins: Plugins = field(default_factory=Plugins)
    plugin_config: tuple[PluginConfig, ...] = ()
    file: str = field(default="", compare=False)
    path: str = field(default="", compare=False)


class SchedulerConfiguration(Settings, frozen=True, kw_only=True):
    """The configuration of the whole scheduler, from one file or several."""

    profiles: tuple[Profile, ...]


# Names of the fields of Plugins, and of the same points in a file: "pre_filter" -> "preFilter".
POINT_NAMES: dict[str, str] = {point.name: point.encode_name for point in msgspec.structs.fields(Plugins)}
POINTS: tuple[str, ...] = tuple(name for name in POINT_NAMES if name != "multi_point")
