"""The webhook, as a process, on an API server that resets its connections: it serves on."""

from __future__ import annotations

import signal
import ssl
import time
import urllib.request
from pathlib import Path
from urllib.error import HTTPError

import pytest

from gangline_e2e.certificates import Authority
from gangline_e2e.forked_programs import Forking
from gangline_e2e.ports import free_ports
from gangline_e2e.resetting import ResettingServer

RESETS = 100


def asked(url: str, token: str = "") -> int:
    """The status of an answer; 0 if there is none."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    context = ssl._create_unverified_context() if url.startswith("https") else None
    try:
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code
    except OSError:
        return 0


@pytest.mark.timeout(90)
def test_connections_that_are_reset_end_neither_the_webhook_nor_its_other_requests(
    forking: Forking, tmp_path: Path
) -> None:
    pair = Authority(tmp_path, "authority").server("webhook")
    addr, listen, secure = (f"127.0.0.1:{port}" for port in free_ports(3))
    files = ["--tls-cert-file", str(pair.certificate), "--tls-private-key-file", str(pair.key)]
    words = [*files, "--addr", addr, "--listen", listen, "--secure-listen", secure]
    log = tmp_path / "webhook.log"
    with ResettingServer() as server:
        kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
        webhook = forking.logged(["webhook", "--kubeconfig", str(kubeconfig), *words], log)
        try:
            deadline = time.monotonic() + 30.0
            while not asked(f"http://{listen}/healthz") and time.monotonic() < deadline:
                time.sleep(0.05)
            answers = set()
            while server.resets < RESETS and webhook.runs() and time.monotonic() < deadline:
                answers.add(asked(f"https://{secure}/metrics", f"token-{server.resets}"))
            healthy = asked(f"http://{listen}/healthz")
            webhook.send_signal(signal.SIGTERM)
            code = webhook.wait(10.0)
        finally:
            webhook.close()

    assert server.resets >= RESETS and answers and answers.isdisjoint({0, 200})
    assert healthy == 200 and code == 0
    assert "Traceback" not in log.read_text()
