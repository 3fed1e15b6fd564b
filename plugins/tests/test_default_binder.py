"""DefaultBinder."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from gangline import ApiError, Code, Conflict, Cycle, NotFound, TooManyRequests, Unavailable, model, resources
from gangline.simulate import run
from gangline.testing import Cache, FakeHandle, cluster, make_node, make_pod, make_runtime
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


class Server:
    """An API server that answers bindings as told; the node of the pod goes with the first of them."""

    def __init__(self, cache: Cache, failure: ApiError, takes_it: bool = False) -> None:
        self.asked: list[str] = []
        self._cache = cache
        self._failure = failure
        self._takes_it = takes_it

    async def bind(self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]) -> None:
        self.asked.append("bind")
        if self._takes_it and len(self.asked) > 1:
            raise Conflict(409, "Conflict", "pod p is already assigned to node a")
        self._cache.remove_node(node)
        raise self._failure

    async def get(self, resource: resources.Resource[Any], name: str, *, namespace: str) -> model.Pod:
        self.asked.append("get")
        return make_pod(name, namespace=namespace, node="a" if self._takes_it else "")


@pytest.mark.parametrize(
    ("failure", "takes_it", "asked", "is_bound"),
    [
        pytest.param(TooManyRequests(429, "TooManyRequests", "later"), False, ["bind"], False, id="too busy"),
        pytest.param(Unavailable(0, "", "no answer"), False, ["bind", "get"], False, id="not done"),
        pytest.param(
            Unavailable(0, "", "no answer"), True, ["bind", "get", "bind", "get"], True, id="done without an answer"
        ),
    ],
)
async def test_a_binding_is_not_tried_again_once_the_node_has_gone_unless_it_was_done(
    failure: ApiError, takes_it: bool, asked: list[str], is_bound: bool
) -> None:
    cache = cluster([make_node("a")])
    server = Server(cache, failure, takes_it)
    runtime = make_runtime(cache, DefaultBinder, handle=FakeHandle(cache, client=server))
    pod = cache.record(make_pod("p"))
    cache.assume(pod, 0)

    status = await runtime.bind(Cycle(), pod, "a")

    assert server.asked == asked and status.is_success is is_bound
    assert is_bound or status.message == "the node a that was chosen is no longer there"


@pytest.mark.parametrize("cls", [TooManyRequests, Unavailable])
def test_a_binding_is_not_tried_again_before_the_api_server_wants_it(cls: type[ApiError]) -> None:
    cache = cluster([make_node("a")])
    handle = FakeHandle(cache)
    handle.bindings.failures += [cls(429, "", "busy", 10.0), cls(429, "", "busy", 3.0)]
    runtime = make_runtime(cache, DefaultBinder, handle=handle)

    async def story() -> float:
        began = asyncio.get_running_loop().time()
        assert (await runtime.bind(Cycle(), cache.record(make_pod("p")), "a")).is_success
        return asyncio.get_running_loop().time() - began

    assert 13.0 < run(story()) < 13.5
