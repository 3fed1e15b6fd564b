"""Configurations written for kube-scheduler are taken as they are, and do what they say."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from gangline_e2e import binaries
from gangline_e2e.api import Api
from gangline_e2e.harness import ControlPlane
from gangline_e2e.placements import nodes_of
from gangline_e2e.scheduler import Gangline, configuration
from gangline_e2e.workloads import Manifest, gpu_pod, is_bound, is_named, kwok_node

DEFAULT = "default-scheduler"
ZONE = "topology.kubernetes.io/zone"
TAINT = {"key": "dedicated", "value": "none", "effect": "NoSchedule"}

MINIMAL = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  kubeconfig: /etc/srv/kubernetes/kube-scheduler/kubeconfig
"""
TUNED = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
percentageOfNodesToScore: 50
leaderElection:
  leaderElect: false
  resourceNamespace: kube-system
  resourceName: my-scheduler
profiles:
  - schedulerName: my-scheduler
"""
WITHOUT_SCORING = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: no-scoring-scheduler
    plugins:
      preScore:
        disabled:
        - name: '*'
      score:
        disabled:
        - name: '*'
  - schedulerName: default-scheduler
"""
REORDERED = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - plugins:
      multiPoint:
        enabled:
        - name: NodeAffinity
          weight: 3
        disabled:
        - name: DynamicResources
      score:
        disabled:
        - name: PodTopologySpread
        enabled:
        - name: ImageLocality
          weight: 2
"""
LEAST_ALLOCATED = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig:
  - args:
      scoringStrategy:
        resources:
        - name: cpu
          weight: 1
        - name: nvidia.com/gpu
          weight: 3
        type: LeastAllocated
    name: NodeResourcesFit
"""
MOST_ALLOCATED = LEAST_ALLOCATED.replace("LeastAllocated", "MostAllocated")
CAPACITY_RATIO = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy:
        resources:
        - name: nvidia.com/gpu
          weight: 3
        - name: memory
          weight: 1
        requestedToCapacityRatio:
          shape:
          - utilization: 0
            score: 0
          - utilization: 100
            score: 10
        type: RequestedToCapacityRatio
"""
ADDED_AFFINITY = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: default-scheduler
  - schedulerName: foo-scheduler
    pluginConfig:
      - name: NodeAffinity
        args:
          addedAffinity:
            requiredDuringSchedulingIgnoredDuringExecution:
              nodeSelectorTerms:
              - matchExpressions:
                - key: scheduler-profile
                  operator: In
                  values:
                  - foo
"""
DEFAULT_CONSTRAINTS = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: default-scheduler
    pluginConfig:
      - name: PodTopologySpread
        args:
          defaultConstraints:
            - maxSkew: 1
              topologyKey: topology.kubernetes.io/zone
              whenUnsatisfiable: DoNotSchedule
          defaultingType: List
"""
GPU_SCHEDULER = """
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
- schedulerName: default-scheduler
"""
GPU_SCHEDULER_MAP = yaml.safe_dump(
    {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "gpu-scheduler-config", "namespace": "kube-system"},
        "data": {"config.yaml": GPU_SCHEDULER},
    }
)

pytestmark = pytest.mark.timeout(300)
StartGangline = Callable[..., Gangline]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        pytest.param(MINIMAL, [DEFAULT], id="minimal"),
        pytest.param(TUNED, ["my-scheduler"], id="tuned"),
        pytest.param(WITHOUT_SCORING, ["no-scoring-scheduler", DEFAULT], id="without scoring"),
        pytest.param(REORDERED, [DEFAULT], id="reordered"),
    ],
)
async def test_a_documented_configuration_schedules_for_each_of_its_profiles(
    empty: Api, own_control_plane: ControlPlane, start_gangline: StartGangline, text: str, names: list[str]
) -> None:
    start_gangline(own_control_plane.kubeconfig, yaml.safe_load(text))
    await empty.create_many(kwok_node(f"node-{i}") for i in range(3))
    await empty.create_many(gpu_pod(f"{name}-{i}", scheduler_name=name) for name in names for i in range(3))

    pods = await empty.wait_for(empty.pods, is_bound, 3 * len(names))

    assert {pod["spec"]["schedulerName"] for pod in pods} == set(names)


@pytest.mark.parametrize(
    ("text", "used"),
    [
        pytest.param(LEAST_ALLOCATED, 4, id="LeastAllocated"),
        pytest.param(MOST_ALLOCATED, 1, id="MostAllocated"),
        pytest.param(CAPACITY_RATIO, 1, id="RequestedToCapacityRatio"),
    ],
)
async def test_the_scoring_strategy_says_whether_pods_are_packed(
    empty: Api, own_control_plane: ControlPlane, start_gangline: StartGangline, text: str, used: int
) -> None:
    await empty.create_many(kwok_node(f"node-{i}") for i in range(4))
    start_gangline(own_control_plane.kubeconfig, yaml.safe_load(text))
    await empty.create_many(gpu_pod(f"pod-{i}", cpu="10", memory="100Gi") for i in range(8))

    pods = await empty.wait_for(empty.pods, is_bound, 8)

    assert len(nodes_of(pods)) == used


async def test_added_affinity_binds_all_pods_of_its_profile_and_no_other(
    empty: Api, own_control_plane: ControlPlane, start_gangline: StartGangline
) -> None:
    await empty.create_many([kwok_node("foo", labels={"scheduler-profile": "foo"}), kwok_node("other")])
    start_gangline(own_control_plane.kubeconfig, yaml.safe_load(ADDED_AFFINITY))
    await empty.create_many(gpu_pod(f"foo-{i}", scheduler_name="foo-scheduler") for i in range(3))
    pods = await empty.wait_for(empty.pods, is_bound, 3)
    await empty.create(gpu_pod("free", gpus=8))  # fits on the other node alone

    free = await empty.wait_for(empty.pods, lambda pod: is_named(pod, "free") and is_bound(pod), 1)

    assert nodes_of(pods) == {"foo"}
    assert nodes_of(free) == {"other"}


async def test_default_constraints_hold_for_the_pods_of_a_service(
    empty: Api, own_control_plane: ControlPlane, start_gangline: StartGangline
) -> None:
    await empty.create_many(
        [kwok_node("small", gpus=1, labels={ZONE: "a"}), kwok_node("large", gpus=8, labels={ZONE: "b"})]
    )
    await empty.create(_service("web"))
    start_gangline(own_control_plane.kubeconfig, yaml.safe_load(DEFAULT_CONSTRAINTS))
    await empty.create_many(gpu_pod(f"web-{i}", labels={"app": "web"}) for i in range(4))

    (refused,) = await empty.wait_for(empty.pods, _is_told, 1)
    pods = await empty.wait_for(empty.pods, is_bound, 3)

    assert sorted(pod["spec"]["nodeName"] for pod in pods) == ["large", "large", "small"]
    assert "1 node(s) didn't match pod topology spread constraints" in _message(refused)


@pytest.mark.parametrize("text", [GPU_SCHEDULER, GPU_SCHEDULER_MAP], ids=["plain", "ConfigMap"])
async def test_a_v1beta3_profile_looks_at_the_resources_that_it_names(
    empty: Api, own_control_plane: ControlPlane, start_gangline: StartGangline, text: str
) -> None:
    await empty.create_many(kwok_node(f"free-{what}") for what in ("gpus", "cpu"))
    await empty.create(gpu_pod("devices", gpus=6, scheduler_name="nobody"))
    await empty.create(gpu_pod("cores", gpus=0, cpu="90", scheduler_name="nobody"))
    await empty.bind("devices", "free-cpu")
    await empty.bind("cores", "free-gpus")
    start_gangline(own_control_plane.kubeconfig, yaml.safe_load(text))
    await empty.create_many(gpu_pod(name, scheduler_name=name) for name in ("gpu-scheduler", DEFAULT))

    pods = await empty.wait_for(empty.pods, is_bound, 4)

    assert _placed(pods, "gpu-scheduler") == "free-gpus"
    assert _placed(pods, DEFAULT) == "free-cpu"


async def test_weights_decide_between_two_plugins_that_disagree(
    empty: Api, own_control_plane: ControlPlane, start_gangline: StartGangline
) -> None:
    await empty.create_many([kwok_node("liked", labels={"disk": "fast"}), kwok_node("empty")])
    await empty.create(gpu_pod("filler", gpus=0, cpu="60", memory="600Gi", scheduler_name="nobody"))
    await empty.bind("filler", "liked")
    weights = {"by-label": {"NodeAffinity": 60}, "by-room": {"NodeResourcesFit": 80}}
    start_gangline(own_control_plane.kubeconfig, configuration(*(_weighted(*each) for each in weights.items())))
    await empty.create_many(gpu_pod(name, scheduler_name=name, spec=_prefers("disk", "fast")) for name in weights)

    pods = await empty.wait_for(empty.pods, is_bound, 3)

    assert _placed(pods, "by-label") == "liked"
    assert _placed(pods, "by-room") == "empty"


@pytest.mark.parametrize("point", ["filter", "multiPoint"])
async def test_a_disabled_plugin_is_off(
    empty: Api, own_control_plane: ControlPlane, start_gangline: StartGangline, point: str
) -> None:
    await empty.create(kwok_node("tainted", taints=[TAINT]))
    off = {"schedulerName": "tolerant", "plugins": {point: {"disabled": [{"name": "TaintToleration"}]}}}
    start_gangline(own_control_plane.kubeconfig, configuration({"schedulerName": DEFAULT}, off))
    await empty.create_many(gpu_pod(name, scheduler_name=name) for name in ("tolerant", DEFAULT))

    (bound,) = await empty.wait_for(empty.pods, is_bound, 1)
    (refused,) = await empty.wait_for(empty.pods, _is_told, 1)

    assert bound["metadata"]["name"] == "tolerant"
    assert "1 node(s) had untolerated taint(s)" in _message(refused)


async def test_a_complete_configuration_of_our_own_is_as_good_as_the_short_one(
    empty: Api, own_control_plane: ControlPlane, start_gangline: StartGangline, tmp_path: Path
) -> None:
    (tmp_path / "short.yaml").write_text(MOST_ALLOCATED)
    shown = _output([sys.executable, "-m", "gangline", "config", "show", str(tmp_path / "short.yaml")])

    scheduler = start_gangline(own_control_plane.kubeconfig, yaml.safe_load(shown))
    await empty.create_many(kwok_node(f"node-{i}") for i in range(4))
    await empty.create_many(gpu_pod(f"pod-{i}", cpu="10") for i in range(8))

    pods = await empty.wait_for(empty.pods, is_bound, 8)

    assert len(nodes_of(pods)) == 1
    assert _complaints(scheduler) == []


async def test_what_kube_scheduler_writes_is_taken_as_it_is(
    empty: Api, own_control_plane: ControlPlane, start_gangline: StartGangline, tmp_path: Path
) -> None:
    scheduler = start_gangline(own_control_plane.kubeconfig, _written(own_control_plane, MOST_ALLOCATED, tmp_path))
    await empty.create_many(kwok_node(f"node-{i}") for i in range(4))
    await empty.create_many(gpu_pod(f"pod-{i}", cpu="10") for i in range(8))

    pods = await empty.wait_for(empty.pods, is_bound, 8)

    assert len(nodes_of(pods)) == 1
    assert _complaints(scheduler) == []


def _written(plane: ControlPlane, text: str, folder: Path) -> Manifest:
    """The configuration that kube-scheduler writes, with every default, when it is given one."""
    given, written = folder / "given.yaml", folder / "written.yaml"
    given.write_text(
        yaml.safe_dump({**yaml.safe_load(text), "clientConnection": {"kubeconfig": str(plane.kubeconfig)}})
    )
    program = binaries.find().path("kube-scheduler")
    words = [f"--config={given}", f"--write-config-to={written}", f"--cert-dir={folder}"]
    _output([str(program), *words])
    loaded: Manifest = yaml.safe_load(written.read_text())
    return loaded


def _output(command: list[str]) -> str:
    """What a command prints; it has to succeed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _complaints(scheduler: Gangline) -> list[str]:
    """The warnings about the configuration; on a slow machine the log may have others."""
    lines = scheduler.logs().splitlines()
    return [line for line in lines if "WARNING" in line and str(scheduler.config_file) in line]


def _weighted(name: str, weights: dict[str, int]) -> Manifest:
    enabled = [{"name": plugin, "weight": weight} for plugin, weight in weights.items()]
    return {"schedulerName": name, "plugins": {"score": {"enabled": enabled}}}


def _prefers(key: str, value: str) -> Manifest:
    """A preferred node affinity."""
    expressions = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    preferred = [{"weight": 1, "preference": expressions}]
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}


def _service(app: str) -> Manifest:
    spec = {"selector": {"app": app}, "ports": [{"port": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": app}, "spec": spec}


def _placed(pods: list[Manifest], name: str) -> str:
    """The node of the pod with a name."""
    (node,) = nodes_of(pod for pod in pods if is_named(pod, name))
    return node


def _is_told(pod: Manifest) -> bool:
    """Whether a pod was told that it does not fit."""
    return not is_bound(pod) and bool(_message(pod))


def _message(pod: Manifest) -> str:
    conditions = pod["status"].get("conditions", [])
    return next((each.get("message", "") for each in conditions if each["type"] == "PodScheduled"), "")
