"""A pod on its own does not break the last complete domain that gangs of the usual size need."""

from __future__ import annotations

import numpy as np

from gangline import PodInfo
from gangline.testing import GPU, make_node, make_pod
from gangline.testing.gangs import Gangs, fabric
from gangline_plugins.anti_fragmentation import AntiFragmentation


class Cluster(Gangs):
    """Spines of two leaves with four nodes of eight GPUs, under AntiFragmentation alone."""

    def __init__(self, spines: int = 1, leaves: int = 2) -> None:
        super().__init__(fabric(spines=spines, leaves=leaves), AntiFragmentation)

    @property
    def plugin(self) -> AntiFragmentation:
        found = self.runtime.profile.plugins["AntiFragmentation"]
        assert isinstance(found, AntiFragmentation)
        return found

    def expect_gangs(self, size: int, count: int = 1) -> None:
        """Gangs of so many whole nodes have been asked for."""
        for number in range(count):
            for pod in self.gang(f"gang-{size}-{number}", size):
                self.plugin.post_enqueue(pod)

    def expect_singles(self, count: int) -> None:
        """So many pods of one GPU have been asked for."""
        for number in range(count):
            self.plugin.post_enqueue(self.single(f"single-{number}"))

    def single(self, name: str) -> PodInfo:
        return self.cache.record(make_pod(name, gpus=1, cpu=1))

    def best(self) -> set[str]:
        """The leaves of the nodes that are best for a pod of one GPU."""
        scores = self.scores()
        names = self.cache.nodes.names
        return {names[row].rsplit("-", 1)[0] for row in np.flatnonzero(scores > scores.max() - 1e-9).tolist()}

    def scores(self) -> np.ndarray:
        filtered = self.runtime.evaluator.filter(self.single("new"))
        return self.runtime.evaluator.scores(filtered)["AntiFragmentation"]


def test_a_leaf_that_is_in_use_is_taken_before_the_last_complete_one_is_broken() -> None:
    cluster = Cluster()
    cluster.expect_gangs(4)
    cluster.occupy("s0-l0-n0", 8)

    assert cluster.best() == {"s0-l0"}


def test_breaking_one_of_many_costs_less_than_breaking_the_last_one() -> None:
    few, many = Cluster(leaves=2), Cluster(leaves=8)
    for cluster in (few, many):
        cluster.expect_gangs(4)
        cluster.occupy("s0-l0-n0", 1)

    assert few.scores()[4] < many.scores()[4]


def test_a_complete_spine_is_kept_for_gangs_that_need_one() -> None:
    cluster = Cluster(spines=2)
    cluster.expect_gangs(8)
    cluster.occupy("s1-l0-n0", 8)
    cluster.occupy("s1-l1-n0", 8)

    assert cluster.best() <= {"s1-l0", "s1-l1"}


def test_gangs_of_one_node_need_no_complete_leaf() -> None:
    cluster = Cluster()
    cluster.expect_gangs(1, count=4)
    plain = cluster.scores()

    assert np.ptp(plain) < 1e-9


def test_without_gangs_nodes_of_one_leaf_are_in_the_order_in_which_they_are_without_a_topology() -> None:
    cluster = Cluster()
    cluster.expect_singles(20)
    cluster.occupy("s0-l0-n0", 3)
    cluster.occupy("s0-l0-n1", 5)

    asked = cluster.plugin._asked(cluster.single("new"))
    scores, plain = cluster.scores(), cluster.plugin._rating.scores(asked, cluster.cache.nodes.view())

    for leaf in ("s0-l0", "s0-l1"):
        rows = [row for row, name in enumerate(cluster.cache.nodes.names) if name.startswith(leaf)]
        assert np.array_equal(np.argsort(scores[rows], kind="stable"), np.argsort(plain[rows], kind="stable"))
    assert cluster.best() == {"s0-l0"}


def test_pods_without_gpus_break_nothing() -> None:
    cluster = Cluster()
    cluster.expect_gangs(4)
    cluster.occupy("s0-l0-n0", 0)
    pod = cluster.cache.record(make_pod("cpu", cpu=1))
    scores = cluster.runtime.evaluator.scores(cluster.runtime.evaluator.filter(pod))["AntiFragmentation"]

    assert np.ptp(scores[1:]) < 1e-9


def test_a_leaf_that_is_complete_again_is_kept_again() -> None:
    cluster = Cluster()
    cluster.expect_gangs(4)
    cluster.occupy("s0-l0-n0", 1)
    cluster.occupy("s0-l1-n0", 1)
    cluster.scores()

    cluster.cache.remove_pod("pod-default-busy-s0-l1-n0-1")

    assert cluster.cache.nodes.view().requested(GPU)[4] == 0
    assert cluster.best() == {"s0-l0"}


def test_what_happens_before_the_nodes_have_leaves_counts_once_they_have_some() -> None:
    late, early = Cluster(leaves=3), Cluster(leaves=3)
    for cluster in (late, early):
        nodes = [node for node in cluster.cache.nodes.objects if node is not None]
        cluster.expect_gangs(4)
        cluster.scores()
        if cluster is late:
            for node in nodes:
                cluster.cache.upsert_node(make_node(node.metadata.name, gpus=8, cpu=64, memory="512Gi"))
        cluster.occupy("s0-l0-n0", 8)
        cluster.scores()
        cluster.occupy("s0-l1-n1", 8)
        cluster.scores()
        for node in nodes:
            cluster.cache.upsert_node(node)

    assert late.scores().tolist() == early.scores().tolist()
    assert late.best() == {"s0-l0", "s0-l1"} and late.scores()[8:].max() < late.scores()[:8].max() - 1.0
