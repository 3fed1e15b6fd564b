"""Nobody reads the log, or its disk is full: the leader goes on, stops when it is told to, and gives its Lease up."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gangline_e2e.api import Api
from gangline_e2e.harness import ControlPlane
from gangline_e2e.scheduler import Gangline, configuration, election, profile
from gangline_e2e.workloads import gpu_pod, is_bound, kwok_node

OURS = "gangline"
PODS = 20

pytestmark = pytest.mark.timeout(240)
StartGangline = Callable[..., Gangline]


@contextmanager
def full(kind: str, log: Path) -> Iterator[None]:
    """Make the file of a log take nothing."""
    log.parent.mkdir()
    if kind == "disk":
        log.symlink_to("/dev/full")
        yield
        return
    os.mkfifo(log)
    pipe = os.open(log, os.O_RDWR | os.O_NONBLOCK)
    try:
        while True:
            os.write(pipe, b"x" * 4096)
    except BlockingIOError:
        yield
    finally:
        os.close(pipe)


@pytest.mark.parametrize("kind", ["disk", "pipe"])
async def test_a_leader_whose_log_takes_nothing_schedules_and_stops(
    kind: str, empty: Api, own_control_plane: ControlPlane, start_gangline: StartGangline, tmp_path: Path
) -> None:
    await empty.create_many(kwok_node(f"node-{number}") for number in range(10))
    await empty.create_many(gpu_pod(f"pod-{number}", scheduler_name=OURS) for number in range(PODS))
    with full(kind, tmp_path / "gangline-0" / "gangline.log"):
        config = configuration(profile(OURS), leaderElection=election(empty, OURS, 15.0))
        scheduler = start_gangline(
            own_control_plane.kubeconfig, config, leader_elect=True, more=["--log-level", "debug"]
        )
        await empty.wait_for(empty.pods, is_bound, PODS)
        scheduler.stop()

    assert scheduler.process.popen is not None and scheduler.process.popen.returncode == 0
    lease = await empty.get(f"/apis/coordination.k8s.io/v1/namespaces/{empty.namespace}/leases/{OURS}")
    assert not lease["spec"].get("holderIdentity")
