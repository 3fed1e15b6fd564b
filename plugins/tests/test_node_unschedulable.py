"""NodeUnschedulable."""

from __future__ import annotations

import pytest

from gangline.model import Toleration
from gangline.testing import cluster, make_node, make_pod, run_filter
from gangline_plugins.node_unschedulable import NodeUnschedulable

CACHE = cluster([make_node("open"), make_node("cordoned", unschedulable=True)])


def test_a_cordoned_node_takes_no_pods() -> None:
    assert run_filter(NodeUnschedulable, make_pod("p"), CACHE) == {
        "open": (),
        "cordoned": ("node(s) were unschedulable",),
    }


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        (Toleration(key="node.kubernetes.io/unschedulable", operator="Exists"), True),
        (Toleration(key="node.kubernetes.io/unschedulable", effect="NoSchedule"), True),
        (Toleration(operator="Exists"), True),
        (Toleration(key="node.kubernetes.io/unschedulable", operator="Exists", effect="NoExecute"), False),
        (Toleration(key="other", operator="Exists"), False),
    ],
    ids=["exists", "equal", "everything", "other effect", "other key"],
)
def test_a_pod_that_tolerates_it_fits(toleration: Toleration, fits: bool) -> None:
    reasons = run_filter(NodeUnschedulable, make_pod("p", tolerations=[toleration]), CACHE)["cordoned"]

    assert (reasons == ()) is fits
