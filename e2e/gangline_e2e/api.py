"""A small client of the Kubernetes API for tests, on purpose not Gangline's own.

It remembers the cluster-wide objects that it creates, so that a test can be cleaned up on a cluster
that others use too.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import aiohttp

from gangline_e2e.discovery import DISCOVERY, Kind, read_kinds
from gangline_e2e.errors import HarnessError, Refused, WaitedTooLong
from gangline_e2e.workloads import Manifest, Manifests, binding

if TYPE_CHECKING:
    from kubernetes.client import Configuration

T = TypeVar("T")
POLL_S = 0.1
PATIENCE_S = 60.0
"""Seconds to wait for a condition that comes true at once: any process may stand still for some seconds before that."""
CONCURRENCY = 64
CONNECT_S = 30.0
"""Seconds until a connection has to be open, TLS included: a busy server is slow."""
CLOSED_S = 40.0
"""Seconds until connections have to be closed: asyncio waits 30 s for the end of TLS on the other side."""
LISTED_S = 10.0
"""Seconds until a kind that the API server serves is in its discovery."""
DROP_AT_ONCE = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
MADE_BY_CONTROLLERS = ("/pods", "/resourceclaims")
SWEPT = frozenset({"delete", "list"})


@asynccontextmanager
async def connect(kubeconfig: Path, namespace: str = "default") -> AsyncIterator[Api]:
    """A client with the credentials of a kubeconfig file, until the block ends."""
    from kubernetes import client as official  # it takes 0.2 s, and every run of the unit tests imports this module
    from kubernetes import config as official_config

    settings = official.Configuration()
    official_config.load_kube_config(str(kubeconfig), client_configuration=settings)  # type: ignore[no-untyped-call]  # ships no annotations
    opened: list[socket.socket] = []

    def open_socket(
        address: tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, Any],
    ) -> socket.socket:
        opened[:] = [each for each in opened if each.fileno() >= 0]
        opened.append(socket.socket(*address[:3]))
        return opened[-1]

    connector = aiohttp.TCPConnector(ssl=_tls(settings), limit=CONCURRENCY * 2, socket_factory=open_socket)
    timeout = aiohttp.ClientTimeout(total=60, sock_connect=CONNECT_S)
    token = settings.api_key.get("BearerToken")
    headers = {"Authorization": token} if token else {}
    try:
        async with aiohttp.ClientSession(
            settings.host, connector=connector, timeout=timeout, headers=headers, json_serialize=_compact
        ) as session:
            yield Api(session, namespace)
    finally:
        await _until_closed(opened)


_compact = partial(json.dumps, separators=(",", ":"))
"""JSON without spaces, as kubectl sends it."""


async def _until_closed(sockets: list[socket.socket]) -> None:
    """Wait until the sockets of a closed session are closed too: TLS ends first, and a busy server is slow. Raises
    WaitedTooLong."""
    try:
        async with asyncio.timeout(CLOSED_S):
            while True:
                if all(each.fileno() < 0 for each in sockets):
                    return
                await asyncio.sleep(POLL_S / 10)
    except TimeoutError as error:
        raise WaitedTooLong(f"waited {CLOSED_S:g} s until all connections were closed") from error


class Api:
    """Requests on one cluster; ``namespace`` is where manifests without a namespace go.

    Paths are those of the API server, such as `/api/v1/nodes`. Failures raise Refused.
    """

    def __init__(self, session: aiohttp.ClientSession, namespace: str) -> None:
        self._session = session
        self.namespace = namespace
        self._kinds: dict[tuple[str, str], Kind] = {}
        self._cluster_wide: set[str] = set()

    # One object

    async def request(
        self, method: str, path: str, body: object = None, *, headers: Mapping[str, str] | None = None, **params: str
    ) -> Any:
        """One request with a JSON body; the answer's JSON."""
        async with self._session.request(method, path, json=body, params=params, headers=headers) as response:
            return await _answer(response)

    async def get(self, path: str) -> Manifest:
        """One object."""
        found: Manifest = await self.request("GET", path)
        return found

    async def table(self, path: str) -> tuple[list[str], list[list[str]]]:
        """What `kubectl get` prints of a collection: the heads of its columns, and the rows."""
        found = await self.request("GET", path, headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"})
        shown = [at for at, column in enumerate(found["columnDefinitions"]) if not column["priority"]]
        heads = [found["columnDefinitions"][at]["name"].upper() for at in shown]
        return heads, [[str(row["cells"][at]) for at in shown] for row in found["rows"]]

    async def list(self, path: str, **params: str) -> Manifests:
        """The objects of a collection; ``params`` are labelSelector, fieldSelector and the like."""
        answer = await self.request("GET", path, headers=None, **params)
        items: Manifests = answer["items"]
        return items

    async def create(self, manifest: Manifest) -> Manifest:
        """Create one object and return it as stored."""
        kind = await self._kind(manifest)
        collection = kind.collection(manifest["metadata"].get("namespace", self.namespace))
        created: Manifest = await self.request("POST", collection, manifest)
        if not kind.namespaced:
            self._cluster_wide.add(f"{collection}/{created['metadata']['name']}")
        return created

    async def apply(self, manifest: Manifest, **params: str) -> Manifest:
        """Create or change one object as `kubectl apply --server-side` does; unknown fields are refused.

        ``params`` may be ``dryRun="All"``.
        """
        kind = await self._kind(manifest)
        name = manifest["metadata"]["name"]
        path = f"{kind.collection(manifest['metadata'].get('namespace', self.namespace))}/{name}"
        headers = {"Content-Type": "application/apply-patch+yaml"}
        how = {"fieldManager": "gangline-e2e", "fieldValidation": "Strict", "force": "true", **params}
        applied: Manifest = await self.request("PATCH", path, manifest, headers=headers, **how)
        if not kind.namespaced and "dryRun" not in params:
            self._cluster_wide.add(path)
        return applied

    async def merge(self, path: str, patch: Manifest) -> Manifest:
        """Change fields of one object or subresource by a JSON merge patch."""
        headers = {"Content-Type": "application/merge-patch+json"}
        async with self._session.patch(path, data=json.dumps(patch), headers=headers) as response:
            changed: Manifest = await _answer(response)
            return changed

    async def send_text(self, method: str, path: str, text: str = "") -> str:
        """One request with JSON that is sent as it stands; the answer is not decoded either."""
        headers = {"Content-Type": "application/json"}
        async with self._session.request(method, path, data=text.encode(), headers=headers) as response:
            answer = await response.text()
            if not response.ok:
                raise HarnessError(f"{method} {path}: {response.status}: {answer[:500]}")
            return answer

    async def bind(self, pod: str, node: str) -> None:
        """Bind a pod of this client's namespace to a node, as a scheduler does."""
        await self.request("POST", f"{self.pods}/{pod}/binding", binding(pod, node))

    async def delete(self, path: str, *, at_once: bool = False) -> None:
        """Delete an object, with ``at_once`` without a grace period. An object that is gone is no error."""
        try:
            await self.request("DELETE", path, DROP_AT_ONCE if at_once else None)
        except Refused as error:
            if error.status != 404:
                raise

    # Many objects

    async def create_many(self, manifests: Iterable[Manifest], concurrency: int = CONCURRENCY) -> Manifests:
        """Create objects, ``concurrency`` at a time; as stored, in the order given."""
        return await _map(self.create, manifests, concurrency)

    async def merge_many(self, patches: Iterable[tuple[str, Manifest]], concurrency: int = CONCURRENCY) -> Manifests:
        """Change objects or subresources, each given by its path and a patch, ``concurrency`` at a time."""
        return await _map(lambda each: self.merge(*each), patches, concurrency)

    async def delete_many(self, paths: Iterable[str], concurrency: int = CONCURRENCY) -> None:
        """Delete objects without grace periods, ``concurrency`` at a time."""

        async def drop(path: str) -> None:
            await self.delete(path, at_once=True)

        await _map(drop, paths, concurrency)

    @property
    def pods(self) -> str:
        """The path of the pods in this client's namespace."""
        return f"/api/v1/namespaces/{self.namespace}/pods"

    # Waiting

    async def wait_for(
        self, path: str, holds: Callable[[Manifest], bool], count: int, timeout_s: float = PATIENCE_S
    ) -> Manifests:
        """Watch a collection until ``count`` of its objects satisfy ``holds``; return those."""
        found: dict[str, Manifest] = {}
        try:
            async with asyncio.timeout(timeout_s):
                async for event, item in self.watch(path):
                    if event == "RESTART":
                        found.clear()
                    elif event != "DELETED" and holds(item):
                        found[item["metadata"]["uid"]] = item
                    else:
                        found.pop(item["metadata"]["uid"], None)
                    if event != "RESTART" and len(found) >= count:
                        return list(found.values())
        except TimeoutError as error:
            what = f"{path}: waited {timeout_s:g} s for {count} objects, {len(found)} came"
            raise WaitedTooLong(what) from error
        raise HarnessError(f"{path}: the watch ended")

    async def until(
        self,
        condition: Callable[[], Awaitable[T | None]],
        what: str,
        timeout_s: float = PATIENCE_S,
        progress: Callable[[], object] | None = None,
    ) -> T:
        """Ask a condition again and again until it gives something true, and return that.

        With ``progress`` the time begins anew whenever ``progress`` returns another value, so slow machines may take
        longer.
        """
        before = None
        try:
            async with asyncio.timeout(timeout_s) as limit:
                while True:
                    if result := await condition():
                        return result
                    if progress is not None and (now := progress()) != before:
                        before = now
                        limit.reschedule(asyncio.get_running_loop().time() + timeout_s)
                    await asyncio.sleep(POLL_S)
        except TimeoutError as error:
            reached = f"; it came to {before}" if progress is not None else ""
            raise WaitedTooLong(f"waited {timeout_s:g} s until {what}{reached}") from error

    async def watch(self, path: str) -> AsyncIterator[tuple[str, Manifest]]:
        """The objects of a collection as ADDED, then their changes, without end.

        When the connection breaks, the watch yields ("RESTART", {}) and lists again.
        """
        while True:
            try:
                answer = await self.request("GET", path)
                for item in answer["items"]:
                    yield "ADDED", item
                async for event in self._events(path, answer["metadata"]["resourceVersion"]):
                    yield event
            except (aiohttp.ClientError, ConnectionError, TimeoutError):
                await asyncio.sleep(POLL_S)
            yield "RESTART", {}

    async def _events(self, path: str, version: str) -> AsyncIterator[tuple[str, Manifest]]:
        async for line in self.lines(path, version):
            event = json.loads(line)
            if event["type"] == "ERROR":
                return
            yield event["type"], event["object"]

    async def lines(self, path: str, version: str, **params: str) -> AsyncIterator[bytes]:
        """The lines of a watch from a resource version on, one event a line, until the connection ends."""
        params |= {"watch": "true", "resourceVersion": version}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
        async with self._session.get(path, params=params, timeout=timeout) as response:
            if response.status != 200:
                await _answer(response)
            rest = b""
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield line

    async def inventory(self) -> set[str]:
        """The paths of all objects on the cluster, without events; a kind with several versions counts in one of them.

        A server that has just started creates a Service for itself, so the inventory waits for this Service first.
        """
        await self.until(self._has_own_service, "the API server has made its own service")
        await self._discover()
        kinds = {kind.unversioned: kind for kind in self._kinds.values() if "list" in kind.verbs}
        found: set[str] = set()
        for (_, resource), kind in kinds.items():
            if resource == "events":
                continue
            for each in await self._list_ready(f"{kind.root}/{resource}"):
                metadata = each["metadata"]
                found.add(f"{kind.collection(metadata.get('namespace', ''))}/{metadata['name']}")
        return found

    async def _has_own_service(self) -> bool:
        services = await self.list("/api/v1/namespaces/default/services")
        return any(service["metadata"]["name"] == "kubernetes" for service in services)

    # Cleaning up

    async def sweep(self) -> None:
        """Delete what is in this client's namespace, whoever made it, and the cluster-wide objects
        that this client made; HarnessError for a namespace that no test has made.
        """
        if self.namespace == "default" or self.namespace.startswith("kube-"):
            raise HarnessError(f"{self.namespace}: not a namespace of a test")
        await self._discover()
        collections = {
            kind.unversioned: kind.collection(self.namespace)
            for kind in self._kinds.values()
            if kind.namespaced and kind.verbs >= SWEPT
        }
        used = {each for each in collections.values() if each.endswith(MADE_BY_CONTROLLERS)}
        for collection in sorted(collections.values(), key=self.pods.__eq__):  # pods after their owners
            names = [item["metadata"]["name"] for item in await self._list_if_served(collection)]
            await self.delete_many(f"{collection}/{name}" for name in names)
            used |= {collection} if names else set()
        await self.until(partial(self._is_swept, used), f"nothing in {self.namespace} waits for a controller")
        await self.delete_many(sorted(self._cluster_wide))
        self._cluster_wide.clear()

    async def _is_swept(self, collections: Iterable[str]) -> bool:
        """Whether nothing is left that a controller has made meanwhile, or has to let go; what is left is deleted.

        A ResourceClaim that outlives its namespace keeps its devices for ever: no controller can write it any more.
        """
        left: dict[str, Manifest] = {}
        for collection in collections:
            for item in await self._list_if_served(collection):
                if collection.endswith(MADE_BY_CONTROLLERS) or "deletionTimestamp" in item["metadata"]:
                    left[f"{collection}/{item['metadata']['name']}"] = item
        await self.delete_many(left)
        for path in [path for path, item in left.items() if item["metadata"].get("finalizers")]:
            with suppress(Refused):  # it is gone, or changes at this moment
                await self.merge(path, {"metadata": {"finalizers": None}})
        return not left

    async def _list_if_served(self, collection: str) -> Manifests:
        """The objects of a collection; none if the API server does not serve the custom resource yet, or no longer."""
        try:
            return await self._list_ready(collection)
        except Refused as error:
            if error.status != 404:
                raise
            return []

    async def drop_namespace(self) -> None:
        """Delete this client's namespace, which was swept before.

        The finalizer is removed as well, because the namespace controller, which usually does so, may not run here.
        """
        path = f"/api/v1/namespaces/{self.namespace}"
        await self.delete(path)
        try:
            left = await self.get(path)
            left["spec"]["finalizers"] = []
            await self.request("PUT", f"{path}/finalize", left)
        except Refused as error:
            if error.status not in (404, 409):
                raise

    async def _list_ready(self, path: str) -> Manifests:
        """The objects of a collection; waits until the storage of a new custom resource is made."""

        async def listed() -> Manifest | None:
            try:
                return {"items": await self.list(path)}
            except Refused as error:
                if error.status != 429:
                    raise
                return None

        items: Manifests = (await self.until(listed, f"{path} is served"))["items"]
        return items

    async def _kind(self, manifest: Manifest) -> Kind:
        """The kind of a manifest. The API server lists a new kind a moment after it serves the kind, so this waits."""
        key = manifest["apiVersion"], manifest["kind"]

        async def listed() -> Kind | None:
            if key not in self._kinds:
                await self._discover()
            return self._kinds.get(key)

        try:
            return await self.until(listed, "the kind is listed", LISTED_S)
        except WaitedTooLong:
            raise HarnessError(f"{key[0]} {key[1]}: the API server does not serve this kind") from None

    async def _discover(self) -> None:
        for root in ("/api", "/apis"):
            async with self._session.get(root, headers={"Accept": DISCOVERY}) as response:
                self._kinds |= read_kinds(root, await _answer(response))


async def _answer(response: aiohttp.ClientResponse) -> Any:
    """The JSON of an answer, or Refused."""
    text = await response.text()
    if response.status < 400:
        return json.loads(text)
    try:
        status = json.loads(text)
    except ValueError:
        raise Refused(response.status, response.reason or "", text.strip()) from None
    raise Refused(response.status, status.get("reason", ""), status.get("message", text))


async def _map(do: Callable[[Any], Awaitable[T]], items: Iterable[Any], concurrency: int) -> list[T]:
    """Do something to each item, ``concurrency`` at a time; the first error ends it."""
    slots = asyncio.Semaphore(concurrency)

    async def one(item: Any) -> T:
        async with slots:
            return await do(item)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(item)) for item in items]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


def _tls(settings: Configuration) -> Any:
    """The TLS context for a loaded kubeconfig; True, aiohttp's default, for plain HTTP."""
    if not settings.host.startswith("https:"):
        return True
    context = ssl.create_default_context(cafile=settings.ssl_ca_cert)
    if not settings.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if settings.cert_file:
        context.load_cert_chain(settings.cert_file, settings.key_file)
    return context
