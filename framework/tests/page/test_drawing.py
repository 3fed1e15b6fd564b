"""The picture says of each GPU which workload has it, and what waits; kept up, it is the same as drawn anew."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline import model
from gangline.commands.topology import nodes_of
from gangline.kube.resources import GPU_NODE_STATUSES, RESOURCE_CLAIMS, RESOURCE_SLICES
from gangline.overview.gpu_use import gpu_use
from gangline.page.drawing import CORDONED, NOT_READY
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
        (),
    )


def test_a_gpu_keeps_its_number_where_another_one_is_missing() -> None:
    shown = ShownCluster(node("n"))
    whole = report("n", sick=[3])
    del whole.status.devices[2]
    shown.report(whole)
    shown.bind(make_pod("p", gpus=2, node="n", annotations={ALLOCATED: "6,7"}))

    drawer = shown.draw()
    _, _, _, _, sick, _, _, ids = drawer.tables.rows(EVERYBODY)["nodes"]["n"]

    assert owners(drawer, "n") == ["", "", "", "", "", "default/p", "default/p"]
    assert ids == (0, 1, 3, 4, 5, 6, 7)
    assert [(ids[at], reason) for at, reason in sick] == [(3, "XID 79")]


@pytest.mark.parametrize("status", ["True", "False", "Unknown", ""])
def test_a_node_is_ready_on_the_page_where_other_views_and_kubectl_call_it_ready(status: str) -> None:
    shown = ShownCluster(node("n", ready=status))

    flags = shown.draw().tables.rows(EVERYBODY)["nodes"]["n"][2]
    (listed,) = nodes_of(shown.cache, shown.topology)

    assert (flags, listed["ready"]) == ((0, True) if status == "True" else (NOT_READY, False))


def test_a_node_without_a_device_plugin_has_the_gpus_that_its_agent_reports() -> None:
    shown = ShownCluster(node("n", gpus=0))
    shown.draw()
    shown.report(report("n"))
    shown.bind(make_pod("p", node="n", annotations={ALLOCATED: "0,1"}))

    assert owners(shown.draw(), "n") == ["default/p"] * 2 + [""] * 6


def offer(shown: ShownCluster, name: str, *devices: str) -> None:
    """A driver offers these devices of the node n."""
    spec = {
        "driver": "gpu.nvidia.com",
        "pool": {"name": "n", "resourceSliceCount": 1},
        "nodeName": "n",
        "devices": [{"name": d} for d in devices],
    }
    shown.cache.store(RESOURCE_SLICES).upsert(
        msgspec.convert({"metadata": {"name": name}, "spec": spec}, model.ResourceSlice)
    )


def test_a_node_has_the_gpus_that_drivers_offer_if_neither_a_device_plugin_nor_an_agent_tells_of_any() -> None:
    shown = ShownCluster(node("n", gpus=0))
    shown.draw()
    offer(shown, "a", "gpu-0", "gpu-1", "gpu-1-mig-1g.10gb")
    offer(shown, "b", "gpu-2")
    shown.cache.store(RESOURCE_CLAIMS).upsert(claim("c", "gpu-1"))

    found, use = owners(shown.draw(), "n"), gpu_use(shown.cache)
    shown.cache.store(RESOURCE_SLICES).remove("", "b")

    assert found == ["", "default/c", ""]
    assert (use.total.tolist(), use.used.tolist()) == ([3], [1])
    assert owners(shown.draw(), "n") == ["", "default/c"]


def test_the_name_of_an_owner_is_cut_where_no_object_has_a_longer_one() -> None:
    shown = ShownCluster(node("n"))
    pod = make_pod("p", gpus=1, node="n")
    pod.metadata.owner_references = [
        model.OwnerReference("K" * 100_000, "o" * 100_000, "uid", "example.com/v1", controller=True)
    ]
    shown.bind(pod)

    (row,) = shown.draw().tables.rows("default")["workloads"].values()

    assert row == ("o" * 253, "K" * 253, 0)


def test_pods_without_gpus_are_counted_only() -> None:
    shown = ShownCluster(node("n"))
    shown.bind(make_pod("daemon", cpu=1, node="n"))

    drawer = shown.draw()

    assert drawer.tables.rows(EVERYBODY)["nodes"]["n"][6] == 1
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


def claim(name: str, *devices: str, users: Iterable[model.Pod] = (), namespace: str = "default") -> model.ResourceClaim:
    results = [{"driver": "gpu.nvidia.com", "pool": "n", "device": device} for device in devices]
    reserved = [{"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid} for pod in users]
    data: dict[str, Any] = {"metadata": {"name": name, "namespace": namespace}}
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}
    return msgspec.convert({**data, "status": status}, model.ResourceClaim)


def user(name: str, claim: str, node: str = "n") -> model.Pod:
    entry = model.PodResourceClaim(name="gpus", resource_claim_name=claim)
    return make_pod(name, node=node, resource_claims=[entry])


def claiming(*pods: model.Pod) -> ShownCluster:
    """A node of four GPUs, all of which are given by claims, and these pods on the node."""
    shown = ShownCluster(node("n", gpus=0))
    shown.report(report("n", gpus=4))
    shown.bind(*pods)
    shown.draw()
    return shown


def test_gpus_of_claims_are_those_of_the_pods_that_use_them() -> None:
    pod = user("p", "c")
    shown = claiming(pod)
    shown.cache.store(RESOURCE_CLAIMS).upsert(claim("c", "gpu-1", "gpu-2-mig-1g.10gb", users=[pod]))

    assert owners(shown.draw(), "n") == ["", "default/p", "default/p", ""]


def test_a_claim_is_used_by_a_pod_that_is_not_the_first_for_which_it_is_reserved() -> None:
    gone, pod = user("gone", "c", node="m"), user("p", "c")
    shown = claiming(pod)
    shown.cache.store(RESOURCE_CLAIMS).upsert(claim("c", "gpu-1", users=[gone, pod]))

    drawer = shown.draw()

    assert owners(drawer, "n") == ["", "default/p", "", ""]
    assert drawer.tables.rows("default")["pods"]["p"][2] == (1,)


def test_instances_of_one_gpu_are_in_the_claims_of_several_pods() -> None:
    first, second = user("p", "c"), user("q", "d")
    shown = claiming(first, second)
    shown.cache.store(RESOURCE_CLAIMS).upsert(claim("c", "gpu-2-mig-1g.10gb-0", users=[first]))
    shown.cache.store(RESOURCE_CLAIMS).upsert(claim("d", "gpu-2-mig-1g.10gb-1", users=[second]))

    pods = shown.draw().tables.rows("default")["pods"]

    assert [pods[name][2] for name in ("p", "q")] == [(2,), (2,)]


def test_gpus_of_a_claim_that_no_drawn_pod_uses_are_those_of_the_claim_in_its_namespace() -> None:
    shown = claiming()
    shown.cache.store(RESOURCE_CLAIMS).upsert(claim("kept", "gpu-3", users=[user("elsewhere", "kept")]))
    shown.cache.store(RESOURCE_CLAIMS).upsert(claim("other", "gpu-1", namespace="other"))

    drawer = shown.draw()

    assert owners(drawer, "n") == ["", "other/other", "", "default/kept"]
    assert [*drawer.tables.rows("default")["workloads"].values()] == [("kept", "ResourceClaim", 0)]


def test_a_claim_is_no_workload_any_more_once_a_pod_uses_it() -> None:
    shown = claiming()
    shown.cache.store(RESOURCE_CLAIMS).upsert(claim("c", "gpu-3"))
    shown.draw()
    shown.bind(user("p", "c"))

    drawer = shown.draw()

    assert owners(drawer, "n") == ["", "", "", "default/p"]
    assert [row[1] for row in drawer.tables.rows("default")["workloads"].values()] == ["Pod"]


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
