"""Loading: defaults, versions, forms of files, several files."""

from pathlib import Path

import pytest

from gangline.config import (
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
    fingerprint,
    load,
    load_files,
)
from gangline.errors import ConfigError

V1 = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"

SEED = """
apiVersion: v1
kind: ConfigMap
metadata:
  name: gpu-scheduler-config
  namespace: kube-system
data:
  config.yaml: |
    apiVersion: kubescheduler.config.k8s.io/v1beta3
    kind: KubeSchedulerConfiguration
    profiles:
    - schedulerName: gpu-scheduler
      plugins:
        score:
          enabled:
          - name: NodeResourcesFit
            weight: 80
          - name: NodeAffinity
            weight: 60
        filter:
          enabled:
          - name: NodeResourcesFit
          - name: NodeAffinity
      pluginConfig:
      - name: NodeResourcesFit
        args:
          scoringStrategy:
            type: LeastAllocated
            resources:
            - name: nvidia.com/gpu
              weight: 100
            - name: memory
              weight: 50
"""

SPELLED_OUT = (
    V1
    + """
parallelism: 16
leaderElection:
  leaderElect: true
  leaseDuration: 15s
  renewDeadline: 10s
  retryPeriod: 2s
  resourceLock: leases
  resourceName: gangline
  resourceNamespace: kube-system
clientConnection:
  kubeconfig: ""
  acceptContentTypes: ""
  contentType: application/vnd.kubernetes.protobuf
  qps: 0
  burst: 0
enableProfiling: true
enableContentionProfiling: true
percentageOfNodesToScore: 0
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 10
delayCacheUntilActive: false
profiles:
- schedulerName: default-scheduler
  plugins: {}
  pluginConfig: []
extenders: []
"""
)


def test_an_empty_configuration_is_kube_schedulers_defaults() -> None:
    config = load(V1, "f.yaml")

    assert config == SchedulerConfiguration(
        parallelism=16,
        leader_election=LeaderElection(
            leader_elect=True,
            lease_duration=Seconds(15),
            renew_deadline=Seconds(10),
            retry_period=Seconds(2),
            resource_lock="leases",
            resource_name="gangline",
            resource_namespace="kube-system",
        ),
        client_connection=ClientConnection(qps=None, burst=None),
        enable_profiling=True,
        enable_contention_profiling=True,
        percentage_of_nodes_to_score=0,
        pod_initial_backoff_seconds=1,
        pod_max_backoff_seconds=10,
        delay_cache_until_active=False,
        extenders=(),
        profiles=(Profile("default-scheduler"),),
    )


def test_spelling_out_every_default_changes_nothing() -> None:
    assert load(SPELLED_OUT, "f.yaml") == load(V1, "f.yaml")


def test_zero_empty_and_null_mean_the_default() -> None:
    text = V1 + (
        "parallelism: null\nprofiles:\n"
        "leaderElection: {leaseDuration: 0s, renewDeadline: '0', resourceName: '', retryPeriod: }\n"
    )

    assert load(text, "f.yaml") == load(V1, "f.yaml")


def test_every_setting_is_taken_from_the_file() -> None:
    text = V1 + (
        "parallelism: 4\n"
        "leaderElection: {leaderElect: false, leaseDuration: 1m, renewDeadline: 40s,"
        " retryPeriod: 500ms, resourceLock: leases, resourceName: team-a, resourceNamespace: gpu}\n"
        "clientConnection: {kubeconfig: /etc/k, acceptContentTypes: a/b,"
        " contentType: application/json, qps: 12.5, burst: 30}\n"
        "healthzBindAddress: 0.0.0.0:1\nmetricsBindAddress: 0.0.0.0:2\n"
        "enableProfiling: false\npercentageOfNodesToScore: 50\n"
        "podInitialBackoffSeconds: 2\npodMaxBackoffSeconds: 2\ndelayCacheUntilActive: true\n"
    )

    assert load(text, "f.yaml") == SchedulerConfiguration(
        parallelism=4,
        leader_election=LeaderElection(False, Seconds(60), Seconds(40), Seconds(0.5), "leases", "team-a", "gpu"),
        client_connection=ClientConnection("/etc/k", "a/b", "application/json", 12.5, 30),
        healthz_bind_address="0.0.0.0:1",
        metrics_bind_address="0.0.0.0:2",
        enable_profiling=False,
        enable_contention_profiling=False,
        percentage_of_nodes_to_score=50,
        pod_initial_backoff_seconds=2,
        pod_max_backoff_seconds=2,
        delay_cache_until_active=True,
        profiles=(Profile("default-scheduler"),),
    )


def test_extenders_are_read_in_full() -> None:
    text = V1 + (
        "extenders:\n"
        "- {urlPrefix: 'http://a', filterVerb: f, preemptVerb: p, prioritizeVerb: s, weight: 3,"
        " bindVerb: b, enableHTTPS: true, tlsConfig: {insecure: true, caData: YWJj},"
        " httpTimeout: 1m30s, nodeCacheCapable: true,"
        " managedResources: [{name: example.com/gpu, ignoredByScheduler: true}], ignorable: true}\n"
        "- urlPrefix: http://b\n"
    )

    full, plain = load(text, "f.yaml").extenders

    assert full == Extender(
        url_prefix="http://a",
        filter_verb="f",
        preempt_verb="p",
        prioritize_verb="s",
        weight=3,
        bind_verb="b",
        enable_https=True,
        tls_config=ExtenderTLS(insecure=True, ca_data=b"abc"),
        http_timeout=Seconds(90),
        node_cache_capable=True,
        managed_resources=(ManagedResource("example.com/gpu", True),),
        ignorable=True,
    )
    assert plain == Extender("http://b", http_timeout=Seconds(5))


def test_the_seeds_config_map_loads_unchanged() -> None:
    fit, affinity = PluginRef("NodeResourcesFit"), PluginRef("NodeAffinity")
    resources = [{"name": "nvidia.com/gpu", "weight": 100}, {"name": "memory", "weight": 50}]
    strategy = {"type": "LeastAllocated", "resources": resources}

    (profile,) = load(SEED, "cm.yaml").profiles

    assert profile == Profile(
        "gpu-scheduler",
        plugins=Plugins(
            score=PluginSet((PluginRef("NodeResourcesFit", 80), PluginRef("NodeAffinity", 60))),
            filter=PluginSet((fit, affinity)),
        ),
        plugin_config=(PluginConfig("NodeResourcesFit", {"scoringStrategy": strategy}),),
    )
    assert (profile.file, profile.path) == ("cm.yaml#config.yaml", "profiles[0]")


def test_a_config_map_may_name_its_only_key_as_it_likes() -> None:
    text = SEED.replace("config.yaml:", "scheduler:")

    assert load(text, "cm.yaml") == load(SEED, "cm.yaml")


def test_the_type_of_args_may_be_written_and_is_dropped() -> None:
    args = "{apiVersion: kubescheduler.config.k8s.io/v1, kind: NodeAffinityArgs, addedAffinity: {}}"
    text = V1 + f"profiles: [{{pluginConfig: [{{name: NodeAffinity, args: {args}}}]}}]"

    (profile,) = load(text, "f.yaml").profiles

    assert profile.plugin_config == (PluginConfig("NodeAffinity", {"addedAffinity": {}}),)


def test_args_may_be_a_document_of_another_group_which_is_left_whole() -> None:
    args = {"apiVersion": "topology.scheduler/v1alpha1", "kind": "SchedulerConfig", "spec": {}}
    text = V1 + f"profiles: [{{pluginConfig: [{{name: LeafSpine, args: {args}}}]}}]"

    (profile,) = load(text, "f.yaml").profiles

    assert profile.plugin_config == (PluginConfig("LeafSpine", args),)


def test_yaml_anchors_and_merge_keys_work() -> None:
    text = V1 + (
        "profiles:\n- &base {schedulerName: a, percentageOfNodesToScore: 7}\n- {<<: *base, schedulerName: b}\n"
    )

    assert load(text, "f.yaml").profiles == (Profile("a", 7), Profile("b", 7))


def test_profiles_of_several_files_are_put_together(tmp_path: Path) -> None:
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    one.write_text(V1 + "profiles: [{schedulerName: a}]")
    two.write_text(V1 + "parallelism: 3\nprofiles: [{schedulerName: b}, {schedulerName: c}]")

    config = load_files([one, two])

    assert config.parallelism == 3
    assert [(each.scheduler_name, each.file, each.path) for each in config.profiles] == [
        ("a", str(one), "profiles[0]"),
        ("b", str(two), "profiles[0]"),
        ("c", str(two), "profiles[1]"),
    ]


def test_settings_in_two_files_are_an_error(tmp_path: Path) -> None:
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    one.write_text(V1 + "parallelism: 3")
    two.write_text(V1 + "enableProfiling: true")

    with pytest.raises(ConfigError) as error:
        load_files([one, two])

    why = f"only one file may have settings beside profiles, and {one} has"
    assert str(error.value) == f"{two}: enableProfiling: {why}"


def test_a_scheduler_name_in_two_files_is_an_error(tmp_path: Path) -> None:
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    for path in (one, two):
        path.write_text(V1 + "profiles: [{schedulerName: a}]")

    with pytest.raises(ConfigError) as error:
        load_files([one, two])

    assert str(error.value) == f'{two}: profiles[0].schedulerName: "a" is taken by {one}: profiles[0]'


def test_a_file_that_is_not_there_is_a_configuration_error(tmp_path: Path) -> None:
    missing = tmp_path / "missing.yaml"

    with pytest.raises(ConfigError) as error:
        load_files([missing])

    assert str(error.value) == f"{missing}: cannot be read: No such file or directory"


def test_no_file_at_all_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError) as error:
        load_files([])

    assert str(error.value) == "no configuration file given"


def test_the_fingerprint_follows_the_content(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text("a")
    before = fingerprint([path])
    path.write_text("b")

    assert fingerprint([path]) != before
    path.write_text("a")
    assert fingerprint([path]) == before
