"""What a KubeSchedulerConfiguration holds, in the file (camel case) and loaded (snake case).

The ranges that one value has to keep stand here as types; rules between values are in ``checks``.
Every struct is frozen and refuses fields that it does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import msgspec

from gangline.durations import Seconds

Weight = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Percentage = Annotated[int, msgspec.Meta(ge=0, le=100)]
Name = Annotated[str, msgspec.Meta(min_length=1)]


class Section(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The base of all structs of this module."""


class PluginRef(Section, frozen=True):
    """A plugin at an extension point. ``weight`` counts at extension points that score; there 0 means 1."""

    name: Name
    """Name of an installed plugin; "*" under `disabled` means all."""
    weight: Weight = 0
    """Weight of the plugin's score."""


class PluginSet(Section, frozen=True):
    """What a profile enables and disables at one extension point."""

    enabled: tuple[PluginRef, ...] = ()
    """Plugins to enable, in this order, besides the defaults; an entry for a default plugin changes its weight."""
    disabled: tuple[PluginRef, ...] = ()
    """Plugins to disable; `*` disables all default plugins."""


NOT_LISTED = (
    "events_to_register",
    "post_enqueue",
    "pre_cycle",
    "pre_cycle_all",
    "identity",
    "identity_all",
    "skip_key",
    "capacity",
    "post_reject",
    "normalize_score",
    "reserve_all",
    "unreserve",
    "permit_all",
    "pre_bind_pre_flight",
    "placement_narrow",
    "pod_group_concede",
    "pod_group_key",
    "pod_group_can_help",
)
"""The hooks for which a profile lists no plugins."""


class Plugins(Section, frozen=True):
    """One PluginSet for each extension point; ``multi_point`` counts for all extension points."""

    hints: ClassVar[Mapping[str, str]] = {
        name: "a profile does not list plugins here: each enabled plugin that has the method is called"
        for name in (*NOT_LISTED, *msgspec.defstruct("_", NOT_LISTED, rename="camel").__struct_encode_fields__)
    }
    """Messages for names that are no fields, by name."""

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
    """Name of the plugin."""
    args: dict[str, Any] | None = None
    """Arguments of the plugin; missing arguments have their defaults."""


class LeaderElection(Section, frozen=True):
    """How replicas agree on a leader; kube-scheduler's defaults, save for the lease's name."""

    leader_elect: bool = True
    """Whether replicas elect a leader; `--leader-elect` and `--no-leader-elect` override the field."""
    lease_duration: Seconds = Seconds(15)
    """How long the other replicas wait after the last renewal before one of them becomes the leader."""
    renew_deadline: Seconds = Seconds(10)
    """How long the leader tries to renew before it stops."""
    retry_period: Seconds = Seconds(2)
    """Time between two attempts to take or renew the Lease."""
    resource_lock: str = "leases"
    """Kind of the lock; only `leases` is allowed."""
    resource_name: str = "gangline"
    """Name of the Lease."""
    resource_namespace: str = "kube-system"
    """Namespace of the Lease."""


class ClientConnection(Section, frozen=True):
    """How to reach the API server. The default of ``qps`` and ``burst`` is None: the file does not set them."""

    kubeconfig: str = ""
    """File with the credentials; `--kubeconfig` overrides the field."""
    accept_content_types: str = ""
    """Accepted and ignored: Gangline reads JSON."""
    content_type: str = "application/vnd.kubernetes.protobuf"
    """Accepted and ignored: Gangline writes JSON."""
    qps: float | None = None
    """Accepted and ignored: Gangline has no client-side rate limit."""
    burst: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None
    """Accepted, and has no effect."""


class ExtenderTLS(Section, frozen=True):
    """Certificates for an extender; the ``*_data`` fields hold PEM, base64 in the file."""

    insecure: bool = False
    """Whether the scheduler accepts any certificate of the extender."""
    server_name: str = ""
    """The name that the certificate has to have; default: the host of the URL."""
    cert_file: str = ""
    """File with the client certificate."""
    key_file: str = ""
    """File with the key of the client certificate."""
    ca_file: str = ""
    """File with the CAs that may have signed the certificate of the extender."""
    cert_data: bytes = b""
    """The client certificate itself, instead of `certFile`."""
    key_data: bytes = b""
    """The key itself, instead of `keyFile`."""
    ca_data: bytes = b""
    """The CAs themselves, instead of `caFile`."""


class ManagedResource(Section, frozen=True):
    """An extended resource that an extender manages."""

    name: Name
    """Name of the resource, for example example.com/device; the extender gets only pods that request it."""
    ignored_by_scheduler: bool = False
    """Whether NodeResourcesFit ignores the resource."""


class Extender(Section, frozen=True):
    """An HTTP service that filters, scores, preempts or binds. It does not take part where its verb is empty."""

    url_prefix: Name
    """URL of the service; the verbs are appended to it."""
    filter_verb: str = ""
    """Path that answers which nodes are feasible."""
    preempt_verb: str = ""
    """Path that answers which victims may be evicted."""
    prioritize_verb: str = ""
    """Path that answers with scores."""
    weight: Annotated[int, msgspec.Meta(le=2**63 - 1)] = 0
    """Weight of the scores; required with a `prioritizeVerb`."""
    bind_verb: str = ""
    """Path that binds the pod instead of the bind plugins; only one extender may have it."""
    enable_https: bool = msgspec.field(default=False, name="enableHTTPS")
    """Whether to use TLS, also without `tlsConfig`. Without a CA every certificate is trusted, as in kube-scheduler."""
    tls_config: ExtenderTLS | None = None
    """Certificates for TLS."""
    http_timeout: Seconds = Seconds(5)
    """Longest time that one answer may take."""
    node_cache_capable: bool = False
    """Whether the service knows the nodes; then the scheduler sends names instead of objects."""
    managed_resources: tuple[ManagedResource, ...] = ()
    """The scheduler asks only about pods that request one of these resources; without an entry about all pods."""
    ignorable: bool = False
    """Whether the scheduler goes on without the service when it fails; otherwise the pod is tried again later."""


class Settings(Section, frozen=True):
    """The top-level settings: all fields of a file except the profiles.

    ``percentage_of_nodes_to_score`` 0 means adaptive. ``enable_contention_profiling`` has the value of
    ``enable_profiling`` unless it is set. Only v1beta3 has the two bind addresses.
    """

    parallelism: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] = 16
    """Accepted and ignored: nodes are evaluated as columns."""
    leader_election: LeaderElection = LeaderElection()
    """How replicas agree on a leader."""
    client_connection: ClientConnection = ClientConnection()
    """How to reach the API server."""
    healthz_bind_address: str | None = None
    """Accepted and ignored: `--listen` is the address for health."""
    metrics_bind_address: str | None = None
    """Accepted and ignored: `--secure-listen` is the address for metrics."""
    enable_profiling: bool = True
    """Accepted, and has no effect."""
    enable_contention_profiling: bool | None = None
    """Accepted, and has no effect."""
    percentage_of_nodes_to_score: Percentage = 0
    """Accepted and ignored: all nodes are scored."""
    pod_initial_backoff_seconds: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)] = 1
    """Seconds of back-off after a pod's first failed attempt; the back-off doubles after each further one."""
    pod_max_backoff_seconds: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)] = 10
    """Longest back-off in seconds."""
    delay_cache_until_active: bool = False
    """Accepted and ignored: replicas that do not lead always keep their caches up to date."""
    extenders: tuple[Extender, ...] = ()
    """HTTP services that take part in decisions."""


class KubeSchedulerProfile(Section, frozen=True):
    """A profile as the file has it."""

    scheduler_name: str | None = None
    """This profile schedules the pods with this `spec.schedulerName`. A single profile needs no name."""
    percentage_of_nodes_to_score: Percentage | None = None
    """Accepted, and has no effect."""
    plugins: Plugins = Plugins()
    """Plugins to enable and disable, for each extension point."""
    plugin_config: tuple[PluginConfig, ...] = ()
    """Arguments of plugins."""


class KubeSchedulerConfiguration(Settings, frozen=True, kw_only=True):
    """One file as it is written."""

    api_version: str
    """`kubescheduler.config.k8s.io/v1` or `v1beta3`."""
    kind: str
    """`KubeSchedulerConfiguration`."""
    profiles: tuple[KubeSchedulerProfile, ...] = ()
    """The profiles; without an entry there is one profile with the defaults."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A loaded profile. ``file`` and ``path`` say where the profile is written, and are not compared."""

    scheduler_name: str
    percentage_of_nodes_to_score: int | None = None
    plugins: Plugins = field(default_factory=Plugins)
    plugin_config: tuple[PluginConfig, ...] = ()
    file: str = field(default="", compare=False)
    path: str = field(default="", compare=False)


class SchedulerConfiguration(Settings, frozen=True, kw_only=True):
    """The configuration of the whole scheduler, from one file or several."""

    profiles: tuple[Profile, ...]


# The names of the fields of Plugins, and of the same points in a file: "pre_filter" -> "preFilter".
POINT_NAMES: dict[str, str] = {point.name: point.encode_name for point in msgspec.structs.fields(Plugins)}
POINTS: tuple[str, ...] = tuple(name for name in POINT_NAMES if name != "multi_point")
