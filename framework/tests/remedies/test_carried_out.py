"""Each remedy that is shown makes the unit start when somebody carries it out, on clusters that hypothesis makes up."""

from __future__ import annotations

from hypothesis import event, given
from hypothesis import strategies as st

from gangline import model
from gangline.testing.gangs import LEAF

from .worlds import World, members, node, occupant, waiting

TAINTS = ("dedicated=team-a:NoSchedule", "maintenance:NoExecute", "node.kubernetes.io/not-ready:NoSchedule")


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A few nodes under two leaves, partly broken and partly in use, and a pod or gang."""
    nodes: list[model.Node] = []
    running: list[model.Pod] = []
    busy = ((), (4,), (4,), (8,), (4, 4), (2, 4)) if draw(st.booleans()) else ((), (), (4,))
    for number in range(draw(st.integers(3, 6))):
        name = f"n{number}"
        taints = [draw(st.sampled_from(TAINTS))] if draw(st.integers(0, 3)) == 0 else []
        nodes.append(node(name, number % 2, taints=taints, unschedulable=draw(st.integers(0, 7)) == 0))
        for gpus in draw(st.sampled_from(busy)):
            running.append(occupant(f"busy-{len(running)}", name, gpus, draw(st.sampled_from((0, 10)))))
    gpus, cpu = draw(st.sampled_from((4, 8, 8, 16))), draw(st.sampled_from((1, 1, 1, 100)))
    priority = draw(st.sampled_from((0, 5)))
    size = draw(st.sampled_from((0, 2, 2, 3, 3, 4)))
    selector = draw(st.sampled_from((None, None, {"disk": "ssd"}, {LEAF: "leaf-0"}, {LEAF: "leaf-1", "disk": "ssd"})))
    unit = members(
        size, gpus, draw(st.sampled_from(("", "leaf", "leaf"))), cpu=cpu, priority=priority, node_selector=selector
    )
    alone = (waiting(gpus=gpus, cpu=cpu, priority=priority, node_selector=selector),)
    return World(tuple(nodes), unit or alone, tuple(running), size)


@given(worlds())
def test_each_remedy_makes_the_unit_start_and_asking_changes_nothing(world: World) -> None:
    found = world.remedies()

    assert found.is_complete
    assert not found.note or world.starts()
    assert [each.cost for each in found.remedies] == sorted(each.cost for each in found.remedies)
    for remedy in found.remedies:
        event(remedy.kind.value)
        assert world.after(remedy).starts(), (remedy, world)
