"""The agent, as a process, on an API server that resets its connections: each request fails alone."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from gangline_e2e.forked_programs import Forking
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
def test_connections_that_are_reset_end_neither_the_agent_nor_its_other_requests(
    forking: Forking, tmp_path: Path
) -> None:
    with ResettingServer({"/api/v1/nodes": nodes()}) as server:
        kubeconfig, log = server.kubeconfig(tmp_path / "kubeconfig"), tmp_path / "agent.log"
        words = ["--simulate", "dgx-h100", "--nodes", "a=b", "--period", "1", "--listen", f"127.0.0.1:{free_port()}"]
        agent = forking.logged(["agent", "--kubeconfig", str(kubeconfig), *words], log)
        try:
            server.wait_for(RESETS)
            was_alive = agent.runs()
            agent.send_signal(signal.SIGTERM)
            code = agent.wait(10.0)
        finally:
            agent.close()

    assert was_alive and code == 0
    assert "Traceback" not in log.read_text()
