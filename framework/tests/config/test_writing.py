"""Writing a configuration back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.config import (
    POINTS,
    ClientConnection,
    Extender,
    ExtenderTLS,
    LeaderElection,
    ManagedResource,
    PluginConfig,
    PluginRef,
    Plugins,
    PluginSet,
    Profile,
    SchedulerConfiguration,
    Seconds,
    convert,
    load,
    show,
)

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"

words = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=8)
names = st.from_regex(r"[A-Z][a-z]{1,6}", fullmatch=True).map(lambda name: f"My{name}")
spans = st.integers(1, 10**12).map(lambda nanoseconds: Seconds(nanoseconds / 1e9))
refs = st.builds(PluginRef, names, st.integers(0, 2**31 - 1))
sets = st.builds(
    PluginSet,
    st.lists(refs, max_size=3, unique_by=lambda ref: ref.name).map(tuple),
    st.lists(refs, max_size=3).map(tuple),
)
args = st.none() | st.dictionaries(
    words.filter(lambda key: key not in ("kind", "apiVersion")),
    words | st.integers() | st.booleans() | st.lists(words, max_size=2),
    min_size=1,
    max_size=3,
)
profiles = st.builds(
    Profile,
    scheduler_name=words,
    percentage_of_nodes_to_score=st.none() | st.integers(0, 100),
    plugins=st.builds(Plugins, **{point: sets for point in POINTS if point != "queue_sort"}, multi_point=sets),
    plugin_config=st.lists(st.builds(PluginConfig, names, args), max_size=3, unique_by=lambda entry: entry.name).map(
        tuple
    ),
)
extenders = st.builds(
    Extender,
    url_prefix=words,
    filter_verb=words,
    prioritize_verb=words,
    weight=st.integers(1, 2**63 - 1),
    enable_https=st.booleans(),
    tls_config=st.none() | st.builds(ExtenderTLS, ca_file=words, ca_data=st.binary(max_size=9)),
    http_timeout=spans,
    ignorable=st.booleans(),
)
elections = st.builds(
    LeaderElection,
    leader_elect=st.just(False),
    lease_duration=spans,
    renew_deadline=spans,
    retry_period=spans,
    resource_name=words,
)
configurations = st.builds(
    SchedulerConfiguration,
    parallelism=st.integers(1, 2**31 - 1),
    leader_election=elections | st.just(LeaderElection()),
    client_connection=st.builds(
        ClientConnection,
        kubeconfig=words,
        qps=st.none() | st.floats(0.1, 1e9),
        burst=st.none() | st.integers(1, 99),
    ),
    healthz_bind_address=st.none() | words,
    enable_profiling=st.booleans(),
    enable_contention_profiling=st.booleans(),
    pod_max_backoff_seconds=st.integers(1, 2**63 - 1),
    profiles=st.lists(profiles, min_size=1, max_size=2, unique_by=lambda each: each.scheduler_name).map(tuple),
    extenders=st.lists(extenders, max_size=2).map(tuple),
)


@pytest.mark.parametrize("write", [convert, show], ids=["short", "complete"])
@given(config=configurations)
def test_what_is_written_loads_back_unchanged(write: type[str], config: SchedulerConfiguration) -> None:
    assert load(write(config), "f.yaml") == config


def test_defaults_are_left_out_when_converting() -> None:
    text = HEAD + (
        "parallelism: 16\nprofiles: [{schedulerName: default-scheduler}]\n"
        "leaderElection: {leaderElect: true}\nenableContentionProfiling: true\n"
    )

    assert convert(load(text, "f.yaml")) == HEAD


def test_v1beta3_becomes_v1_in_a_stable_order() -> None:
    text = """
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig:
  - args: {kind: NodeResourcesFitArgs, apiVersion: kubescheduler.config.k8s.io/v1beta3,
      scoringStrategy: {type: MostAllocated}}
    name: NodeResourcesFit
  plugins:
    score: {disabled: [{name: "*"}], enabled: [{weight: 2, name: NodeResourcesFit}]}
  schedulerName: gpu
leaderElection: {renewDeadline: 10s, leaseDuration: 1m30s}
apiVersion: kubescheduler.config.k8s.io/v1beta3
"""

    assert convert(load(text, "f.yaml")) == HEAD + (
        """leaderElection:
  leaseDuration: 1m30s
profiles:
- schedulerName: gpu
  plugins:
    score:
      enabled:
      - name: NodeResourcesFit
        weight: 2
      disabled:
      - name: '*'
  pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy:
        type: MostAllocated
"""
    )


def test_show_spells_every_default_out() -> None:
    shown = show(load(HEAD, "f.yaml"))

    assert shown.startswith(
        HEAD
        + """parallelism: 16
leaderElection:
  leaderElect: true
  leaseDuration: 15s
  renewDeadline: 10s
  retryPeriod: 2s
  resourceLock: leases
  resourceName: gangline
  resourceNamespace: kube-system
clientConnection:
  kubeconfig: ''
  acceptContentTypes: ''
  contentType: application/vnd.kubernetes.protobuf
  qps: null
  burst: null
healthzBindAddress: null
metricsBindAddress: null
enableProfiling: true
enableContentionProfiling: true
percentageOfNodesToScore: 0
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 10
delayCacheUntilActive: false
extenders: []
profiles:
- schedulerName: default-scheduler
  percentageOfNodesToScore: null
  plugins:
    preEnqueue:
      enabled: []
      disabled: []
"""
    )


def test_managed_resources_survive_a_round_trip() -> None:
    managed = (ManagedResource("example.com/gpu", True), ManagedResource("example.com/nic"))
    extender = Extender("http://a", managed_resources=managed)
    config = SchedulerConfiguration(profiles=(Profile("a"),), extenders=(extender,))
    config = load(convert(config), "f.yaml")

    assert config.extenders == (extender,)
