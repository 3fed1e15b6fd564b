"""What requests do not tell is found out on the real columns."""

from __future__ import annotations

from typing import Any

from gangline import model
from gangline_plugins.counting.inter_pod_affinity import InterPodAffinity
from gangline_plugins.node_ports import NodePorts

from .preemption_cases import Bench, leaf


def port(number: int) -> dict[str, Any]:
    """A container that wants a port of its node."""
    ports = [model.ContainerPort(container_port=number, host_port=number)]
    wanted = model.ResourceRequirements(requests={"cpu": 1})
    return {"containers": [model.Container(name="main", image="main:1", resources=wanted, ports=ports)]}


def test_only_those_go_that_hold_a_port_that_the_gang_wants() -> None:
    bench = Bench(1, 2, None, NodePorts)
    for node in leaf(0):
        bench.run(f"taken-{node}", node, **port(80))
        for n in range(3):
            bench.run(f"other-{node}-{n}", node, gpus=1)

    victims = bench.preempt(bench.members("new", 2, **port(80)))

    assert victims == ["taken-l0-n0", "taken-l0-n1"]


def test_a_gang_whose_port_is_not_free_for_all_its_members_evicts_nobody() -> None:
    bench = Bench(1, 2, None, NodePorts)
    bench.run("low", "l0-n0", **port(80))
    bench.run("high", "l0-n1", priority=20, **port(80))

    assert "would not fit" in bench.refusal(bench.members("new", 2, **port(80)))


def test_those_go_from_which_the_gang_keeps_away() -> None:
    bench = Bench(2, 2, None, InterPodAffinity)
    bench.run("noisy", "l0-n0", gpus=1, labels={"app": "noisy"})
    bench.run("quiet", "l0-n1", gpus=1)
    bench.gang("full", leaf(1), priority=20)
    term = model.PodAffinityTerm(
        label_selector=model.LabelSelector(match_labels={"app": "noisy"}), topology_key="topology.gangline.dev/leaf"
    )
    apart = model.Affinity(pod_anti_affinity=model.PodAffinity(required=[term]))

    assert bench.preempt(bench.members("new", 2, gpus=4, affinity=apart)) == ["noisy"]


def test_a_leader_and_its_worker_need_room_for_both() -> None:
    bench = Bench(leaves=2)
    bench.gang("a", ["l0-n0"])
    bench.gang("b", ["l0-n1"])
    bench.gang("c", leaf(1), priority=5)
    leader, worker = bench.members("new", 2, gpus=4)[0], bench.members("new", 2, gpus=8)[1]

    assert bench.preempt([leader, worker]) == ["a-0", "b-0"]


def test_each_slice_of_a_gang_gets_room_in_one_leaf() -> None:
    bench = Bench(leaves=4)
    bench.gang("a", leaf(0))
    bench.gang("c", leaf(1), priority=1)
    for number in (2, 3):
        bench.run(f"low-{number}", f"l{number}-n0")
        bench.run(f"high-{number}", f"l{number}-n1", priority=20)
    slices = {
        "kueue.x-k8s.io/podset-slice-required-topology": "leaf",
        "kueue.x-k8s.io/podset-slice-size": "2",
    }

    assert bench.preempt(bench.members("new", 4, annotations=slices)) == ["a-0", "a-1", "c-0", "c-1"]


def test_a_gang_that_fits_no_leaf_is_helped_in_several() -> None:
    bench = Bench(3, 2, None, NodePorts)
    for number in range(3):
        bench.run(f"low-{number}", f"l{number}-n0", **port(80))
        bench.run(f"high-{number}", f"l{number}-n1", priority=20, **port(80))

    assert bench.preempt(bench.members("new", 3, annotations={}, **port(80))) == ["low-0", "low-1", "low-2"]
