"""The diagrams of the documentation; `python -m gangline_docs.pictures` writes them to docs/pictures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gangline_docs import topology_picture
from gangline_docs.drawing import GANGS, Kind, Picture

FOLDER = Path(__file__).parents[1] / "pictures"


def data_flow() -> str:
    """The way of the data, in one direction."""
    draw = Picture(920, 330, "The way of the data: watch, cache and queue, decide, bind")
    draw.box(20, 30, 200, 270, ["Kubernetes API", "pods, nodes, claims,", "leases, volumes"])
    draw.frame(260, 16, 640, 298, "gangline run: one process, one writer, no locks")
    draw.box(285, 60, 170, 60, ["Informers", "list, then watch"], "ours")
    draw.box(500, 48, 170, 84, ["Cache", "a column per quantity,", "one row per node"], "ours")
    draw.box(710, 60, 170, 60, ["Queue", "active, back-off, waiting"], "ours")
    draw.box(500, 180, 380, 56, ["Scheduling cycle", "filter, score, choose, reserve, permit: no I/O"], "good")
    draw.box(285, 180, 170, 56, ["Binding cycle", "pre-bind, bind"], "good")
    draw.arrow([(220, 90), (283, 90)], "watch", (250, 82))
    draw.arrow([(455, 90), (498, 90)])
    draw.arrow([(455, 104), (478, 104), (478, 148), (795, 148), (795, 122)], "cluster events", (735, 143))
    draw.arrow([(585, 132), (585, 178)], "columns", (618, 166))
    draw.arrow([(850, 120), (850, 178)], "one unit", (816, 166))
    draw.arrow([(500, 208), (457, 208)], kind="good")
    draw.text(478, 172, "assumed pods", "dim", anchor="middle")
    draw.arrow([(285, 208), (222, 208)], "bind", (252, 200), kind="good")
    draw.box(285, 262, 595, 36, ["Events and conditions: written when no binding waits"], "plain")
    draw.arrow([(285, 280), (222, 280)])
    return draw.svg()


def gang_cycle() -> str:
    """How a gang is decided and bound."""
    draw = Picture(920, 400, "A gang is decided in one cycle and bound in two phases")
    draw.frame(16, 16, 888, 210, "One scheduling cycle, no I/O: nothing of it can be seen from outside")
    steps: list[tuple[list[str], Kind]] = [
        (["Take the gang", "with all members"], "plain"),
        (["Domains", "which may hold it:", "racks, blocks, ..."], "ours"),
        (["Try each", "in a transaction", "that is undone"], "ours"),
        (["Choose", "the best one"], "ours"),
        (["Commit", "all members are", "on their nodes"], "good"),
    ]
    for number, (lines, kind) in enumerate(steps):
        draw.box(36 + 174 * number, 52, 148, 84, lines, kind)
        if number:
            draw.arrow([(36 + 174 * number - 26, 94), (36 + 174 * number - 2, 94)])
    draw.box(290, 164, 376, 44, ["Fits nowhere: nothing has changed, and it waits"], "bad")
    draw.arrow([(458, 136), (458, 162)], kind="bad")
    draw.frame(16, 244, 888, 140, "Binding, beside the next cycles")
    phases: list[tuple[list[str], Kind]] = [
        (["Reserve, Permit", "held until min_member", "members are reserved"], "ours"),
        (["Pre-bind all", "device leases, volumes"], "ours"),
        (["Barrier", "all, or none"], "plain"),
        (["Bind all", "a write for each pod"], "good"),
    ]
    for number, (lines, kind) in enumerate(phases):
        draw.box(36 + 218 * number, 282, 186, 80, lines, kind)
        if number:
            draw.arrow([(36 + 218 * number - 32, 322), (36 + 218 * number - 2, 322)])
    draw.arrow([(806, 136), (806, 234), (129, 234), (129, 280)], kind="good")
    return draw.svg()


def claim_life() -> str:
    """What happens to a claim from creation to the end of its pod."""
    draw = Picture(920, 360, "The life of a GpuClaim")
    draw.box(30, 60, 170, 76, ["Pending", "a pod names it and", "has no place yet"], "plain")
    draw.box(270, 60, 170, 76, ["Reserved", "devices chosen,", "leases being taken"], "ours")
    draw.box(510, 60, 170, 76, ["Bound", "node and ids are", "on pod and claim"], "good")
    draw.box(750, 60, 140, 76, ["Pod ends", "or is deleted"], "plain")
    draw.box(270, 190, 170, 70, ["Failed", "the claim makes no", "sense, or binding failed"], "bad")
    draw.arrow([(200, 98), (268, 98)], "fits", (234, 90))
    draw.arrow([(440, 98), (508, 98)], "bind", (474, 90), kind="good")
    draw.arrow([(680, 98), (748, 98)])
    draw.arrow([(355, 136), (355, 188)], kind="bad")
    draw.arrow([(270, 225), (235, 225), (235, 118), (268, 118)], "tried again", (190, 217))
    draw.arrow([(820, 136), (820, 225), (690, 225)], "watch event", (756, 217))
    draw.box(510, 190, 178, 70, ["Leases deleted", "devices are free again", "for others"], "good")
    draw.text(30, 34, "status.phase of the claim", "bold")
    draw.frame(20, 284, 880, 60)
    draw.text(
        36, 308, "A lease per device (gpu-NODE-ID) is taken before the pod is bound: all of them, or none.", "dim"
    )
    draw.text(36, 330, "Node and devices reach the pod in one write: it is never bound without its allocation.", "dim")
    return draw.svg()


def backfill() -> str:
    """Room that is kept for a gang, over time."""
    draw = Picture(920, 250, "Room is kept for a gang, and shorter work fills the time until it starts")
    left, now, start, end = 110, 110, 480, 890
    running = {0: 300, 1: 480, 2: 380, 3: 230}
    for node in range(5):
        y = 22 + 36 * node
        draw.text(24, y + 20, f"node-{node}", "dim")
        if node < 4:
            draw.box(left, y, running[node] - left, 30, ["runs"])
            draw.box(start, y, end - start - 60, 30, ["the gang"] if node == 1 else [], "ours")
    draw.box(running[3] + 4, 22 + 36 * 3, start - running[3] - 8, 30, ["ends in time: backfilled"], "good")
    draw.box(running[0] + 4, 22, 130, 30, ["ends in time"], "good")
    draw.box(left, 22 + 36 * 4, 700, 30, ["longer work goes where nothing is kept"], "good")
    draw.arrow([(now, 212), (end, 212)])
    draw.text(left, 236, "now", "dim")
    draw.text(start, 236, "estimated start", "dim", anchor="middle")
    draw.text(end, 236, "time", "dim", anchor="end")
    return draw.svg()


def leaf_spine() -> str:
    """Where gangs of different sizes go under leaves and spines."""
    draw = Picture(920, 360, "Spines, leaves and nodes, and the gangs on them")
    gangs = {**dict.fromkeys(range(0, 2), 0), **dict.fromkeys(range(4, 8), 1), **dict.fromkeys(range(8, 16), 2)}
    gangs |= dict.fromkeys(range(16, 32), 3)
    for spine in range(2):
        left = 24 + 444 * spine
        draw.box(left + 130, 20, 168, 40, [f"spine-{spine}"], "plain")
        for leaf in range(4):
            x = left + 107 * leaf
            draw.arrow([(left + 214, 60), (x + 49, 96)])
            draw.box(x, 98, 98, 34, [f"leaf-{4 * spine + leaf}"], "plain")
            for node in range(4):
                number = 16 * spine + 4 * leaf + node
                _node(draw, x, 142 + 34 * node, GANGS[gangs[number]] if number in gangs else "")
    for number, words in enumerate(
        ("2 nodes: one leaf", "4 nodes: a complete leaf", "8: two adjacent leaves", "16: four adjacent leaves")
    ):
        x = 24 + 222 * number
        draw.cell(x, 303, 14, GANGS[number])
        draw.text(x + 22, 315, words)
    draw.text(
        24, 342, "Each row is a node with 8 GPUs. Adjacent leaves have the same spine and consecutive places.", "dim"
    )
    return draw.svg()


def _node(draw: Picture, x: float, y: float, colour: str) -> None:
    for gpu in range(8):
        draw.cell(x + 3 + 11.8 * gpu, y, 9.5, colour)


PICTURES: dict[str, Callable[[], str]] = {
    "data-flow.svg": data_flow,
    "gang-cycle.svg": gang_cycle,
    "claim-life.svg": claim_life,
    "leaf-spine.svg": leaf_spine,
    "backfill.svg": backfill,
}
SCHEDULED: dict[str, Callable[[], str]] = {"topology.svg": topology_picture.render}
"""The pictures that change with what the scheduler decides."""


def main() -> None:
    """Write all pictures."""
    FOLDER.mkdir(exist_ok=True)
    for name, draw in {**PICTURES, **SCHEDULED}.items():
        (FOLDER / name).write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
