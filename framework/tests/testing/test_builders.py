"""The builders and fakes that plugin authors use."""

from __future__ import annotations

import pytest

from gangline import SUCCESS, Cycle
from gangline.errors import Conflict
from gangline.testing import GPU, FakeHandle, RecordedEvent, cluster, make_node, make_pod, make_runtime
from gangline_plugins.default_binder import DefaultBinder


def test_a_node_has_what_it_is_given() -> None:
    node = make_node(
        "a", gpus=4, cpu="2", labels={"rack": "r"}, taints=["gpu=h100:NoSchedule", "x:NoExecute"], images={"app:1": 9}
    )

    assert node.status.allocatable == {"cpu": "2", "memory": "1Ti", "pods": 110, GPU: 4}
    assert node.metadata.labels == {"kubernetes.io/hostname": "a", "rack": "r"}
    assert [(t.key, t.value, t.effect) for t in node.spec.taints] == [
        ("gpu", "h100", "NoSchedule"),
        ("x", "", "NoExecute"),
    ]
    assert node.status.images[0].names == ["app:1"] and GPU not in (make_node("b", gpus=0).status.allocatable or {})


def test_a_pod_asks_for_what_it_is_given_and_nothing_else() -> None:
    cache = cluster([make_node("a")], [make_pod("p", gpus=2, memory="1Gi", node="a", priority=5)])

    pod = cache.pods["pod-default-p"]
    assert pod.cls.requests.real == {"memory": 2**30, GPU: 2} and pod.priority == 5
    assert cache.nodes.view().requested(GPU).tolist() == [2]


async def test_bindings_are_kept_and_fail_as_told() -> None:
    cache = cluster([make_node("a")])
    handle = FakeHandle(cache)
    runtime, pod = make_runtime(cache, DefaultBinder, handle=handle), cache.record(make_pod("p"))
    handle.bindings.failures.append(Conflict(409, "Conflict", "taken"))

    failed = await runtime.bind(Cycle(), pod, "a")
    bound = await runtime.bind(Cycle(), pod, "a")

    assert failed.message == "409 Conflict: taken" and bound.code is SUCCESS.code
    assert handle.bindings.bound == {"default/p": "a"}


def test_time_stands_still_until_it_is_told_to_go_on_and_events_are_kept() -> None:
    handle = FakeHandle(cluster())
    before = handle.clock.monotonic()
    handle.fake_clock.advance(2.5)
    handle.recorder.event(handle.state.record(make_pod("p")), "Normal", "Picked", "because")

    assert handle.clock.monotonic() - before == pytest.approx(2.5)
    assert handle.fake_recorder.events == [RecordedEvent("default/p", "Normal", "Picked", "because")]
