"""A cluster in virtual time: what the state machine breaks is mended there as on a real one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gangline.simulate.history import Data
from gangline_chaos import owned, units
from gangline_chaos.virtual.site import FABRIC, Site
from gangline_chaos.virtual.workload import Workload
from gangline_e2e.gangs import Dialect, Rule

SIZE = 3


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site(2)
    made.pass_time(3.0)
    yield made
    made.close()


def placed(site: Site) -> dict[str, Data]:
    """The pods that have nodes and stay, by UID."""
    found = {pod["metadata"]["uid"]: pod for pod in site.pods() if pod["spec"].get("nodeName")}
    return {uid: pod for uid, pod in found.items() if "deletionTimestamp" not in pod["metadata"]}


@pytest.mark.parametrize("dialect", owned.DIALECTS, ids=lambda dialect: dialect.__name__)
@pytest.mark.parametrize("loss", ["fail", "lose"])
def test_the_gangs_of_controllers_recover_when_they_lose_a_node(site: Site, dialect: Dialect, loss: str) -> None:
    Workload(site).add(lambda name: units.gang_of(dialect(name, SIZE, Rule(), 8), 8))
    site.pass_time(5.0)
    before = placed(site)
    assert len(before) == SIZE
    lost = sorted(pod["spec"]["nodeName"] for pod in before.values())[0]

    getattr(site.fleet, loss)(next(number for number in range(FABRIC.nodes) if FABRIC.name(number) == lost))
    site.pass_time(25.0)

    after = placed(site)
    restarts = dialect in (owned.restarted_set, owned.job_set)
    assert len(after) == SIZE and lost not in {pod["spec"]["nodeName"] for pod in after.values()}
    assert len(before.keys() & after.keys()) == (0 if restarts else SIZE - 1)
    assert [str(each) for each in site.judge.violations] == []


def test_a_skewed_wall_clock_does_not_harm_a_scheduler(site: Site) -> None:
    for replica, seconds in zip(site.replicas, (86400.0, -86400.0), strict=True):
        replica.clock.skew = seconds
    workload = Workload(site)
    workload.add(lambda name: units.share(name, 500))
    workload.add(lambda name: units.single(name, 8))
    site.pass_time(5.0)

    assert len(placed(site)) == 1 + 1
    assert site.is_in_order() and not site.judge.violations
