"""`make demo` shows in a browser what an operator looks for, from the first minute on."""

from __future__ import annotations

from pathlib import Path

from gangline.commands.profiles import choose
from gangline.page.drawing import Drawer
from gangline.page.tables import EVERYBODY
from gangline.simulate.filming import Film
from gangline.simulate.session import simulate

SECONDS = 12
"""After so many seconds everything is there."""
DEMO = Path(__file__).parents[3] / "examples" / "demo"


def test_the_demo_has_what_waits_kept_room_backfilled_pods_a_sick_gpu_a_tainted_node_and_fragmentation() -> None:
    film, drawer = Film(SECONDS), Drawer()
    simulate([DEMO], choose((), "gpu-scheduler"), SECONDS, film=film)
    for picture in film.pictures:
        drawer.draw(picture)
    spaces = {name: drawer.tables.rows(name) for name in drawer.tables.namespaces}
    waiting = {
        tables["workloads"][str(unit[0])][0]: unit
        for tables in spaces.values()
        for unit in tables.get("units", {}).values()
    }
    nodes = drawer.tables.rows(EVERYBODY)["nodes"]
    stranded = [owners.count(0) for _, owners, *_ in nodes.values() if 0 < owners.count(0) < len(owners)]

    assert {name: unit[3] for name, unit in waiting.items()} == {"align": 4, "video": 12, "report": 1}
    assert all(unit[2] for unit in waiting.values())  # each says why
    start, since, _, gpus, kept = waiting["align"][-1]
    assert start - since > 1200 and gpus == 32 and len(kept) == 4
    assert [name for name, pod in spaces["audio"]["pods"].items() if pod[0] in kept and name.startswith("check")]
    assert [node[4] for node in nodes.values() if node[4]] == [((5, "XID 79"),)]
    assert [node[3] for node in nodes.values() if node[3]] == [("maintenance=tonight:NoSchedule",)]
    assert len(stranded) >= 4 and sum(stranded) >= 12
