"""The picture says of each GPU which workload has it, and what waits; kept up, it is the same as drawn anew."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline import model
from gangline.kube.resources import GPU_NODE_STATUSES, RESOURCE_CLAIMS
from gangline.page.drawing import CORDONED, SOMEBODY
from gangline.page.tables import EVERYBODY
from gangline.testing import make_pod
from gangline.wire.custom_resources import ALLOCATED

from .shown import ShownCluster, in_words, node, owners, report

GANG = "scheduling.x-k8s.io/pod-group"


def test_gpus_are_shown_where_their_pods_have_them() -> None:
    shown = ShownCluster(node("n"))
    shown.bind(make_pod("p", gpus=2, node="n", annotations={ALLOCATED: "5,6"}), make_pod("q", gpus=1, node="n"))

    drawer = shown.draw()

    assert owners(drawer, "n") == ["default/q", "", "", "", "", "default/p", "default/p", ""]
    assert drawer.tables.rows("default")["pods"]["p"][2] == (5, 6)


def test_nodes_have_their_domains_taints_sick_gpus_and_islands() -> None:
    shown = ShownCluster(node("n", "leaf-3", "spine-1", taints=["a=b:NoSchedule", "c:NoExecute"], unschedulable=True))
    shown.cache.upsert_node(node("m", "leaf-3", "spine-1"))
    shown.report(report("n", sick=[2], gpus=4))

    row = shown.draw().tables.rows(EVERYBODY)["nodes"]["n"]

    assert row == (
        ("spine-1", "leaf-3"),
        (0, 0, 0, 0),
        CORDONED,
        ("a=b:NoSchedule", "c:NoExecute"),
        ((2, "XID 79"),),
        (0, 0, 1, 1),
        0,
    )


def test_a_node_without_a_device_plugin_has_the_gpus_that_its_agent_reports() -> None:
    shown = ShownCluster(node("n", gpus=0))
    shown.draw()
    shown.report(report("n"))
    shown.bind(make_pod("p", node="n", annotations={ALLOCATED: "0,1"}))

    assert owners(shown.draw(), "n") == ["default/p"] * 2 + [""] * 6


def test_pods_without_gpus_are_counted_only() -> None:
    shown = ShownCluster(node("n"))
    shown.bind(make_pod("daemon", cpu=1, node="n"))

    drawer = shown.draw()

    assert drawer.tables.rows(EVERYBODY)["nodes"]["n"][-1] == 1
    assert drawer.tables.namespaces == frozenset()


def test_what_waits_is_shown_with_the_reason_and_counted_for_everybody() -> None:
    shown = ShownCluster(node("n"))
    shown.wait(make_pod("big", gpus=16, namespace="team"))
    unit = shown.queue.pop(6.0)
    assert unit is not None
    shown.queue.requeue(unit, ["NodeResourcesFit"], "0/1 nodes are available", 7.0)

    drawer = shown.draw()

    (row,) = drawer.tables.rows("team")["units"].values()
    assert row[1:] == ("unschedulable", "0/1 nodes are available", 1, 16, 1, 5, ("NodeResourcesFit",), None)
    assert drawer.tables.rows(EVERYBODY)["counts"]["unschedulable"] == (1,)


def test_a_node_that_goes_leaves_nothing_behind() -> None:
    shown = ShownCluster(node("n"), node("m"))
    shown.bind(make_pod("p", gpus=8, node="n"))
    shown.draw()
    shown.cache.remove_node("n")

    drawer = shown.draw()

    assert list(drawer.tables.rows(EVERYBODY)["nodes"]) == ["m"]
    assert drawer.tables.namespaces == frozenset()


def claim(pod: model.Pod, *devices: str) -> model.ResourceClaim:
    results = [{"driver": "gpu.nvidia.com", "pool": "n", "device": device} for device in devices]
    users = [{"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid}]
    data: dict[str, Any] = {"metadata": {"name": pod.metadata.name, "namespace": "default"}}
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": users}
    return msgspec.convert({**data, "status": status}, model.ResourceClaim)


def test_gpus_of_claims_are_those_of_the_pods_that_use_them() -> None:
    entry = model.PodResourceClaim(name="gpus", resource_claim_name="p")
    pod, other = make_pod("p", node="n", resource_claims=[entry]), make_pod("elsewhere")
    shown = ShownCluster(node("n", gpus=0))
    shown.report(report("n", gpus=4))
    shown.bind(pod)
    shown.draw()
    shown.cache.store(RESOURCE_CLAIMS).upsert(claim(pod, "gpu-1", "gpu-2-mig-1g.10gb"))
    shown.cache.store(RESOURCE_CLAIMS).upsert(claim(other, "gpu-3"))

    drawer = shown.draw()

    assert owners(drawer, "n")[:3] == ["", "default/p", "default/p"]
    assert drawer.tables.rows(EVERYBODY)["nodes"]["n"][1][3] == SOMEBODY


def test_many_nodes_are_taken_in_parts_and_a_change_alone_afterwards() -> None:
    shown = ShownCluster(*(node(f"n-{number}") for number in range(600)))

    parts = [shown.take() for _ in range(3)]
    shown.bind(make_pod("p", gpus=1, node="n-599"))
    later = shown.take()

    assert [part.is_all for part in parts] == [False, False, True]
    assert "n-599" in {row.name for row in later.rows} and len(later.rows) <= 33


NODES, PODS = ("a", "b", "c"), ("p", "q", "r", "s")
STEP = st.one_of(
    st.tuples(st.just("node"), st.sampled_from(NODES), st.sampled_from(["leaf-0", "leaf-1"]), st.booleans()),
    st.tuples(st.just("no node"), st.sampled_from(NODES)),
    st.tuples(
        st.just("pod"), st.sampled_from(PODS), st.sampled_from(NODES), st.sampled_from(["x", "y"]), st.booleans()
    ),
    st.tuples(st.just("no pod"), st.sampled_from(PODS), st.sampled_from(["x", "y"])),
    st.tuples(st.just("wait"), st.sampled_from(PODS), st.sampled_from(["x", "y"]), st.booleans()),
    st.tuples(st.just("done"), st.sampled_from(PODS), st.sampled_from(["x", "y"])),
    st.tuples(st.just("report"), st.sampled_from(NODES), st.integers(0, 3)),
    st.tuples(st.just("no report"), st.sampled_from(NODES)),
    st.tuples(st.just("look")),
)


def play(shown: ShownCluster, step: Any) -> None:
    match step:
        case ("node", name, leaf, cordoned):
            shown.cache.upsert_node(node(name, leaf, unschedulable=cordoned))
        case ("no node", name):
            shown.cache.remove_node(name)
        case ("pod", name, where, namespace, in_gang):
            labels = {GANG: "g"} if in_gang else {}
            shown.cache.remove_pod(f"pod-{namespace}-{name}")
            shown.bind(make_pod(name, gpus=2, node=where, namespace=namespace, labels=labels))
        case ("no pod", name, namespace):
            shown.cache.remove_pod(f"pod-{namespace}-{name}")
        case ("wait", name, namespace, in_gang):
            shown.queue.remove(f"pod-{namespace}-{name}")
            shown.wait(make_pod(name, gpus=3, namespace=namespace, labels={GANG: "g"} if in_gang else {}))
        case ("done", name, namespace):
            shown.queue.remove(f"pod-{namespace}-{name}")
        case ("report", name, sick):
            shown.report(report(name, sick=range(sick)))
        case ("no report", name):
            shown.cache.store(GPU_NODE_STATUSES).remove("", name)
        case _:
            shown.draw()


@given(st.lists(STEP, max_size=40))
@settings(deadline=None)
def test_a_picture_that_is_kept_up_is_the_same_as_one_that_is_drawn_anew(steps: list[Any]) -> None:
    shown = ShownCluster(node("a"), node("b"))
    for step in steps:
        play(shown, step)

    assert in_words(shown.draw()) == in_words(shown.drawn_anew())
