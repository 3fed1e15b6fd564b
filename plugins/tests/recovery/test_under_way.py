"""When new members of a gang may come that had to wait until old ones had left."""

from __future__ import annotations

from collections.abc import Iterable

from gangline import PodGroup, PodInfo
from gangline.testing import FakeHandle, FakePending, cluster, make_node, make_pod
from gangline_plugins.recovery.planning import RecoveryPlan
from gangline_plugins.recovery.under_way import HAVE_LEFT, UnderWay

GROUP = PodGroup("default", "train", "fake", 2)
KEY = GROUP.key


class Looking(FakePending):
    """Looks at the waiting members whenever room is kept or given up, as the queue does."""

    def __init__(self) -> None:
        super().__init__()
        self.under_way: UnderWay | None = None
        self.waited: list[bool] = []

    def expect(self, key: str, places: Iterable[tuple[PodInfo, str]]) -> None:
        """Note whether the new members wait."""
        self.waited.append(self.under_way is None or self.under_way.are_leaving(key, ()))


def held() -> tuple[Looking, UnderWay, RecoveryPlan]:
    """A gang whose new member had to wait for the old one when it was last looked at."""
    cache = cluster([make_node("a"), make_node("b")])
    old = cache.record(make_pod("old", node="a"))
    cache.upsert_pod(old)
    pending = Looking()
    handle = FakeHandle(cache, pending=pending)
    under_way = pending.under_way = UnderWay(handle, 10.0)
    plan = RecoveryPlan([old], (), [(old.anew(), "b")], is_move=False)
    under_way.begin(GROUP, plan, 0.0)
    assert under_way.are_leaving(KEY, ())
    return pending, under_way, plan


def test_new_members_wait_on_when_another_recovery_of_their_gang_takes_the_place_of_the_first() -> None:
    pending, under_way, plan = held()

    under_way.end(KEY)
    under_way.begin(GROUP, plan, 1.0)
    assert all(pending.waited) and not pending.announced  # they would be placed beside the old ones
    under_way.announce(())
    assert pending.announced == [HAVE_LEFT] and under_way.are_leaving(KEY, ())


def test_a_member_that_is_one_too_many_waits_no_more_when_the_others_have_come() -> None:
    pending, under_way, _ = held()
    new = under_way.handle.state.record(make_pod("new"))  # came before there was anything to wait for

    under_way.comes(KEY, new, "b")
    assert under_way.arrived(KEY, new) is not None
    under_way.announce(())
    assert pending.announced == [HAVE_LEFT]
    under_way.announce(())
    assert len(pending.announced) == 1
