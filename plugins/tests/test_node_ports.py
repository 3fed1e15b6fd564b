"""NodePorts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline import model
from gangline.testing import cluster, make_node, make_pod, make_runtime, run_filter
from gangline_plugins.node_ports import NodePorts

TAKEN = ("node(s) didn't have free ports for the requested pod ports",)
Port = tuple[int, str, str]


def using(name: str, *ports: Port, node: str = "", init: bool = False) -> model.Pod:
    container = model.Container(
        ports=[model.ContainerPort(host_port=number, host_ip=ip, protocol=protocol) for number, ip, protocol in ports],
        restart_policy="Always" if init else None,
    )
    if init:
        return make_pod(name, node=node, init_containers=[container])
    return make_pod(name, node=node, containers=[container])


@pytest.mark.parametrize(
    ("used", "wanted", "fits"),
    [
        ((80, "", "TCP"), (80, "", "TCP"), False),
        ((80, "", "TCP"), (81, "", "TCP"), True),
        ((80, "", "TCP"), (80, "", "UDP"), True),
        ((80, "10.0.0.1", "TCP"), (80, "10.0.0.2", "TCP"), True),
        ((80, "10.0.0.1", "TCP"), (80, "10.0.0.1", "TCP"), False),
        ((80, "10.0.0.1", "TCP"), (80, "0.0.0.0", "TCP"), False),
        ((80, "", "TCP"), (80, "10.0.0.1", "TCP"), False),
    ],
    ids=["same", "other port", "other protocol", "other address", "same address", "any wanted", "any used"],
)
def test_ports_are_in_conflict_by_protocol_number_and_address(used: Port, wanted: Port, fits: bool) -> None:
    cache = cluster([make_node("a"), make_node("b")], [using("q", used, node="a")])

    assert run_filter(NodePorts, using("p", wanted), cache) == {"a": () if fits else TAKEN, "b": ()}


def test_the_ports_of_sidecars_count() -> None:
    cache = cluster([make_node("a")], [using("q", (80, "", "TCP"), node="a", init=True)])

    assert run_filter(NodePorts, using("p", (80, "", "TCP")), cache) == {"a": TAKEN}


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from("ab"), st.sampled_from([80, 81]), st.booleans())))
def test_ports_are_free_again_when_the_last_pod_that_uses_them_leaves(steps: list[tuple[int, str, int, bool]]) -> None:
    cache = cluster([make_node("a"), make_node("b")])
    runtime = make_runtime(cache, NodePorts)
    wanted = cache.record(using("p", (80, "", "TCP")))
    users: dict[int, tuple[str, int]] = {}
    for number, node, port, leaves in steps:
        if leaves:
            cache.remove_pod(f"pod-default-q{number}")
            users.pop(number, None)
        else:
            cache.upsert_pod(cache.record(using(f"q{number}", (port, "", "TCP"), node=node)))
            users[number] = node, port

        free = [(name, 80) not in users.values() for name in "ab"]
        assert runtime.evaluator.filter(wanted).feasible.tolist() == free
