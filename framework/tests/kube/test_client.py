"""The HTTP client against an API server on loopback."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import msgspec
import pytest

from gangline import errors
from gangline.errors import InvalidObject
from gangline.kube.access import Access
from gangline.kube.auth import Credentials
from gangline.kube.client import HttpClient
from gangline.kube.interface import EventType, PatchKind, WatchEvent
from gangline.kube.resources import DEPLOYMENTS, EVENTS, GPU_CLAIMS, LEASES, NODES, PODS, TOKEN_REVIEWS, Resource
from gangline.model import Event, Lease, LeaseSpec, Node, ObjectMeta, Pod, TokenReview, TokenReviewSpec
from gangline.wire.custom_resources import GpuClaim

from .fake_api_server import FakeApiServer, bookmark, event, failure, listed, pod
from .test_writing import Peer, reply

ALL_PODS = "/api/v1/pods"
POD_A = "/api/v1/namespaces/default/pods/a"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


async def watched(client: HttpClient) -> list[WatchEvent[Pod]]:
    return [seen async for seen in client.watch(PODS, resource_version="1")]


def told(events: list[WatchEvent[Pod]]) -> list[tuple[str, str, str]]:
    return [
        (seen.type.value, seen.object.metadata.name if seen.object else "", seen.resource_version) for seen in events
    ]


async def test_a_list_holds_the_objects_and_its_version(server: FakeApiServer, client: HttpClient) -> None:
    server.answers("GET", ALL_PODS, listed(7, pod("a", 3, priority=5), pod("b", 4)))

    listing = await client.list(PODS, field_selector="spec.nodeName=", resource_version="0")

    assert [found.metadata.name for found in listing.items] == ["a", "b"]
    assert (listing.items[0].spec.priority, listing.resource_version) == (5, "7")
    assert server.asked[0].query == {"fieldSelector": "spec.nodeName=", "resourceVersion": "0"}


async def test_of_a_kind_that_is_known_by_its_metadata_nothing_else_is_asked_for(
    server: FakeApiServer, client: HttpClient
) -> None:
    path = "/apis/apps/v1/deployments"
    serve = {"metadata": {"name": "serve", "namespace": "default", "resourceVersion": "2", "annotations": {"a": "b"}}}
    server.answers("GET", path, listed(7, serve))
    server.answers("GET", "/apis/apps/v1/namespaces/default/deployments/serve", serve)
    server.streams(path, event("ADDED", serve))

    listing = await client.list(DEPLOYMENTS)
    got = await client.get(DEPLOYMENTS, "serve", namespace="default")
    (added,) = [seen async for seen in client.watch(DEPLOYMENTS, resource_version="1")]

    assert listing.items == [got] == [added.object] and got.metadata.annotations == {"a": "b"}
    kinds = [asked.headers["Accept"].removeprefix("application/json;as=").partition(";")[0] for asked in server.asked]
    assert kinds == ["PartialObjectMetadataList", "PartialObjectMetadata", "PartialObjectMetadata"]


async def test_a_list_without_items_is_empty(server: FakeApiServer, client: HttpClient) -> None:
    server.answers("GET", ALL_PODS, {"metadata": {"resourceVersion": "7"}, "items": None})

    assert (await client.list(PODS)).items == []


async def test_an_object_that_does_not_fit_is_skipped_in_a_list_and_reported(
    server: FakeApiServer,
    client: HttpClient,
    skipped: list[tuple[str, str, InvalidObject]],
) -> None:
    server.answers("GET", ALL_PODS, listed(7, pod("a", 3), pod("b", 4, priority="high")))

    listing = await client.list(PODS)

    assert [found.metadata.name for found in listing.items] == ["a"]
    assert [each.metadata.uid for each in listing.invalid] == ["uid-b"]
    assert client.invalid_objects == 1
    assert skipped[0][:2] == ("default", "b")
    assert str(skipped[0][2]) == ("Pod default/b: spec.priority: 'high': Expected `int | null`, got `str`")


async def test_an_object_that_does_not_fit_is_skipped_in_a_watch_and_reported(
    server: FakeApiServer,
    client: HttpClient,
    skipped: list[tuple[str, str, InvalidObject]],
) -> None:
    bad = pod("b", 4, containers=[{"name": 5}])
    server.streams(ALL_PODS, event("ADDED", bad), event("ADDED", pod("c", 5)))

    events = await watched(client)

    assert told(events) == [("BOOKMARK", "", "4"), ("ADDED", "c", "5")]
    assert str(skipped[0][2]) == ("Pod default/b: spec.containers[0].name: 5: Expected `str`, got `int`")


async def test_a_deletion_counts_even_if_the_object_does_not_fit(server: FakeApiServer, client: HttpClient) -> None:
    server.streams(ALL_PODS, event("DELETED", pod("b", 4, priority="high")))

    (deleted,) = await watched(client)

    assert deleted.type is EventType.DELETED
    assert deleted.object is not None
    assert deleted.object.metadata.uid == "uid-b"


@pytest.mark.parametrize("seed", range(5))
async def test_a_watch_may_be_cut_at_any_byte(server: FakeApiServer, client: HttpClient, seed: int) -> None:
    lines = [event("ADDED", pod("a", 2)), bookmark(3), event("DELETED", pod("a", 4))]
    text = b"".join(lines)
    cuts = sorted(random.Random(seed).sample(range(1, len(text)), 40))
    server.streams(ALL_PODS, *(text[a:b] for a, b in zip([0, *cuts], [*cuts, None], strict=True)))

    events = await watched(client)

    assert told(events) == [("ADDED", "a", "2"), ("BOOKMARK", "", "3"), ("DELETED", "a", "4")]


async def test_an_event_may_be_larger_than_any_buffer(server: FakeApiServer, client: HttpClient) -> None:
    large = pod("a", 2)
    large["metadata"]["annotations"] = {"note": "x" * 3_000_000}
    server.streams(ALL_PODS, event("ADDED", large), event("ADDED", pod("b", 3)))

    assert told(await watched(client)) == [("ADDED", "a", "2"), ("ADDED", "b", "3")]


async def test_a_watch_asks_for_bookmarks_and_a_random_time(server: FakeApiServer, client: HttpClient) -> None:
    server.streams(ALL_PODS, bookmark(3))

    await watched(client)

    query = server.asked[0].query
    assert (query["allowWatchBookmarks"], query["resourceVersion"]) == ("true", "1")
    assert 300 <= int(query["timeoutSeconds"]) <= 600


async def test_a_watch_that_says_nothing_ends_so_that_another_one_begins(server: FakeApiServer) -> None:
    server.streams("/api/v1/pods", event("ADDED", pod("a", 8)), then="stay")

    async with asyncio.timeout(10), HttpClient(Credentials(lambda: Access(server.url)), silence=0.05) as client:
        events = [each async for each in client.watch(PODS, resource_version="7")]

    assert [each.resource_version for each in events] == ["8"]


async def test_a_watch_refused_with_410_raises_gone(server: FakeApiServer, client: HttpClient) -> None:
    server.fails("WATCH", ALL_PODS, 410, "Expired")

    with pytest.raises(errors.Gone, match="410 Expired: the fake says Expired"):
        await watched(client)


async def test_an_error_event_raises_what_it_stands_for(server: FakeApiServer, client: HttpClient) -> None:
    server.streams(ALL_PODS, bookmark(3), event("ERROR", failure(410, "Expired")))
    seen: list[str] = []

    with pytest.raises(errors.Gone):
        async for got in client.watch(PODS, resource_version="1"):
            seen.append(got.resource_version)

    assert seen == ["3"]


@pytest.mark.parametrize(
    ("chunks", "then"),
    [
        pytest.param([bookmark(3)], "break", id="connection breaks"),
        pytest.param([bookmark(3), b"not json\n"], "close", id="garbled"),
    ],
)
async def test_a_broken_watch_is_unavailable(
    server: FakeApiServer, client: HttpClient, chunks: list[bytes], then: str
) -> None:
    server.streams(ALL_PODS, *chunks, then=then)

    with pytest.raises(errors.Unavailable):
        await watched(client)


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        (400, "BadRequest", errors.Invalid),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (409, "Conflict", errors.Conflict),
        (409, "AlreadyExists", errors.Conflict),
        (410, "Expired", errors.Gone),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.TooManyRequests),
        (500, "InternalError", errors.Unavailable),
        (503, "ServiceUnavailable", errors.Unavailable),
        (405, "MethodNotAllowed", errors.ApiError),
    ],
)
async def test_a_failure_is_raised_by_its_status(
    server: FakeApiServer,
    client: HttpClient,
    status: int,
    reason: str,
    expected: type[errors.ApiError],
) -> None:
    server.fails("GET", POD_A, status, reason)

    with pytest.raises(errors.ApiError) as caught:
        await client.get(PODS, "a", namespace="default")

    assert type(caught.value) is expected
    assert str(caught.value) == f"{status} {reason}: the fake says {reason}"


async def test_a_failure_that_is_not_a_status_shows_what_came(server: FakeApiServer, client: HttpClient) -> None:
    server.answers("GET", POD_A, b"<html>no</html>", status=403)

    with pytest.raises(errors.Forbidden, match="403 Forbidden: <html>no</html>"):
        await client.get(PODS, "a", namespace="default")


async def test_a_read_waits_as_long_as_the_server_asks_and_tries_again(
    server: FakeApiServer, client: HttpClient, slept: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    server.fails("GET", POD_A, 429, "TooManyRequests", Retry_After="7")
    server.fails("GET", POD_A, 429, "TooManyRequests", Retry_After="7")
    server.answers("GET", POD_A, pod("a", 2))

    found = await client.get(PODS, "a", namespace="default")

    assert found.metadata.name == "a"
    assert len(slept) == 2
    assert 7.0 <= slept[0] <= 8.0
    (told,) = caplog.messages
    assert told.startswith(f"GET {POD_A}: 429 TooManyRequests: ") and told.endswith("; asking again in 7 s")


@pytest.mark.parametrize("through_a_proxy", [False, True], ids=["directly", "through a proxy"])
async def test_reads_survive_what_breaks(server: FakeApiServer, through_a_proxy: bool) -> None:
    """A list that is cut is asked for again; a watch that is cut has told what came before."""
    access = Access("http://api.test", proxy=server.url) if through_a_proxy else Access(server.url)
    server.breaks("GET", ALL_PODS, b'{"metadata": {"resourceVersion": "7"}, "items": [')
    server.answers("GET", ALL_PODS, listed(7, pod("a", 3)))
    server.streams(ALL_PODS, bookmark(3), then="break")
    server.fails("GET", POD_A, 404, "NotFound")

    async with HttpClient(Credentials(lambda: access), sleep=lambda seconds: asyncio.sleep(0)) as client:
        listing = await client.list(PODS)
        with pytest.raises(errors.Unavailable, match="in the middle of the answer"):
            await watched(client)
        with pytest.raises(errors.NotFound):
            await client.get(PODS, "a", namespace="default")

    assert [found.metadata.name for found in listing.items] == ["a"]
    assert [asked.method for asked in server.asked] == ["GET", "GET", "WATCH", "GET"]


@pytest.mark.parametrize("through_a_proxy", [False, True], ids=["directly", "through a proxy"])
async def test_a_redirect_is_an_error_for_reads_and_writes(server: FakeApiServer, through_a_proxy: bool) -> None:
    """The credentials go nowhere else, and no pod is taken for bound."""
    access = Access("http://api.test", proxy=server.url) if through_a_proxy else Access(server.url)
    elsewhere = {"Location": f"{server.url}/elsewhere"}
    server.answers("GET", ALL_PODS, b"", status=302, headers=elsewhere)
    server.answers("POST", f"{POD_A}/binding", b"", status=307, headers=elsewhere)

    async with HttpClient(Credentials(lambda: access)) as client:
        with pytest.raises(errors.ApiError, match="302 Found"):
            await client.list(PODS)
        with pytest.raises(errors.ApiError, match="307 Temporary"):
            await client.bind("default", "a", "uid", "node", {})

    assert [asked.path for asked in server.asked] == [ALL_PODS, f"{POD_A}/binding"]


async def test_a_read_gives_up_after_five_attempts(server: FakeApiServer, client: HttpClient) -> None:
    server.fails("GET", POD_A, 503, "ServiceUnavailable")

    with pytest.raises(errors.Unavailable):
        await client.get(PODS, "a", namespace="default")

    assert len(server.asked) == 5


async def test_a_write_is_never_tried_again(server: FakeApiServer, client: HttpClient) -> None:
    server.fails("POST", f"{POD_A}/binding", 429, "TooManyRequests", Retry_After="3")

    with pytest.raises(errors.TooManyRequests) as caught:
        await client.bind("default", "a", "uid-a", "node-1", {})

    assert caught.value.retry_after == 3.0
    assert len(server.asked) == 1


async def test_no_server_is_unavailable() -> None:
    async with HttpClient(Credentials(lambda: Access("http://127.0.0.1:1"))) as client:
        with pytest.raises(errors.Unavailable, match=r"POST http://127.0.0.1:1/.*/binding: "):
            await client.bind("default", "a", "uid-a", "node-1", {})


async def test_no_answer_in_time_is_unavailable(server: FakeApiServer) -> None:
    server.stays_silent("DELETE", POD_A)
    credentials = Credentials(lambda: Access(server.url))
    async with HttpClient(credentials, timeout=0.05) as client:
        with pytest.raises(errors.Unavailable, match="no answer in time"):
            await client.delete(PODS, "a", namespace="default")


async def test_a_bind_names_the_node_the_uid_and_the_annotations(server: FakeApiServer, client: HttpClient) -> None:
    server.answers("POST", f"{POD_A}/binding", failure(201, ""), status=201)

    await client.bind("default", "a", "uid-a", "node-1", {"gpus": "0,1"})

    assert server.asked[0].json == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": "a",
            "namespace": "default",
            "uid": "uid-a",
            "annotations": {"gpus": "0,1"},
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
    }
    assert server.asked[0].headers["User-Agent"].startswith("gangline/")


async def test_an_eviction_names_the_pod_and_its_uid(server: FakeApiServer, client: HttpClient) -> None:
    server.answers("POST", f"{POD_A}/eviction", failure(201, ""), status=201)

    await client.evict("default", "a", "uid-a")

    assert server.asked[0].json == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": "default", "name": "a"},
        "deleteOptions": {"preconditions": {"uid": "uid-a"}},
    }


async def test_binds_share_their_connections(server: FakeApiServer) -> None:
    server.answers("POST", f"{POD_A}/binding", failure(201, ""), status=201)
    async with HttpClient(Credentials(lambda: Access(server.url)), connections=2) as client:
        await asyncio.gather(*(client.bind("default", "a", "", "node-1", {}) for _ in range(20)))

    assert len(server.asked) == 20
    assert len({asked.peer for asked in server.asked}) == 2


async def test_what_is_created_carries_its_kind(server: FakeApiServer, client: HttpClient) -> None:
    made = {"metadata": {"name": "x", "namespace": "default", "resourceVersion": "9"}}
    server.answers("POST", LEASE, made, status=201)
    lease = Lease(ObjectMeta(name="x", namespace="default"), LeaseSpec(holder_identity="me"))

    created = await client.create(LEASES, lease)

    assert created.metadata.resource_version == "9"
    assert server.asked[0].json == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "x", "namespace": "default"},
        "spec": {"holderIdentity": "me"},
    }


@pytest.mark.parametrize(
    ("resource", "made"),
    [
        (NODES, Node(ObjectMeta())),
        (PODS, Pod(ObjectMeta(name="x", namespace="default", labels={"a": "b"}))),
        (GPU_CLAIMS, GpuClaim(ObjectMeta(name="x", namespace="default"))),
    ],
    ids=["empty", "without its kind", "with its kind"],
)
async def test_what_is_written_has_each_field_once(
    server: FakeApiServer, client: HttpClient, resource: Resource[Any], made: Any
) -> None:
    server.answers("POST", resource.path(made.metadata.namespace), {"metadata": {"name": "x"}}, status=201)

    await client.create(resource, made)

    head = {"apiVersion": resource.api_version, "kind": resource.kind}
    assert json.loads(server.asked[0].body, object_pairs_hook=only_once) == head | msgspec.to_builtins(made)


def only_once(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(fields) == len(dict(fields)), fields
    return dict(fields)


async def test_an_event_is_written_whatever_the_answer_says(server: FakeApiServer, client: HttpClient) -> None:
    server.answers("POST", EVENTS.path("default"), b"nobody reads this", status=201)
    made = Event(metadata=ObjectMeta(name="x", namespace="default"), reason="Scheduled")

    assert await client.create(EVENTS, made) is made


async def test_replacing_with_a_stale_version_is_a_conflict(server: FakeApiServer, client: HttpClient) -> None:
    server.fails("PUT", f"{LEASE}/x", 409, "Conflict")
    lease = Lease(ObjectMeta(name="x", namespace="default", resource_version="8"))

    with pytest.raises(errors.Conflict):
        await client.replace(LEASES, lease)

    assert server.asked[0].json["metadata"]["resourceVersion"] == "8"


async def test_the_answer_to_a_review_has_no_name(server: FakeApiServer, client: HttpClient) -> None:
    server.answers("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"metadata": {}, "status": {}})

    assert (await client.create(TOKEN_REVIEWS, TokenReview(spec=TokenReviewSpec(token="x")))).metadata.name == ""


async def test_an_answer_without_an_object_is_no_success(server: FakeApiServer, client: HttpClient) -> None:
    lease = Lease(ObjectMeta(name="x", namespace="default", resource_version="8"))
    for method in ("GET", "PUT"):
        server.answers(method, f"{LEASE}/x", {"kind": "Status", "metadata": {}, "status": "Failure", "code": 500})

    with pytest.raises(errors.Unavailable, match="without a name"):
        await client.replace(LEASES, lease)
    with pytest.raises(errors.Unavailable, match="without a name"):
        await client.get(LEASES, "x", namespace="default")


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b"7", b"<html>", b'{"kind":"Lea', b"\xff", b'{"metadata":[]}'])
async def test_an_answer_that_is_no_object_is_no_success(
    server: FakeApiServer, client: HttpClient, body: bytes
) -> None:
    lease = Lease(ObjectMeta(name="x", namespace="default", resource_version="8"))
    for method in ("GET", "PUT"):
        server.answers(method, f"{LEASE}/x", body)

    with pytest.raises(errors.Unavailable, match="leases: the answer is "):
        await client.replace(LEASES, lease)
    with pytest.raises(errors.Unavailable, match="leases: the answer is "):
        await client.get(LEASES, "x", namespace="default")


@pytest.mark.parametrize("kind", PatchKind)
async def test_a_patch_says_how_it_is_merged(server: FakeApiServer, client: HttpClient, kind: PatchKind) -> None:
    server.answers("PATCH", f"{POD_A}/status", pod("a", 5))

    patched = await client.patch(PODS, "a", {"status": {}}, namespace="default", subresource="status", kind=kind)

    assert patched.metadata.resource_version == "5"
    assert server.asked[0].headers["Content-Type"] == kind.value
    assert server.asked[0].json == {"status": {}}


async def test_server_side_apply_names_its_manager_and_the_object(server: FakeApiServer, client: HttpClient) -> None:
    server.answers("PATCH", "/api/v1/nodes/n", {"metadata": {"name": "n"}})

    body = {"metadata": {"labels": {"a": "b"}}}
    await client.apply(NODES, "n", body, field_manager="gangline-agent", force=False)

    asked = server.asked[0]
    assert asked.headers["Content-Type"] == "application/apply-patch+yaml"
    assert asked.query == {"fieldManager": "gangline-agent", "force": "false"}
    assert asked.json == {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"labels": {"a": "b"}, "name": "n"},
    }


async def test_a_deletion_carries_its_preconditions(server: FakeApiServer, client: HttpClient) -> None:
    server.answers("DELETE", POD_A, pod("a", 5))

    await client.delete(PODS, "a", namespace="default", uid="u", grace_period_seconds=0)

    assert server.asked[0].json["preconditions"] == {"uid": "u"}
    assert server.asked[0].json["gracePeriodSeconds"] == 0


async def test_discovery_lists_plurals_without_subresources(server: FakeApiServer, client: HttpClient) -> None:
    resources: list[dict[str, Any]] = [{"name": "podgroups"}, {"name": "podgroups/status"}]
    server.answers("GET", "/apis/scheduling.k8s.io/v1alpha2", {"resources": resources})

    assert await client.served("scheduling.k8s.io", "v1alpha2") == {"podgroups"}
    assert await client.served("nothing.example", "v1") == set()


async def test_an_answer_that_does_not_fit_names_object_field_and_value(
    server: FakeApiServer, client: HttpClient
) -> None:
    server.answers("GET", POD_A, json.dumps(pod("a", 2, nodeName=[])).encode())

    with pytest.raises(InvalidObject, match=r"Pod default/a: spec.nodeName: \[\]: Expected `str`"):
        await client.get(PODS, "a", namespace="default")


async def test_refused_credentials_are_read_again_and_the_request_is_repeated(
    server: FakeApiServer,
) -> None:
    server.fails("POST", f"{POD_A}/binding", 401, "Unauthorized")
    server.answers("POST", f"{POD_A}/binding", failure(201, ""), status=201)
    tokens = iter(["Bearer old", "Bearer new"])
    times = iter([0.0, 100.0, 100.0, 100.0])
    credentials = Credentials(lambda: Access(server.url, authorization=next(tokens)), clock=lambda: next(times))
    async with HttpClient(credentials) as client:
        await client.bind("default", "a", "uid-a", "node-1", {})

    sent = [asked.headers["Authorization"] for asked in server.asked]
    assert sent == ["Bearer old", "Bearer new"]


async def test_credentials_without_a_successor_raise_what_the_server_said(
    server: FakeApiServer, client: HttpClient
) -> None:
    server.fails("GET", POD_A, 401, "Unauthorized")

    with pytest.raises(errors.ApiError, match="401 Unauthorized"):
        await client.get(PODS, "a", namespace="default")

    assert len(server.asked) == 1


async def test_an_exception_that_nobody_expects_fails_its_request_alone_and_is_logged(
    server: FakeApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    readings = iter([Access(server.url, authorization="Bearer one", valid_for=0.0)])

    def read() -> Access:
        if found := next(readings, None):
            return found
        raise RuntimeError("File descriptor 9 is used by transport")

    async with HttpClient(Credentials(read), sleep=lambda seconds: asyncio.sleep(0)) as client:
        for request in (
            client.get(PODS, "a", namespace="default"),
            client.list(PODS),
            watched(client),
            client.bind("default", "a", "uid", "node", {}),
        ):
            with pytest.raises(errors.Unavailable, match="RuntimeError: File descriptor 9"):
                await request

    assert any(record.exc_info for record in caplog.records)


async def test_a_process_that_may_not_write_reads_on(server: FakeApiServer) -> None:
    server.answers("GET", POD_A, pod("a", 2))
    async with HttpClient(Credentials(lambda: Access(server.url)), may_write=lambda: False) as client:
        with pytest.raises(errors.Unavailable, match="not sent"):
            await client.bind("default", "a", "uid", "node", {})
        await client.get(PODS, "a", namespace="default")

    assert [asked.method for asked in server.asked] == ["GET"]


@pytest.mark.parametrize("through_a_proxy", [False, True], ids=["directly", "through a proxy"])
async def test_whether_a_write_may_be_sent_is_asked_after_it_has_waited_for_a_connection(
    server: FakeApiServer, through_a_proxy: bool
) -> None:
    access = Access("http://api.test", proxy=server.url) if through_a_proxy else Access(server.url)
    server.answers("POST", f"{POD_A}/binding", {"kind": "Status", "status": "Success"}, status=201)

    async with HttpClient(Credentials(lambda: access), connections=1, may_write=lambda: not server.asked) as client:
        bind = (client.bind("default", "a", "uid", "node", {}) for _ in range(2))
        first, second = await asyncio.gather(*bind, return_exceptions=True)

    assert first is None and isinstance(second, errors.Unavailable) and "not sent" in str(second)
    assert len(server.asked) == 1


def events_in(*namespaces: str) -> list[Event]:
    return [Event(ObjectMeta(name="e", namespace=namespace)) for namespace in namespaces]


def of_events(namespace: str) -> str:
    return f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"


async def test_of_events_that_are_created_at_once_each_has_its_own_outcome(
    server: FakeApiServer, client: HttpClient
) -> None:
    server.answers("POST", of_events("a"), {})
    server.fails("POST", of_events("b"), 409, "AlreadyExists")
    server.fails("POST", of_events("c"), 403, "Forbidden")
    server.answers("POST", of_events("d"), {})

    outcomes = await client.create_all(EVENTS, events_in("a", "b", "c", "d"))

    assert [type(each) for each in outcomes] == [type(None), errors.Conflict, errors.Forbidden, type(None)]
    assert len(server.asked) == 4


async def test_events_that_were_not_answered_are_sent_again_one_after_the_other() -> None:
    """The server may have created the second one before its answer was lost."""
    first = Peer(reply(), b"hang up", reply("409 Conflict"), reply("403 Forbidden"), reply(), reply("409 Conflict"))
    server = await asyncio.start_server(first.talk, "127.0.0.1", 0)
    access = Access(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    async with server, HttpClient(Credentials(lambda: access)) as client:
        outcomes = await client.create_all(EVENTS, events_in("a", "b", "c"))
        later = await client.create_all(EVENTS, events_in("d", "e"))

    assert [type(each) for each in outcomes] == [type(None), type(None), errors.Forbidden]
    assert [type(each) for each in later] == [type(None), errors.Conflict]
    sent = [request.split()[1].split(b"/")[5].decode() for request in first.requests]
    assert sent == ["a", "b", "b", "c", "d", "e"]
