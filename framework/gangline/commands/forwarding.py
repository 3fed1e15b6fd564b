"""Reaches a pod of the scheduler from this machine: `kubectl port-forward`, for the time of a block.

The API server's proxy does not pass credentials on, so through it the scheduler would not know the user. A port-forward
leaves the credentials to the command, which sends them to the pod. Everybody who may create pods can give a pod the
labels of the scheduler, so only pods count whose ServiceAccount may bind the pods of all namespaces. A user who may not
ask for the rights of a ServiceAccount reaches the pods with the labels if all of them are in one namespace.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from gangline.commands.options import Connection
from gangline.commands.running import LABELS
from gangline.errors import ConfigError, Forbidden, GanglineError
from gangline.kube.client import HttpClient
from gangline.kube.resources import PODS, SUBJECT_ACCESS_REVIEWS
from gangline.model import ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec

PORT = 10259
"""The port of the scheduler to which kubectl forwards."""
MOST_NAMESPACES = 10
"""Namespaces of pods with the labels that are looked at."""
MOST_PODS = 5
"""Pods that are reached: an installation has two or three replicas."""
PATIENCE = 20.0
"""Seconds within which kubectl has to begin to forward."""
_FAREWELL = 2.0
"""Seconds within which kubectl has to end."""
_LONGEST_COMPLAINT = 500
"""Bytes of kubectl's output that are passed on."""
_FORWARDING = re.compile(rb"Forwarding from 127\.0\.0\.1:(\d+) -> ")

T = TypeVar("T")


class _Account(msgspec.Struct, rename="camel"):
    service_account_name: str = "default"


class _Pod(msgspec.Struct):
    spec: _Account


class NoSchedulerPod(ConfigError):
    """The cluster has no running pod of the chart's scheduler."""


async def pods_of_scheduler(client: HttpClient) -> list[tuple[str, str]]:
    """Namespace and name of the chart's running scheduler pods, at most MOST_PODS of one namespace.

    Raises ApiError, NoSchedulerPod if there is none, and ConfigError.
    """
    try:
        found = (await client.list(PODS, label_selector=LABELS)).items
    except Forbidden as error:
        why = f"the pods of the scheduler cannot be listed: {error.message}; {_OTHERWISE}"
        raise Forbidden(error.status, error.reason, why) from error
    running: dict[str, list[str]] = {}
    for pod in found:
        if pod.status.phase == "Running":
            running.setdefault(pod.metadata.namespace, []).append(pod.metadata.name)
    if not running:
        raise NoSchedulerPod("", "", f"no running pod has the labels {LABELS}; {_OTHERWISE}")
    for namespace, pods in list(running.items())[:MOST_NAMESPACES]:
        try:
            is_trusted = await _may_bind(client, namespace, pods[0])
        except Forbidden:
            is_trusted = len({pod.metadata.namespace for pod in found}) == 1
        if is_trusted:
            return [(namespace, name) for name in pods[:MOST_PODS]]
    several = ", ".join(list(running)[:MOST_NAMESPACES])
    why = f"pods in {several} have the labels of the scheduler, but it is not known that one is a scheduler"
    raise ConfigError("", "", f"{why}: none is sent credentials; {_OTHERWISE}")


async def _may_bind(client: HttpClient, namespace: str, pod: str) -> bool:
    """Whether the pod's ServiceAccount may bind the pods of all namespaces. Raises ApiError."""
    body = await client.raw(f"/api/v1/namespaces/{namespace}/pods/{pod}", PATIENCE)
    try:
        account = msgspec.json.decode(body, type=_Pod).spec.service_account_name
    except msgspec.MsgspecError:
        return False
    request = ResourceAttributes(verb="create", resource="pods", subresource="binding")
    spec = SubjectAccessReviewSpec(user=f"system:serviceaccount:{namespace}:{account}", resource_attributes=request)
    return (await client.create(SUBJECT_ACCESS_REVIEWS, SubjectAccessReview(spec=spec))).status.allowed


_OTHERWISE = "--scheduler URL says where the scheduler answers"


@asynccontextmanager
async def forwarded(namespace: str, pod: str, connection: Connection, patience: float = PATIENCE) -> AsyncIterator[str]:
    """The address at which the pod's port answers on this machine. Raises ConfigError."""
    program = shutil.which("kubectl")
    if program is None:
        raise ConfigError("", "", f"there is no kubectl to reach the pod {namespace}/{pod}; {_OTHERWISE}")
    words = ["port-forward", "--address=127.0.0.1", f"--namespace={namespace}", f"pod/{pod}", f":{PORT}"]
    process = await _started(program, connection, words)
    assert process.stdout is not None
    reading: asyncio.Task[None] | None = None
    try:
        port = await _begun(process.stdout, words, patience)
        reading = asyncio.create_task(_read_on(process.stdout))
        yield f"https://127.0.0.1:{port}"
    finally:
        if reading is not None:
            reading.cancel()
        await _end(process)


@dataclass(frozen=True, slots=True)
class Replica(Generic[T]):
    """A pod of the scheduler that has answered through kubectl."""

    answer: T
    stack: AsyncExitStack
    """Closes the port, and all that was opened for the answer."""


async def reach_all(
    pods: Sequence[tuple[str, str]],
    connection: Connection,
    ask: Callable[[str, str, AsyncExitStack], Awaitable[T]],
    stack: AsyncExitStack,
    patience: float = PATIENCE,
) -> tuple[list[Replica[T]], list[GanglineError]]:
    """What pods, by namespace and name, answer, in their order; and the errors of those that do not.

    All pods are asked at the same time. `ask` gets the name of a pod for messages, its address, and a stack for all
    that it opens. The stack is closed with `stack`, if it was not closed before.
    """

    async def one(namespace: str, pod: str) -> Replica[T] | GanglineError:
        mine = await stack.enter_async_context(AsyncExitStack())
        try:
            address = await mine.enter_async_context(forwarded(namespace, pod, connection, patience))
            return Replica(await ask(f"the running scheduler {namespace}/{pod}", address, mine), mine)
        except GanglineError as error:
            await mine.aclose()
            return error

    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(one(*pod)) for pod in pods]
    answers = [task.result() for task in asked]
    there = [each for each in answers if isinstance(each, Replica)]
    return there, [each for each in answers if isinstance(each, GanglineError)]


async def _started(program: str, connection: Connection, words: Sequence[str]) -> Process:
    try:
        return await asyncio.create_subprocess_exec(
            program,
            *([f"--kubeconfig={connection.kubeconfig}"] if connection.kubeconfig else []),
            *([f"--context={connection.context}"] if connection.context else []),
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    except OSError as error:
        raise ConfigError("", program, f"cannot be started: {error.strerror}; {_OTHERWISE}") from error


async def _begun(output: asyncio.StreamReader, words: Sequence[str], patience: float) -> int:
    """The port on this machine, as soon as kubectl has printed it."""
    said = b""
    with suppress(TimeoutError, ValueError):  # ValueError: a line that is too long
        async with asyncio.timeout(patience):
            while line := await output.readline():
                said = (said + line)[-_LONGEST_COMPLAINT:]
                if found := _FORWARDING.match(line):
                    return int(found[1])
    why = " ".join(said.decode(errors="replace").split()) or "it says nothing"
    raise ConfigError("", f"kubectl {' '.join(words)}", why)


async def _read_on(output: asyncio.StreamReader) -> None:
    """Read and drop kubectl's output: kubectl prints a line for each connection, and stops when the pipe is full."""
    while await output.read(4096):
        pass


async def _end(process: Process) -> None:
    """End kubectl, whatever it does."""
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(_FAREWELL):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@contextmanager
def ended_in_order() -> Iterator[None]:
    """SIGTERM ends the block before the process: kubectl would go on without the command."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    is_over = False

    def end() -> None:
        nonlocal is_over
        is_over = True
        task.cancel()

    loop.add_signal_handler(signal.SIGTERM, end)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        if is_over:
            os.kill(os.getpid(), signal.SIGTERM)
