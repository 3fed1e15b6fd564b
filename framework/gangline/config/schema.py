"""What a KubeSchedulerConfiguration holds, in the file (camel case) and loaded (snake case).

The ranges that one value has to keep stand here as types; rules between values are in ``checks``.
Every struct is frozen and refuses fields that it does not know.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec

from gangline.config.durations import Seconds

Weight = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Percentage = Annotated[int, msgspec.Meta(ge=0, le=100)]
Name = Annotated[str, msgspec.Meta(min_length=1)]


class Section(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What all structs of this module share."""


class PluginRef(Section, frozen=True):
    """A plugin at an extension point; ``weight`` counts where plugins score; there 0 means 1."""

    name: Name
    weight: Weight = 0


class PluginSet(Section, frozen=True):
    """What a profile enables and disables at one extension point."""

    enabled: tuple[PluginRef, ...] = ()
    disabled: tuple[PluginRef, ...] = ()


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
    args: dict[str, Any] | None = None


class LeaderElection(Section, frozen=True):
    """How replicas agree on a leader; kube-scheduler's defaults, save for the lease's name."""

    leader_elect: bool = True
    lease_duration: Seconds = Seconds(15)
    renew_deadline: Seconds = Seconds(10)
    retry_period: Seconds = Seconds(2)
    resource_lock: str = "leases"
    resource_name: str = "gangline"
    resource_namespace: str = "kube-system"


class ClientConnection(Section, frozen=True):
    """How to reach the API server; ``qps`` and ``burst`` are None unless the file sets them."""

    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = "application/vnd.kubernetes.protobuf"
    qps: float | None = None
    burst: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None


class ExtenderTLS(Section, frozen=True):
    """Certificates for an extender; the ``*_data`` fields hold PEM, base64 in the file."""

    insecure: bool = False
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    cert_data: bytes = b""
    key_data: bytes = b""
    ca_data: bytes = b""


class ManagedResource(Section, frozen=True):
    """An extended resource that an extender looks after."""

    name: Name
    ignored_by_scheduler: bool = False


class Extender(Section, frozen=True):
    """An HTTP service that filters, scores, preempts or binds; an empty verb: it does not."""

    url_prefix: Name
    filter_verb: str = ""
    preempt_verb: str = ""
    prioritize_verb: str = ""
    weight: Annotated[int, msgspec.Meta(le=2**63 - 1)] = 0
    bind_verb: str = ""
    enable_https: bool = msgspec.field(default=False, name="enableHTTPS")
    tls_config: ExtenderTLS | None = None
    http_timeout: Seconds = Seconds(5)
    node_cache_capable: bool = False
    managed_resources: tuple[ManagedResource, ...] = ()
    ignorable: bool = False


class Settings(Section, frozen=True):
    """The top-level settings: all but the profiles.

    ``percentage_of_nodes_to_score`` 0 means adaptive. ``enable_contention_profiling`` follows
    ``enable_profiling`` unless set. The two bind addresses are from v1beta3's time.
    """

    parallelism: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] = 16
    leader_election: LeaderElection = LeaderElection()
    client_connection: ClientConnection = ClientConnection()
    healthz_bind_address: str | None = None
    metrics_bind_address: str | None = None
    enable_profiling: bool = True
    enable_contention_profiling: bool | None = None
    percentage_of_nodes_to_score: Percentage = 0
    pod_initial_backoff_seconds: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)] = 1
    pod_max_backoff_seconds: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)] = 10
    delay_cache_until_active: bool = False
    extenders: tuple[Extender, ...] = ()


class KubeSchedulerProfile(Section, frozen=True):
    """A profile as the file has it."""

    scheduler_name: str | None = None
    percentage_of_nodes_to_score: Percentage | None = None
    plugins: Plugins = Plugins()
    plugin_config: tuple[PluginConfig, ...] = ()


class KubeSchedulerConfiguration(Settings, frozen=True, kw_only=True):
    """One file as it is written."""

    api_version: str
    kind: str
    profiles: tuple[KubeSchedulerProfile, ...] = ()


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
