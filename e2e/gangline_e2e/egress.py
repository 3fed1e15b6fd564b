"""Lets the API server reach Services, as kube-proxy does in a cluster: webhooks are called by their Service's address.

kube-apiserver hands every such connection to an egress proxy by HTTP CONNECT with the Service's address; this one picks
a ready pod of the Service and passes the bytes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import yaml

from gangline_e2e.api import Api
from gangline_e2e.workloads import Manifest, is_pod_ready

CHUNK = 1 << 16
CLOSED_S = 5.0
"""The longest wait until a connection is closed, in seconds."""


def write_configuration(path: Path, socket: Path) -> Path:
    """The file for kube-apiserver's --egress-selector-config-file: the proxy listens on a Unix socket.

    On a TCP port without TLS, which the file may name too, kube-apiserver v1.36 panics.
    """
    connection = {"proxyProtocol": "HTTPConnect", "transport": {"uds": {"udsName": str(socket)}}}
    selection = {"name": "cluster", "connection": connection}
    head = {"apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration"}
    path.write_text(yaml.safe_dump({**head, "egressSelections": [selection]}))
    return path


@asynccontextmanager
async def proxy(api: Api, socket: Path) -> AsyncIterator[None]:
    """The proxy on a Unix socket, until the block ends."""

    connections: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await _connect(api, reader, writer)
        finally:
            await _end(writer)

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(serve(reader, writer))
        connections.add(task)
        task.add_done_callback(connections.discard)

    server = await asyncio.start_unix_server(accept, socket)
    try:
        yield
    finally:
        server.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


async def _connect(api: Api, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection: CONNECT ADDRESS:PORT, then bytes both ways until either side ends."""
    request = (await reader.readuntil(b"\r\n\r\n")).decode()
    address, _, port = request.split()[1].rpartition(":")
    endpoint = await _endpoint(api, address, int(port))
    if endpoint is None:
        writer.write(b"HTTP/1.1 503 Service Unavailable\r\n\r\n")
        return await writer.drain()
    try:
        there, back = await asyncio.open_connection(*endpoint)
    except OSError:
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
        return await writer.drain()
    try:
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(_pass_on(reader, back), _pass_on(there, writer))
    finally:
        await _end(back)


async def _end(writer: asyncio.StreamWriter) -> None:
    """Close a connection and wait until it is closed; what the other side does not take in time is dropped."""
    writer.close()
    try:
        async with asyncio.timeout(CLOSED_S):
            await writer.wait_closed()
    except TimeoutError:
        writer.transport.abort()
    except OSError:  # the other side has ended the connection
        pass


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
    writer.close()


async def _endpoint(api: Api, address: str, port: int) -> tuple[str, int] | None:
    """Address and port of a ready pod behind a Service's address and port; None if there is none."""
    for service in await api.list("/api/v1/services"):
        if service["spec"].get("clusterIP") != address:
            continue
        target = next(each["targetPort"] for each in service["spec"]["ports"] if each["port"] == port)
        labels = ",".join(f"{key}={value}" for key, value in service["spec"]["selector"].items())
        path = f"/api/v1/namespaces/{service['metadata']['namespace']}/pods"
        for pod in await api.list(path, labelSelector=labels):
            if is_pod_ready(pod):
                return pod["status"]["podIP"], container_port(pod, target)
    return None


def container_port(pod: Manifest, name: str | int) -> int:
    """The number of a pod's port, by its name or number."""
    if isinstance(name, int):
        return name
    ports = (port for container in pod["spec"]["containers"] for port in container.get("ports", []))
    number: int = next(port["containerPort"] for port in ports if port["name"] == name)
    return number
