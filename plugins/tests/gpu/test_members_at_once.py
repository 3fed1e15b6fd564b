"""Before members are placed at once, plugins do for all of them what they do for each."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gangline import custom_resources, group_keys, resources
from gangline.testing import FakeHandle, Runtime, make_pod, make_runtime
from gangline_plugins.gpu.claim import GpuClaim
from gangline_plugins.gpu.devices import device_table
from gangline_plugins.gpu.leases.holds import Hold, lease_of
from gangline_plugins.gpu.leases.plugin import DeviceLease
from gangline_plugins.gpu.scheduling_map import GpuSchedulingMap
from gangline_plugins.topology_annotations.plugin import TopologyAnnotations

from .gpu_cases import claim, gpu_cluster, report

PLUGINS = (GpuClaim, GpuSchedulingMap, TopologyAnnotations, DeviceLease)
ANNOTATIONS = st.dictionaries(
    st.sampled_from([custom_resources.CLAIM, custom_resources.SCHEDULING_MAP, group_keys.GPU_COUNT]),
    st.sampled_from(["one", "0", "no map;;"]),
    max_size=2,
)


def told(annotations: list[dict[str, str]], at_once: bool) -> list[Any]:
    """What is left behind when the pods are about to be placed."""
    cache = gpu_cluster([report("a")], [claim("one", count=1)])
    handle = FakeHandle(cache)
    runtime: Runtime = make_runtime(cache, *PLUGINS, handle=handle)
    pods = [cache.record(make_pod(f"p{n}", 1, annotations=each)) for n, each in enumerate(annotations)]
    hold = Hold(pod=pods[0].key, by="other.1", ids=(3,))
    cache.store(resources.LEASES).upsert(lease_of("gpu-a-3", "locks", "a", {pods[0].uid: hold}, ""))
    with cache.transaction() as tx:  # they have had devices at an earlier attempt
        for pod in pods[:8]:
            tx.place(pod, 0)
            device_table(cache).reserve(pod.uid)
    for impl in runtime.profile.points["pre_cycle"]:
        assert impl.at_once is not None
        if at_once:
            impl.at_once(pods)
        else:
            for pod in pods:
                impl.quick(pod)
    with cache.transaction() as tx:
        for pod in pods[:8]:
            tx.place(pod, 0)
        devices = [device_table(cache).allocation(pod.uid) for pod in pods]
    events = [(event.pod, event.reason, event.note) for event in handle.fake_recorder.events]
    return [events, len(handle.background.spawned), devices, device_table(cache).columns.busy.tolist()]


@given(st.lists(ANNOTATIONS, min_size=1, max_size=12))
def test_what_plugins_do_before_members_are_placed_is_the_same_for_all_at_once(
    annotations: list[dict[str, str]],
) -> None:
    assert told(annotations, at_once=True) == told(annotations, at_once=False)
