"""Plugins that fail while they are built, at work or while they end leave nothing behind, however often they do."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from functools import cache, partial
from typing import Any

import msgspec
import pytest

from gangline import Handle, PodInfo, State, config, hookimpl, on, resources
from gangline.api.hints import Action
from gangline.errors import GanglineError
from gangline.kube.resources import CONFIG_MAPS, LEASES
from gangline.loop.scheduler import Scheduler
from gangline.profile.background import GRACE
from gangline.profile.registry import Catalog
from gangline.simulate import InMemoryServer, SimulatedClient, VirtualClock, run
from gangline.testing import make_node, make_pod

from .test_reloads import HEAD, Ear, Placed, for_ever, state_of


class NastyArgs(msgspec.Struct):
    """How the plugin fails."""

    built: str = ""
    works: str = ""
    ends: str = ""


class Sharing(Ear):
    """Subscribes, and fails while it ends."""

    def __init__(self, state: State, ends: str) -> None:
        self._ends = ends
        state.store(CONFIG_MAPS).subscribe(self)
        state.follow_nodes(self)
        state.tracker(Placed, 7)
        state.at_end(self._end)

    def _end(self) -> None:
        if self._ends == "shared":
            raise SystemExit("an end")


class Nasty(Ear):
    """Asks for all that there is to ask for, and fails in the way that its arguments say."""

    name = "Nasty"
    args_type = NastyArgs

    def __init__(self, args: NastyArgs, handle: Handle) -> None:
        self._args, self._handle, state = args, handle, handle.state
        state.at_end(self._end)
        state.store(LEASES).subscribe(self)
        state.follow_nodes(self)
        state.shared(Sharing, state, args.ends)
        state.tracker(Placed, len(args.ends))
        handle.metric("nasty_counts", "Counts.", ("node",))
        handle.gauge("nasty_gauge", "A gauge.")
        handle.run(self.work)
        handle.spawn(for_ever)
        self.watches: Any = (resources.Selection(LEASES, "a"),)
        match args.built:
            case "raises":
                raise RuntimeError("no driver")
            case "exits":
                raise SystemExit("no driver")
            case "watches":
                self.watches = 5
            case "metric":
                handle.gauge("nasty_counts", "Not a gauge.")

    @hookimpl
    def events_to_register(self) -> Any:
        if self._args.built == "events":
            raise KeyError("nodes")
        return (on("nodes", Action.ADD),)

    @hookimpl
    def pre_enqueue(self, pod: PodInfo) -> None:
        """Every pod may enter."""

    async def work(self) -> None:
        """Asks for more, and ends in the way that the arguments say."""
        self._handle.spawn(self.lingers if self._args.works == "lingers" else for_ever)
        self._handle.state.store(CONFIG_MAPS).subscribe(self)
        self._handle.state.shared(Sharing, self._handle.state, "late")
        self._handle.state.at_end(self._end)
        if self._args.works == "raises":
            raise RuntimeError("no work")
        await (self.lingers() if self._args.works == "lingers" else for_ever())

    async def lingers(self) -> None:
        """Ignores that it is cancelled."""
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue

    def _end(self) -> None:
        handle, state = self._handle, self._handle.state
        match self._args.ends:
            case "raises":
                raise ZeroDivisionError("at the end")
            case "exits":
                raise SystemExit("at the end")
            case "asks":
                state.store(LEASES).subscribe(self)
                state.follow_nodes(self)
                state.shared(Sharing, state, "asks")
                state.tracker(Placed, 9)
                state.at_end(partial(state.store(CONFIG_MAPS).subscribe, self))
                handle.metric("nasty_last_counts", "Counts.")
                handle.run(for_ever)
                handle.spawn(for_ever)


BUILT = ("raises", "exits", "watches", "metric", "events")
WORKS = ("", "raises", "lingers")
ENDS = ("", "raises", "exits", "asks", "shared")
CATALOG = Catalog.discover().with_classes(Nasty)


def configuration(**args: str) -> config.SchedulerConfiguration:
    ours = [{"name": name} for name in ("GangPermit", "GpuClaim", "DeviceLease", "LeafSpine", "Recovery", "Nasty")]
    profile = {
        "schedulerName": "one",
        "plugins": {"multiPoint": {"enabled": ours}},
        "pluginConfig": [{"name": "Nasty", "args": args}],
    }
    return config.load(msgspec.json.encode({**HEAD, "profiles": [profile]}).decode(), "")


Left = dict[str, Any]


def left_after(*sequence: dict[str, str], looks: int = 1) -> tuple[list[Left], Counter[bool]]:
    """What there is after each of the last configurations with these arguments, and how many were taken and refused."""
    clock, taken = VirtualClock(), Counter[bool]()

    async def story() -> list[Left]:
        server, found = InMemoryServer(clock), list[Left]()
        server.create(LEASES, {"metadata": {"name": "lease", "namespace": "a"}})
        server.create(resources.NODES, msgspec.to_builtins(make_node("n")))
        server.create(resources.PODS, msgspec.to_builtins(make_pod("p", node="n")))
        scheduler = Scheduler(configuration(**sequence[0]), SimulatedClient(server), clock, CATALOG)
        task = asyncio.create_task(scheduler.run())
        await asyncio.sleep(2)
        for number, args in enumerate(sequence):
            if number:
                try:
                    scheduler.use(configuration(**args))
                    taken[True] += 1
                except GanglineError:
                    taken[False] += 1
                await asyncio.sleep(0.5)
            if number >= len(sequence) - looks:
                await asyncio.sleep(2 * GRACE)
                found.append(state_of(scheduler))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return found

    return run(story(), clock), taken


PLAIN, NASTY = dict[str, str](), {"ends": "asks", "works": "lingers"}


@cache
def left_after_a_hundred() -> tuple[list[Left], Counter[bool]]:
    """The same after a hundred configurations, of which the last ones are plain and nasty."""
    dice = random.Random(7)
    sequence = [
        {
            "built": dice.choice(BUILT) if dice.random() < 0.4 else "",
            "works": dice.choice(WORKS),
            "ends": dice.choice(ENDS),
        }
        for _ in range(98)
    ]
    return left_after({}, *sequence, PLAIN, NASTY, looks=2)


@pytest.mark.parametrize(("look", "last"), [(0, PLAIN), (1, NASTY)], ids=["plain", "nasty"])
def test_after_a_hundred_good_and_bad_reloads_there_is_what_a_fresh_start_has(look: int, last: dict[str, str]) -> None:
    found, taken = left_after_a_hundred()

    assert taken[True] > 30 < taken[False]
    assert [found[look]] == left_after(last)[0]
