"""Tries changes for one unit in a process of its own: lists the cluster, as `gangline explain` does, and prints JSON.

`trying_process` starts the process: ``python -m gangline.commands.trying``, with a `TryingRequest` on standard input.
The process gives way to all others of the machine, ends by itself or with the scheduler, and takes no more memory than
it is allowed to.
"""

from __future__ import annotations

import asyncio
import ctypes
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
from gangline.commands.keeping import keep_again
from gangline.commands.trying_lines import TryingLine, TryingRequest
from gangline.config import SchedulerConfiguration
from gangline.errors import GanglineError
from gangline.failures import described
from gangline.kube import auth
from gangline.kube.client import HttpClient
from gangline.kube.interface import Client
from gangline.remedies import Remedies
from gangline.remedies.finding import Tell, tell_nobody

MOST_BYTES = 16 * 1024 * 1024
"""Bytes of a request."""
_PAGE = resource.getpagesize()
_PR_SET_PDEATHSIG = 1
"""Of <linux/prctl.h>: the signal at the end of the thread that has started this process and waits for it."""


async def try_changes(
    client: Client, configuration: SchedulerConfiguration, unit: str, clock: Clock, tell: Tell = tell_nobody
) -> Remedies | None:
    """What would let a unit start, on a cluster that is listed for this; None if the unit does not wait.

    `tell` is called with each remedy as soon as it is verified. Raises ApiError and GanglineError.
    """
    judged = await judge(client, configuration, clock)
    keep_again(judged)
    for pod in judged.pending:
        runtime = judged.runtimes.get(pod.scheduler_name)
        if runtime is not None and unit in (pod.uid, runtime.group_key(pod)):
            return remedies_of(judged, runtime, pod, clock, tell)
    return None


def main() -> None:
    """Answer the request on standard input, in lines on standard output."""
    asked = msgspec.json.decode(sys.stdin.buffer.read(MOST_BYTES), type=TryingRequest)
    _give_way(asked)
    _say(_last_line(asked))


def _last_line(asked: TryingRequest) -> TryingLine:
    """What is left to say after each remedy has been said."""
    try:
        found = asyncio.run(_found(asked))
    except MemoryError:
        return TryingLine(fault="the cluster is too large to be tried in the memory that the scheduler has left")
    except GanglineError as error:
        return TryingLine(fault="the scheduler cannot read the cluster for this", detail=str(error))
    except Exception as error:  # whatever it is, the scheduler says it in its log
        return TryingLine(fault="trying changes has failed", detail=described(error))
    rest = msgspec.structs.replace(found, remedies=()) if found is not None else None
    return TryingLine(msgspec.Raw(msgspec.json.encode(rest)), is_last=True)


def _say(line: TryingLine) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()


def _tell(part: Remedies) -> None:
    _say(TryingLine(msgspec.Raw(msgspec.json.encode(part))))


async def _found(asked: TryingRequest) -> Remedies | None:
    configuration, clock = config.load(asked.configuration, "the scheduler"), SystemClock()
    async with HttpClient(auth.load(asked.kubeconfig)) as client:
        return await try_changes(client, configuration, asked.unit, clock, _tell)


def _give_way(asked: TryingRequest) -> None:
    """Run after everything else, end in time or with the scheduler, and rather fail than take memory from it."""
    os.nice(19)
    with suppress(AttributeError):  # a C library without it
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
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
