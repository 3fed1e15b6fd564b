"""The agent, as a process, on an API server that resets its connections: each request fails alone."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from gangline_e2e import processes
from gangline_e2e.ports import free_port
from gangline_e2e.resetting import ResettingServer

NODES = 40
RESETS = 200


def nodes() -> dict[str, Any]:
    """A list of nodes, for each of which the agent reports."""
    items = [
        {"metadata": {"name": f"node-{number}", "uid": f"uid-{number}", "resourceVersion": "1"}}
        for number in range(NODES)
    ]
    return {"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}


@pytest.mark.timeout(90)
def test_connections_that_are_reset_end_neither_the_agent_nor_its_other_requests(tmp_path: Path) -> None:
    with ResettingServer({"/api/v1/nodes": nodes()}) as server:
        kubeconfig, log = server.kubeconfig(tmp_path / "kubeconfig"), tmp_path / "agent.log"
        words = ["--simulate", "dgx-h100", "--nodes", "a=b", "--period", "1", "--listen", f"127.0.0.1:{free_port()}"]
        command = [sys.executable, "-m", "gangline", "agent", "--kubeconfig", str(kubeconfig), *words]
        agent = processes.start("agent", command, log)
        try:
            server.wait_for(RESETS)
            was_alive = agent.alive()
            agent.signal(signal.SIGTERM)
            ended = agent.wait(10.0)
        finally:
            processes.stop([agent], 5.0)

    assert was_alive and ended
    assert agent.popen is not None and agent.popen.returncode == 0
    assert "Traceback" not in log.read_text()
