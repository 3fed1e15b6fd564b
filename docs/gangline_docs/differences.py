"""What `gangline simulate --snapshot` prints of the small cluster of `glances`, on the page about what-if.

Nothing in it is made up: the cluster is recorded as `gangline snapshot save` does it, and the command's own code runs.
"""

from __future__ import annotations

from functools import cache

from gangline import config
from gangline.commands import profiles
from gangline.commands.comparing import show
from gangline.commands.running import Judges
from gangline.commands.snapshot import take
from gangline.explain.snapshots import Snapshot
from gangline.simulate import InMemoryServer, VirtualClock, run
from gangline.simulate.changing import NewNodes
from gangline.simulate.comparing import Difference, SupposedChanges, compare
from gangline_docs.glances import NODES, PROFILE, SECONDS, WORKLOADS, block, new_screen
from gangline_docs.simulated import settle

NEW = NewNodes(4, "node-31")
DRAINED = "node-00"
COMMAND = f"gangline simulate --snapshot cluster.gz --drain {DRAINED} --add-nodes {NEW.count} like {NEW.like}"


@cache
def snapshot() -> Snapshot:
    """The cluster once everything has been tried."""
    clock = VirtualClock()
    server = InMemoryServer(clock)
    server.load([NODES, WORKLOADS])
    configuration = config.load(profiles.installed()[PROFILE], PROFILE)

    async def story() -> Snapshot:
        client = await settle(server, clock, configuration, SECONDS)
        return await take(client, Judges(configuration, PROFILE), clock)

    return run(story(), clock)


@cache
def difference() -> Difference:
    """The difference that new nodes and a drain make."""
    return compare(snapshot(), "cluster.gz", SupposedChanges(drains=[DRAINED], new_nodes=[NEW]), 60.0)


def output() -> str:
    """The tables of the command."""
    screen = new_screen()
    show(difference(), screen)
    return block(screen)
