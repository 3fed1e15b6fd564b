"""Nothing that a server sends raises anything but InvalidObject and ApiError, and one object never hides another."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.errors import ApiError, InvalidObject, Unavailable, WatchFailed
from gangline.kube.decoding import (
    LineSplitter,
    cut,
    decode_event,
    decode_large_list,
    decode_list,
    decode_object,
    decode_served,
)
from gangline.kube.interface import EventType, Listing
from gangline.kube.resources import PODS

DEEP = b'{"f:a":' * 3000 + b"1" + b"}" * 3000


def body(name: str, more: bytes = b"", version: int = 4) -> bytes:
    head = b'{"metadata":{"name":"%b","namespace":"default","uid":"u-%b","resourceVersion":"%d"'
    return head % (name.encode(), name.encode(), version) + more + b'},"spec":{"nodeName":"n"}}'


def listing(*items: bytes) -> bytes:
    return b'{"metadata":{"resourceVersion":"9","continue":"c"},"items":[' + b",".join(items) + b"]}"


def event(kind: str, obj: bytes) -> bytes:
    return b'{"type":"%b","object":%b}' % (kind.encode(), obj)


def ignore(*_: Any) -> None:
    return None


def test_fields_that_nobody_reads_may_be_nested_as_deeply_as_they_like() -> None:
    deep = body("deep", b',"managedFields":[{"fieldsV1":' + DEEP + b"}]")

    found = decode_object(PODS, deep)
    listed = decode_list(PODS, listing(body("a"), deep, body("b")), ignore)
    watched = decode_event(PODS, event("MODIFIED", deep), ignore)

    assert (found.metadata.name, found.spec.node_name) == ("deep", "n")
    assert [pod.metadata.name for pod in listed.items] == ["a", "deep", "b"] and listed.more == "c"
    assert watched.type is EventType.MODIFIED and watched.object == found


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(b',"labels":{"a":"\xff"}', id="no-utf8"),
        pytest.param(b',"generation":' + b"9" * 5000, id="digits"),
        pytest.param(b',"labels":[' + DEEP + b"]", id="deep-where-it-is-read"),
        pytest.param(b',"labels":{"a":null}', id="null"),
    ],
)
def test_an_object_that_cannot_be_read_leaves_the_others_and_says_who_it_is(bad: bytes) -> None:
    found = decode_list(PODS, listing(body("a"), body("bad", bad), body("b")), ignore)
    watched = decode_event(PODS, event("ADDED", body("bad", bad, version=7)), ignore)

    readable = {pod.metadata.name for pod in found.items} - {"bad"}
    assert readable == {"a", "b"} and len(found.items) + len(found.invalid) == 3
    assert watched.resource_version == "7" and (watched.object is not None or watched.unreadable is not None)


STATUS = b'{"kind":"Status","metadata":{},"status":"Failure","code":500,"message":"etcd is gone"}'


@pytest.mark.parametrize("page", [STATUS, b"[1]", b"null", b"{}", b'{"metadata":{"resourceVersion":"5"}}', b""])
def test_what_is_no_list_is_not_taken_for_an_empty_one(page: bytes) -> None:
    with pytest.raises(Unavailable, match="pods: the answer is not what it should be"):
        decode_list(PODS, page, ignore)
    with pytest.raises(Unavailable, match="discovery"):
        decode_served(page)


def test_a_line_of_a_watch_that_has_no_end_is_not_kept() -> None:
    splitter = LineSplitter(largest=1000)

    assert [splitter.feed(each) for each in (b"a" * 900, b"b" * 99 + b"\n" + b"c" * 900)][1] == [b"a" * 900 + b"b" * 99]
    with pytest.raises(WatchFailed, match="more than 1000 bytes"):
        splitter.feed(b"d" * 200)


def test_a_list_without_a_version_is_refused() -> None:
    with pytest.raises(Unavailable, match="without a resourceVersion"):
        decode_list(PODS, b'{"metadata":{},"items":[]}', ignore)


def test_an_object_that_is_set_aside_does_not_keep_its_page() -> None:
    bad = body("bad", b',"labels":7')

    (listed,) = decode_list(PODS, listing(body("a"), bad), ignore).invalid
    watched = decode_event(PODS, event("ADDED", bad), ignore).unreadable

    for each in (listed, watched):
        assert each is not None and "labels" in str(each.error)
        assert (each.error.__traceback__, each.error.__context__, each.error.__cause__) == (None, None, None)


LISTS = {
    "whole": listing(body("a"), body("b"), body("c")),
    "empty": listing(),
    "without items": b'{"metadata":{"resourceVersion":"9"},"items":null}',
    "one is invalid": listing(body("a"), body("bad", b',"labels":7'), body("c")),
    "one is too deep": listing(body("a"), body("deep", b',"managedFields":[{"fieldsV1":' + DEEP + b"}]"), body("c")),
}


@pytest.mark.parametrize("data", LISTS.values(), ids=LISTS)
@pytest.mark.parametrize("slice_bytes", [1, 100, 10**6])
async def test_a_large_list_is_decoded_as_a_small_one_is(data: bytes, slice_bytes: int) -> None:
    small, large = list[tuple[Any, ...]](), list[tuple[Any, ...]]()

    found = await decode_large_list(PODS, data, lambda *told: large.append(told[1:3]), 0, slice_bytes)

    assert _shown(found) == _shown(decode_list(PODS, data, lambda *told: small.append(told[1:3])))
    assert large == small


def _shown(found: Listing[Any]) -> tuple[Any, ...]:
    invalid = [(each.metadata, str(each.error), each.data) for each in found.invalid]
    return found.items, found.resource_version, found.more, invalid


@pytest.mark.parametrize("data", [b"", b"[]", b'{"items":[]}', listing(b"{")], ids=["nothing", "array", "head", "cut"])
async def test_a_large_body_that_is_no_list_is_refused_as_a_small_one_is(data: bytes) -> None:
    with pytest.raises((InvalidObject, ApiError)) as small:
        decode_list(PODS, data, ignore)

    with pytest.raises(type(small.value), match=re.escape(str(small.value))):
        await decode_large_list(PODS, data, ignore, -1)


async def test_other_tasks_get_a_turn_between_the_slices_of_a_large_list() -> None:
    data, turns = listing(*(body(f"p{number}") for number in range(20))), 0
    decoding = asyncio.create_task(decode_large_list(PODS, data, ignore, 0, 1))

    while not decoding.done():
        await asyncio.sleep(0)
        turns += 1

    assert len(decoding.result().items) == 20 and turns > 20


@pytest.mark.parametrize("status", [b"null", b"[]", b'"x"', b'{"code":"x"}', b"{}", DEEP], ids=lambda b: b[:8].decode())
def test_a_watch_error_that_says_nothing_is_worth_another_try(status: bytes) -> None:
    with pytest.raises(ApiError):
        decode_event(PODS, event("ERROR", status), ignore)


def test_a_watch_error_without_an_object_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="does not say why"):
        decode_event(PODS, event("ERROR", b"null"), ignore)


def test_an_event_of_an_unknown_type_is_passed_over() -> None:
    found = decode_event(PODS, event("RENAMED", body("a", version=12)), ignore)

    assert (found.type, found.object, found.resource_version) == (EventType.BOOKMARK, None, "12")


Json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(Json, st.integers(min_value=1, max_value=6))
def test_cutting_leaves_what_is_less_deep_as_it_was(value: Any, depth: int) -> None:
    def expected(value: Any, left: int) -> Any:
        if isinstance(value, list):
            return [expected(each, left - 1) for each in value] if left else None
        if isinstance(value, dict):
            return {key: expected(each, left - 1) for key, each in value.items()} if left else None
        return value

    text = json.dumps(value)

    assert json.dumps(json.loads(cut(text.encode(), depth))) == json.dumps(expected(value, depth))


@given(st.binary(max_size=60), st.sampled_from([decode_list, decode_event]))
def test_no_bytes_raise_anything_else(text: bytes, decode: Callable[..., Any]) -> None:
    for sent in (text, b'{"type":"ADDED","object":' + text + b"}", listing(body("a"), text), body("a", text)):
        try:
            decode(PODS, sent, ignore)
        except (InvalidObject, ApiError):
            continue
