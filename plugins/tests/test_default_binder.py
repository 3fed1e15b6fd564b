"""DefaultBinder."""

from __future__ import annotations

from gangline import Code, Cycle
from gangline.errors import NotFound
from gangline.testing import FakeHandle, cluster, make_node, make_pod, make_runtime
from gangline_plugins.default_binder import DefaultBinder


async def test_a_pod_is_bound_with_its_annotations_in_one_write() -> None:
    cache = cluster([make_node("a")])
    handle, cycle = FakeHandle(cache), Cycle()
    cycle.annotations["example.com/gpus"] = "0,1"
    runtime = make_runtime(cache, DefaultBinder, handle=handle)

    status = await runtime.bind(cycle, cache.record(make_pod("p", namespace="team")), "a")

    assert status.is_success and handle.bindings.bound == {"team/p": "a"}
    assert handle.bindings.annotations == {"team/p": {"example.com/gpus": "0,1"}}


async def test_what_the_api_server_refuses_is_a_fault_that_names_the_plugin() -> None:
    cache = cluster([make_node("a")])
    handle = FakeHandle(cache)
    handle.bindings.failures.append(NotFound(404, "NotFound", 'pods "p" not found'))
    runtime = make_runtime(cache, DefaultBinder, handle=handle)

    status = await runtime.bind(Cycle(), cache.record(make_pod("p")), "a")

    assert (status.code, status.plugin) == (Code.ERROR, "DefaultBinder")
    assert status.message == '404 NotFound: pods "p" not found'
