"""What `gangline status` and `gangline topology` print of a small cluster, on the page about them.

Nothing in it is made up: the workloads are scheduled on a cluster in memory, and the commands' own code looks at it.
"""

from __future__ import annotations

from functools import cache
from io import StringIO
from pathlib import Path

from rich.console import Console

from gangline import config
from gangline.commands import profiles
from gangline.commands.status import show
from gangline.commands.topology import drawn
from gangline.explain.live import load_live
from gangline.overview.summary import Overview, overview
from gangline.profile.assembly import judging_runtimes
from gangline.simulate import InMemoryServer, VirtualClock, run
from gangline.state.cache import Cache
from gangline.state.pods import PodInfo
from gangline.state.topology import Topology
from gangline_docs.simulated import settle

NODES = Path(__file__).parents[2] / "examples" / "topology" / "cluster" / "nodes.yaml"
WORKLOADS = Path(__file__).parent / "cluster" / "workloads.yaml"
PROFILE = "gpu-scheduler"
SECONDS = 120.0
_WIDTH = 118


@cache
def seen() -> tuple[Cache, list[PodInfo], Topology]:
    """The cluster once everything has been tried, as the commands see it."""
    clock = VirtualClock()
    server = InMemoryServer(clock)
    server.load([NODES, WORKLOADS])
    configuration = config.load(profiles.installed()[PROFILE], PROFILE)

    async def story() -> tuple[Cache, list[PodInfo]]:
        return await load_live(await settle(server, clock, configuration, SECONDS), with_groups=True)

    cluster, pending = run(story(), clock)
    return cluster, pending, judging_runtimes(configuration, cluster)[PROFILE].topology


def glance() -> Overview:
    """What `gangline status` shows."""
    return overview(*seen(), [PROFILE])


def status() -> str:
    """The tables of `gangline status`."""
    screen = new_screen()
    show(glance(), screen)
    return block(screen)


def topology() -> str:
    """The picture of `gangline topology`."""
    cluster, _, levels = seen()
    screen = new_screen()
    for line in drawn(cluster, levels):
        screen.print(line)
    return block(screen)


def new_screen() -> Console:
    """A screen that keeps what is printed on it."""
    return Console(width=_WIDTH, file=StringIO(), highlight=False, color_system=None)


def block(screen: Console) -> str:
    """What was printed, as a block of a page."""
    assert isinstance(screen.file, StringIO)
    lines = [line.rstrip() for line in screen.file.getvalue().splitlines()]
    return "\n".join(["``` { .text .wide }", *lines, "```"])
