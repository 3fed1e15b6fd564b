"""Of two schedulers with one lease only the leader binds, and the other goes on when the leader is gone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gangline_e2e.api import Api
from gangline_e2e.errors import Refused
from gangline_e2e.harness import ControlPlane
from gangline_e2e.placements import faults
from gangline_e2e.scheduler import Gangline, configuration, election, profile
from gangline_e2e.workloads import Manifest, gpu_pod, is_bound, kwok_node

NODES = "/api/v1/nodes"
OURS = "gangline"
LEASE_S = 12.0
"""Long enough that nobody loses the lease when a process stands still for some seconds."""

pytestmark = pytest.mark.timeout(240)
StartGangline = Callable[..., Gangline]


async def test_a_standby_takes_over_from_a_killed_leader_and_from_one_that_stops(
    empty: Api, own_control_plane: ControlPlane, start_gangline: StartGangline
) -> None:
    await empty.create_many(kwok_node(f"node-{i}") for i in range(10))
    config = configuration(profile(OURS), leaderElection=election(empty, OURS, LEASE_S))
    first = start_gangline(own_control_plane.kubeconfig, config, leader_elect=True)
    leader = await _new_holder(empty, "")
    second = start_gangline(own_control_plane.kubeconfig, config, leader_elect=True)
    await _schedule(empty, "calm", 20)
    assert await _binders(empty, "calm", 20) == {leader}

    first.kill()
    await _schedule(empty, "killed", 20)
    heir = await _new_holder(empty, leader)
    assert await _binders(empty, "killed", 20) == {heir}

    first.start()
    second.stop()
    released = await empty.get(_lease(empty))
    await _schedule(empty, "stopped", 20)
    last = await _new_holder(empty, heir)
    assert released["spec"].get("holderIdentity") != heir  # so that nobody has to wait for its end
    assert await _binders(empty, "stopped", 20) == {last}

    assert leader not in (heir, last)
    assert faults(await empty.list(empty.pods), await empty.list(NODES)) == []


async def _schedule(api: Api, name: str, count: int) -> None:
    """Create pods and wait until all are bound."""
    await api.create_many(gpu_pod(f"{name}-{i}", scheduler_name=OURS) for i in range(count))
    await api.wait_for(api.pods, lambda pod: pod["metadata"]["name"].startswith(name) and is_bound(pod), count)


def _lease(api: Api) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{api.namespace}/leases/{OURS}"


async def _new_holder(api: Api, before: str) -> str:
    """The identity in the lease, as soon as it is another than before."""

    async def holder() -> str:
        try:
            lease = await api.get(_lease(api))
        except Refused:
            return ""
        found: str = lease["spec"].get("holderIdentity") or ""
        return found if found != before else ""

    return await api.until(holder, f"the lease has another holder than {before!r}")


async def _binders(api: Api, name: str, count: int) -> set[str]:
    """The identities that say, in one event for each pod, that they have bound it."""
    path = f"/apis/events.k8s.io/v1/namespaces/{api.namespace}/events"

    def about(event: Manifest) -> bool:
        return event["reason"] == "Scheduled" and event["regarding"]["name"].startswith(name)

    events = await api.wait_for(path, about, count)
    assert len({event["regarding"]["uid"] for event in events}) == count
    return {event["reportingInstance"] for event in events}
