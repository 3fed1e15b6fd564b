"""Odd lines of watches and odd bodies of lists."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hypothesis import strategies as st

from gangline_fuzz import texts
from gangline_fuzz.inputs import Line, Relist, Reset

Body = Callable[[Sequence[bytes], int, str], bytes]
"""The body of a list, from the texts of its objects, the resourceVersion and what asks for the next page."""


def _body(before: str, after: str) -> Body:
    def body(items: Sequence[bytes], version: int, more: str) -> bytes:
        head = before.replace("VERSION", str(version)).replace("MORE", more).encode("utf-8", "surrogateescape")
        return head + b",".join(items) + after.encode("utf-8", "surrogateescape")

    return body


_EMPTY = '{"metadata":{"resourceVersion":"1"},'  # nothing was there; what a watch from then on brings has come since
_HEAD = '{"metadata":{"resourceVersion":"VERSION","continue":"MORE"},"items":['
LISTS: Mapping[str, Body] = {
    "as it should be": _body(_HEAD, "]}"),
    "null among the items": _body(_HEAD + "null,", ",null]}"),
    "a number among the items": _body(_HEAD + "1,", "]}"),
    "items are null": _body(_EMPTY + '"items":null,"rest":[', "]}"),
    "items are an object": _body(
        '{"metadata":{"resourceVersion":"VERSION","continue":"MORE"},"items":{},"rest":[', "]}"
    ),
    "no items": _body(_EMPTY + '"rest":[', "]}"),
    "no metadata": _body('{"items":[', "]}"),
    "metadata is null": _body('{"metadata":null,"items":[', "]}"),
    "a version that is a number": _body('{"metadata":{"resourceVersion":7},"items":[', "]}"),
    "a version that is empty": _body('{"metadata":{"resourceVersion":""},"items":[', "]}"),
    "a version that is no number": _body('{"metadata":{"resourceVersion":"x"},"items":[', "]}"),
    "continue": _body(
        '{"metadata":{"resourceVersion":"VERSION","continue":"x","remainingItemCount":-1},"items":[', "]}"
    ),
    "cut off": _body(_HEAD, ""),
    "nothing": lambda items, version, more: b"",
    "null": lambda items, version, more: b"null",
    "a page of a proxy": lambda items, version, more: b"<html>504</html>",
    "not UTF-8": _body(_HEAD + '{"metadata":{"name":"\udcff"}},', "]}"),
    "nested too deeply": _body(_HEAD + texts.written({"@deep": 5000}) + ",", "]}"),
    "NaN": _body(_HEAD + "NaN,", "]}"),
}

LINES = (
    '{"type":"ERROR","object":null}',
    '{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}',
    '{"type":"ERROR","object":{"kind":"Status","code":"410","reason":null,"message":7}}',
    '{"type":"ERROR","object":{"code":' + texts.written({"@digits": 5000}) + "}}",
    '{"type":"ERROR","object":' + texts.written({"@deep": 5000}) + "}",
    '{"type":"ERROR"}',
    '{"type":"ERROR","object":[]}',
    '{"type":"ERROR","object":{"code":500,"details":{"retryAfterSeconds":-99999999999999999999}}}',
    '{"type":"BOOKMARK","object":{"metadata":{}}}',
    '{"type":"BOOKMARK","object":null}',
    '{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":7}}}',
    '{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"x"}}}',
    '{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"99999999999999999999"}}}',
    '{"type":"DELETED","object":null}',
    '{"type":"DELETED","object":{}}',
    '{"type":"DELETED","object":{"metadata":{"name":"never-seen","namespace":"default","uid":"never-seen"}}}',
    '{"type":"DELETED","object":{"metadata":{"name":7}}}',
    '{"type":"ADDED","object":null}',
    '{"type":"MODIFIED","object":{}}',
    '{"type":"MODIFIED","object":{"metadata":null}}',
    '{"type":"MODIFIED","object":{"metadata":{}}}',
    '{"type":"SOMETHING","object":{"metadata":{"name":"a"}}}',
    '{"type":null,"object":{"metadata":{"name":"a"}}}',
    '{"type":7}',
    '{"object":{"metadata":{"name":"a"}}}',
    "{}",
    "[]",
    "null",
    "NaN",
    '"',
    "{",
    "\udcff\udcfe",
    '{"type":"ADDED","object":{"metadata":{"name":"\udcff"}}}',
    '{"type":"ADDED","object":{"metadata":{"name":"\\ud800","resourceVersion":"1"}}}',
    '{"type":"ADDED","object":{"metadata":{"name":NaN}}}',
    '{"type":"ADDED","type":"DELETED","object":null,"object":{"metadata":{"name":"p0","namespace":"default"}}}',
    '{"type":"ADDED","object":' + texts.written({"@deep": 5000}) + "}",
    '{"type":' + texts.written({"@deep": 5000}) + "}",
    texts.written({"@deep": 100_000}),
    "\r",
    " ",
)


def lines(resources: Sequence[str]) -> st.SearchStrategy[Line]:
    """Something that a watch of one of these kinds says."""
    noise = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), min_size=1, max_size=20)
    return st.builds(Line, st.sampled_from(resources), st.sampled_from(LINES) | noise)


def breaks(resources: Sequence[str]) -> st.SearchStrategy[Relist | Reset]:
    """A watch that ends."""
    return st.builds(Relist, st.sampled_from(resources), st.sampled_from(sorted(LISTS))) | st.just(Reset())
