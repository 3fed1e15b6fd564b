"""What the loop does with a pod that could not be bound."""

from __future__ import annotations

from typing import Any, cast

from gangline import config, model
from gangline.deciding.scheduling import Decision, decide
from gangline.kube.interface import Client
from gangline.kube.resources import PODS
from gangline.loop.scheduler import Scheduler
from gangline.profile.registry import Catalog
from gangline.status import Code, Status
from gangline.testing import SCHEDULER, FakeClock, make_node, make_pod
from gangline_plugins.default_binder import DefaultBinder
from gangline_plugins.node_resources_fit import NodeResourcesFit
from gangline_plugins.priority_sort import PrioritySort

CONFIG = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint:
      disabled: [{name: "*"}]
      enabled: [{name: PrioritySort}, {name: DefaultBinder}, {name: NodeResourcesFit}]
"""


def scheduler() -> Scheduler:
    catalog = Catalog({}).with_classes(PrioritySort, DefaultBinder, NodeResourcesFit)
    return Scheduler(config.load(CONFIG, "test"), cast(Client, None), FakeClock(), catalog)


def seen(made: Scheduler, pod: model.Pod) -> None:
    """What the watch does when it brings a pod."""
    handler: Any = next(i._handler for i in made.informers if i.resource is PODS)
    handler.upsert(pod)


async def test_a_pod_that_somebody_else_bound_while_we_did_is_counted_once_and_not_tried_again() -> None:
    made = scheduler()
    for name in ("a", "b"):
        made.cache.upsert_node(make_node(name))
    seen(made, make_pod("p", cpu=2))
    unit = made.queue.pop(1000.0)
    assert unit is not None
    decision = decide(unit, made.runtimes[SCHEDULER], made.cache, {})
    assert isinstance(decision, Decision)
    other = "b" if decision.node == "a" else "a"

    seen(made, make_pod("p", cpu=2, node=other))
    made.outcomes.finished(decision, Status(Code.ERROR, ("409 Conflict: bound already",), "DefaultBinder"))

    assert made.queue.get(unit.uid) is None and made.queue.pop(10_000.0) is None
    assert sum(made.cache.nodes.view().requested("cpu").tolist()) == 2000
    assert made.cache.pods[unit.uid].node_name == other
