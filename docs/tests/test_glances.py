"""The page about the cluster at a glance shows what the commands print of a cluster that has been scheduled."""

from __future__ import annotations

import re

import pytest

from gangline.overview.summary import Gang
from gangline_docs import glances
from gangline_docs.site import filled


@pytest.fixture(scope="module")
def gangs() -> dict[str, Gang]:
    return {gang.name.partition("/")[2]: gang for gang in glances.glance().gangs}


@pytest.mark.parametrize(("name", "size"), [("tune", 10), ("distill", 4), ("pretrain", 16)])
def test_gangs_that_run_are_there_with_all_their_pods_and_where_they_are(
    gangs: dict[str, Gang], name: str, size: int
) -> None:
    gang = gangs[name]

    assert (gang.placed, gang.waiting, gang.message) == (size, 0, "")
    assert all(where.startswith(("spine-", "and ")) for where in gang.where)


def test_the_gang_that_waits_for_room_says_when_it_starts(gangs: dict[str, Gang]) -> None:
    assert (gangs["align"].placed, gangs["align"].waiting) == (0, 4)
    assert re.fullmatch(r"2026-01-01T02:00:\d\dZ", gangs["align"].estimated_start)
    assert "room is kept on 4 nodes" in gangs["align"].message
    reserved = gangs["align"].reserved
    assert reserved is not None and reserved.nodes == 4 and reserved.since < reserved.until
    assert gangs["evaluate"].reserved is None


def test_the_gang_that_no_leaf_holds_says_so(gangs: dict[str, Gang]) -> None:
    assert "no leaf of 8 holds 5 pods" in gangs["evaluate"].message
    assert gangs["evaluate"].estimated_start == ""


def test_the_tables_and_the_picture_stand_on_the_page() -> None:
    page = filled("{{ status_output }}\n\n{{ topology_output }}\n")

    assert "GPUs on 32 nodes in use" in page and "ESTIMATED START" in page
    assert f"\n{page.count('█')} of 256 GPUs" in page
    assert [f"leaf-{number} " in page for number in range(8)] == [True] * 8


def test_two_runs_print_the_same() -> None:
    before = glances.status(), glances.topology()
    glances.seen.cache_clear()

    assert (glances.status(), glances.topology()) == before
