"""Tries changes for one unit in a process of its own: lists the cluster, as `gangline explain` does, and prints JSON.

`trying_apart` starts the process: ``python -m gangline.commands.trying``, with a `TryingRequest` on standard input. The
process gives way to all others of the machine, ends by itself, and takes no more memory than it is allowed to.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from gangline import config
from gangline.api.plugin import Clock
from gangline.clock import SystemClock
from gangline.commands.answering import remedies_of
from gangline.commands.judging import judge
from gangline.commands.trying_apart import TryingAnswer, TryingRequest
from gangline.config import SchedulerConfiguration
from gangline.errors import GanglineError
from gangline.failures import described
from gangline.kube import auth
from gangline.kube.client import HttpClient
from gangline.kube.interface import Client
from gangline.remedies import Remedies

MOST_BYTES = 16 * 1024 * 1024
"""Bytes of a request."""
_PAGE = resource.getpagesize()


async def try_changes(
    client: Client, configuration: SchedulerConfiguration, unit: str, clock: Clock
) -> Remedies | None:
    """What would let a unit start, on a cluster that is listed for this; None if the unit does not wait.

    Raises ApiError and GanglineError.
    """
    judged = await judge(client, configuration, clock)
    for pod in judged.pending:
        runtime = judged.runtimes.get(pod.scheduler_name)
        if runtime is not None and unit in (pod.uid, runtime.group_key(pod)):
            return remedies_of(judged, runtime, pod, clock)
    return None


def main() -> None:
    """Answer the request on standard input."""
    asked = msgspec.json.decode(sys.stdin.buffer.read(MOST_BYTES), type=TryingRequest)
    _give_way(asked)
    try:
        answer = TryingAnswer(msgspec.Raw(msgspec.json.encode(asyncio.run(_found(asked)))))
    except MemoryError:
        answer = TryingAnswer(fault="the cluster is too large to be tried in the memory that the scheduler has left")
    except GanglineError as error:
        answer = TryingAnswer(fault="the scheduler cannot read the cluster for this", detail=str(error))
    except Exception as error:  # whatever it is, the scheduler says it in its log
        answer = TryingAnswer(fault="trying changes has failed", detail=described(error))
    sys.stdout.buffer.write(msgspec.json.encode(answer))


async def _found(asked: TryingRequest) -> Remedies | None:
    async with HttpClient(auth.load(asked.kubeconfig)) as client:
        return await try_changes(client, config.load(asked.configuration, "the scheduler"), asked.unit, SystemClock())


def _give_way(asked: TryingRequest) -> None:
    """Run after everything else, end in time, and rather fail than take memory from the scheduler."""
    os.nice(19)
    signal.alarm(asked.seconds)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    with suppress(OSError, ValueError):
        _, resident, shared, _, _, data, _ = map(int, Path("/proc/self/statm").read_text().split())
        reserved = data - (resident - shared)  # address space without memory, as of the stacks of idle threads
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (reserved * _PAGE + asked.memory, hard))


if __name__ == "__main__":
    main()
