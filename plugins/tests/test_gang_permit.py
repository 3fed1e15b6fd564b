"""GangPermit: who waits at permit for whom."""

from __future__ import annotations

from gangline import Action, Cycle, PodInfo
from gangline.testing import make_pod
from gangline.testing.gangs import Gangs, fabric
from gangline_plugins.gang_permit import GangPermit, GangPermitArgs


def permitted(gangs: Gangs, pod: PodInfo, row: int) -> dict[str, float]:
    """Assume a pod on its own cycle; who holds it, and for how long."""
    gangs.cache.assume(pod, row)
    status, holds = gangs.runtime.permit(Cycle(), pod, gangs.cache.nodes.names[row])
    assert status.is_success
    return holds


def test_the_member_that_makes_them_enough_lets_those_of_its_own_group_go() -> None:
    gangs = Gangs(fabric(), args={"GangPermit": GangPermitArgs(timeout_seconds=7.0)})
    first, last = gangs.gang("a", 2)
    other, _ = gangs.gang("b", 2)

    held = [permitted(gangs, pod, row) for row, pod in enumerate((first, other, last))]

    assert held == [{"GangPermit": 7.0}, {"GangPermit": 7.0}, {}]
    waiting = {each.pod.name: each.verdict for each in gangs.handle.waiting}
    assert waiting["a-0"] is not None and waiting["a-0"].is_success
    assert waiting["b-0"] is None


def test_a_pod_on_its_own_waits_for_nobody() -> None:
    gangs = Gangs(fabric())

    assert permitted(gangs, gangs.cache.record(make_pod("alone", cpu=1)), 0) == {}


def test_a_group_that_waited_in_vain_is_tried_again_when_pods_or_nodes_come_or_go() -> None:
    plugin = GangPermit(GangPermitArgs(), Gangs(fabric()).handle)

    events = {(hint.event.resource, hint.event.action) for hint in plugin.events_to_register()}

    assert events == {("pods", Action.ADD | Action.DELETE), ("nodes", Action.ADD | Action.UPDATE)}
