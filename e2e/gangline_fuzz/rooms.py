"""Every kind of case: how it is made, and who plays it."""

from __future__ import annotations

import gc
from functools import cache

from hypothesis import strategies as st

from gangline.errors import ConfigError, PluginError
from gangline.simulate import run
from gangline_fuzz import configurations, objects, oracle, readings, reviews
from gangline_fuzz.budget import TookTooLong, at_most
from gangline_fuzz.cluster import Bounds, FuzzCluster, made
from gangline_fuzz.inputs import Case, Configuration, Readings, Review
from gangline_fuzz.oracle import Found, Kind

CPU = 20.0
"""Seconds after which a case is ended."""
USUAL = Bounds()


def cases() -> st.SearchStrategy[Case]:
    """Mostly clusters; of the rest some each."""
    alone = (reviews.reviews(), readings.readings(), configurations.configurations())
    others = [each.map(lambda one: Case([one])) for each in alone]
    return st.integers(0, 9).flatmap(
        lambda dice: objects.stories() if dice < 6 else (*others, objects.stories_of_plugins())[dice - 6]
    )


@cache
def _is_frozen() -> bool:
    """Whether others have frozen objects; counting them takes long."""
    return gc.get_freeze_count() > 0


def play(case: Case, bounds: Bounds = USUAL) -> Found | None:
    """What did not hold, or None."""
    made.clear()
    frozen = _is_frozen()
    gc.freeze()  # a pause for what tests before have left is nothing that an input takes
    gc.disable()
    try:
        found = _played(case, bounds)
        gc.collect()
        return found or _held(case)
    finally:
        gc.enable()
        if not frozen:  # what others have frozen stays so
            gc.unfreeze()


def _played(case: Case, bounds: Bounds) -> Found | None:
    cluster: FuzzCluster | None = None
    try:
        with at_most(CPU):
            match case.inputs:
                case [Review() as review]:
                    reviews.play(review)
                case [Readings() as reading]:
                    readings.play(reading)
                case [Configuration() as configuration]:
                    configurations.play(configuration)
                case _:
                    cluster = FuzzCluster(bounds, case.plugin)
                    run(cluster.story(case), cluster.clock)
    except oracle.Failed as failed:
        return failed.found
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if isinstance(error, ConfigError | PluginError) and case.plugin and cluster is not None and cluster.is_refused:
            return None
        kind = Kind.CPU if isinstance(error, TookTooLong) else Kind.ENDED
        return oracle.raised(kind, cluster.at if cluster else 0, error)
    return None


def _held(case: Case) -> Found | None:
    """Whether something goes on holding what has ended, for as long as the process lives."""
    said = f"{len(made)} schedulers cannot be collected although they have ended"
    return Found(Kind.HELD, len(case.inputs) - 1, said, "") if made else None
