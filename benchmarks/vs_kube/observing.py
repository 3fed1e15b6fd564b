"""A process of its own that measures how long pods wait: from their creation to their binding, as the watch shows both.

    python -m vs_kube.observing KUBECONFIG NAMESPACE

Says READY when it watches, and then for each pod that gets a node its name and the seconds, in a line. Whoever creates
the pods does that in another process, so that the time of an event is not late because of that work.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from gangline_e2e import api, workloads

READY = "ready"


class Waits:
    """Since when each pod without a node exists."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def take(self, kind: str, pod: workloads.Manifest, now: float) -> float | None:
        """Take in an event of the watch. If it shows the binding of the pod, returns the seconds that the pod has
        waited.
        """
        name = pod["metadata"]["name"]
        if kind == "DELETED":
            self._since.pop(name, None)
        elif workloads.is_bound(pod):
            since = self._since.pop(name, None)
            return None if since is None else now - since
        elif kind == "ADDED":
            self._since[name] = now
        return None


async def observe(kubeconfig: Path, namespace: str) -> None:
    """Print until killed.

    An API server that has too little CPU time ends watches; then the next one goes on after the last event.
    """
    waits = Waits()
    async with api.connect(kubeconfig, namespace) as cluster:
        version = (await cluster.request("GET", cluster.pods, limit="1"))["metadata"]["resourceVersion"]
        print(READY, flush=True)
        while True:
            async for line in cluster.lines(cluster.pods, version):
                now = time.perf_counter()
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise RuntimeError(f"the watch of the pods has failed: {event['object']}")
                metadata = event["object"]["metadata"]
                version = metadata["resourceVersion"]
                waited = waits.take(event["type"], event["object"], now)
                if waited is not None:
                    print(metadata["name"], f"{waited:.6f}", flush=True)


@asynccontextmanager
async def observer(kubeconfig: Path, namespace: str) -> AsyncIterator[asyncio.StreamReader]:
    """What the process says after READY, until the block ends."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "vs_kube.observing", str(kubeconfig), namespace),
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[1],
    )
    try:
        assert process.stdout is not None  # it is a pipe
        said = (await process.stdout.readline()).decode().strip()
        if said != READY:
            raise RuntimeError(f"the observer of the pods said {said!r} instead of {READY!r}")
        yield process.stdout
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


if __name__ == "__main__":
    asyncio.run(observe(Path(sys.argv[1]), sys.argv[2]))
