"""The pictures of the documentation; `python -m gangline_docs.pictures` writes them to docs/pictures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gangline_docs import topology_picture
from gangline_docs.drawing import GANGS, Picture

FOLDER = Path(__file__).parents[1] / "pictures"


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
