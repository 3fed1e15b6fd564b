"""The profiles that come with Gangline."""

import pytest

from gangline.config import PluginRef, Profile, load
from gangline_profiles import names, read


def enabled(profile: Profile) -> set[str]:
    """The plugins that a profile enables at all their points."""
    return {plugin.name for plugin in profile.plugins.multi_point.enabled}


def test_there_are_profiles() -> None:
    assert names() == ["default", "gangline", "gpu-scheduler", "topology-aware-scheduler"]


@pytest.mark.parametrize("name", names())
def test_a_profile_loads_and_has_no_settings_but_profiles(name: str) -> None:
    config = load(read(name), name)

    plain = load("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration", "")
    assert type(config)(profiles=plain.profiles, enable_contention_profiling=True) == plain
    assert type(config)(profiles=config.profiles, enable_contention_profiling=True) == config


def test_the_default_profile_changes_nothing() -> None:
    assert load(read("default"), "default").profiles == (Profile("default-scheduler"),)


def test_the_gpu_scheduler_packs_gpus() -> None:
    (profile,) = load(read("gpu-scheduler"), "gpu-scheduler").profiles

    devices, spread, fit = profile.plugin_config
    assert profile.scheduler_name == "gpu-scheduler"
    assert PluginRef("NodeResourcesFit", 10) in profile.plugins.score.enabled
    assert profile.plugins.score.disabled == (PluginRef("NodeResourcesBalancedAllocation"),)
    assert devices.args == {"allocationOrder": "best"}
    assert spread.args == {"defaultingType": "List"}
    assert fit.args is not None
    assert fit.args["scoringStrategy"]["type"] == "MostAllocated"
    assert fit.args["scoringStrategy"]["resources"][0] == {"name": "nvidia.com/gpu", "weight": 100}


def test_the_gpu_scheduler_gives_pods_exact_devices() -> None:
    (profile,) = load(read("gpu-scheduler"), "gpu-scheduler").profiles

    assert {"GpuClaim", "GpuSchedulingMap", "NVLinkTopology", "DeviceLease"} < enabled(profile)


@pytest.mark.parametrize("name", ["gpu-scheduler", "topology-aware-scheduler"])
def test_pods_that_belong_together_are_placed_together(name: str) -> None:
    (profile,) = load(read(name), name).profiles

    assert profile.scheduler_name == name
    gangs = {"GangPermit", "TopologyPlacement", "TopologyAnnotations", "GangPreemption", "Recovery", "Reservation"}
    assert gangs < enabled(profile)
    assert ("LeafSpine" in enabled(profile)) == (name == "topology-aware-scheduler")


def test_gangline_is_the_gpu_scheduler_by_another_name() -> None:
    (profile,), (other,) = (load(read(name), name).profiles for name in ("gangline", "gpu-scheduler"))

    assert profile.scheduler_name == "gangline"
    assert (profile.plugins, profile.plugin_config) == (other.plugins, other.plugin_config)


def test_an_unknown_profile_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="nope"):
        read("nope")
