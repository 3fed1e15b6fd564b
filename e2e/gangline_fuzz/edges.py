"""Values at the edges of what a field may hold, and past them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Values = st.SearchStrategy[Any]

HUGE: tuple[Any, ...] = (
    2**15, 2**31 - 1, 2**31, -(2**31) - 1, 2**32, 2_000_000_000, 2**52, 2**53 + 1, 2**62, 2**63 - 1, 2**63, -(2**63),
    -(2**63) - 1, 2**64, 10**19, {"@digits": 400}, {"@digits": 5000}, {"@raw": "1e400"}, {"@raw": "-0"},
    {"@raw": "1.0"}, {"@raw": "1e3"}, {"@raw": "1e-400"},
)  # fmt: skip
SMALL = (0, 1, -1, 2, 3, 7, 8, 9, 16, 64, 100, 1000, 9000, 100_000)

DEEP: tuple[Any, ...] = (
    {"@deep": 1500}, {"@deep": 10_000}, {"@deep-objects": 3000}, {"@keys": 300}, {"@keys": 10_000},
    {"@items": [2000, {}]}, {"@items": [20_000, "x"]}, {"@twice": {"a": 1, "b": [2]}},
)  # fmt: skip
WRONG: tuple[Any, ...] = (None, True, 0, -1, 1.5, "", "x", [], {}, [None], {"": None}, [[]], [{}], *DEEP, *HUGE)
"""Values of a type that a field does not have, and too large ones."""

TEXTS: tuple[Any, ...] = (
    "", " ", "x", "a", "b", "a/b", "//[", "[", "::", "%", "*", "\\", "\u0000", "\n", "é", "١", "½", "☃" * 90,
    "NaN", "Infinity", "-Infinity", "null", "true", "false", "0", "1", "2", "-1", "+1", "1.5", "1e9", "0x10", "1_000",
    "٣", "9" * 19, "9" * 40, "{}", "[]", '{"a":', '{"a": null}', "[null]", "0,1", "0,0", "-1,0", "0,1,", "0-3", "a=b",
    "2026-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "2026-01-01T00:00:00+99:99", "2026",
    "99999999h", "1h", "0s", "-5m", "1e9h", "1h1h", "100%", "-1%", "1e999%", "Exists", "In", "Gt", "zone", "rack",
    {"@string": [64, "a"]}, {"@string": [254, "a"]}, {"@string": [200_000, "a"]}, {"@digits-text": 400},
    {"@digits-text": 5000}, {"@nested-text": 200}, {"@nested-text": 3000}, {"@nested-text": 100_000},
)  # fmt: skip

QUANTITIES: tuple[Any, ...] = (
    0, 1, 2, 8, 9, 1.5, -1, "0", "1", "100m", "1n", "1u", "1k", "1Ki", "1.5Gi", "1e3", "1E", "1Ei", "16Ei", "8Ei", "-1",
    "+1", ".5", "5.", ".", "1e-9", "1e99", "1e999999999", "-1e999999999", "1e-999999999", "0x10", "NaN", "inf", "-", "",
    " 1", "1 ", "１", "1mi", "1KiB", "9" * 30, "9223372036854775807", "9223372036854775808", "9223372036854775",
    "4503599627370496", "2147483648", 2**31, 2**52, 2**53 + 1, 2**63 - 1, 2**63, 2**64, {"@digits": 5000}, 9000,
    {"@digits-text": 5000}, {"@raw": "1e400"}, {"@string": [100_000, "1"]},
)  # fmt: skip

TIMES = (
    "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z", "1970-01-01T00:00:00Z", "2025-12-31T23:00:00.123456Z",
    "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "99999-12-31T23:59:59Z", "2026-13-01T00:00:00Z",
    "2026-01-01T00:00:00+14:00", "2026-01-01", "now", "", "-1",
)  # fmt: skip

wrong: Values = st.sampled_from(WRONG)
numbers: Values = st.sampled_from(SMALL) | st.sampled_from(HUGE) | st.integers(-(2**65), 2**65)
texts: Values = st.sampled_from(TEXTS) | st.text(max_size=12)
quantities: Values = st.sampled_from(QUANTITIES) | st.from_regex(
    r"[+-]?[0-9]{0,3}(\.[0-9]{0,3})?(m|k|Ki|M|Gi|e[0-9]{1,3}|E)?", fullmatch=True
)
times: Values = st.sampled_from(TIMES)
floats: Values = st.sampled_from((0.0, 0.5, 1.0, -1.0, 1e308, 1e-308)) | st.sampled_from(HUGE)
json_values: Values = st.recursive(
    wrong,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(texts.filter(lambda t: isinstance(t, str)), inner, max_size=3)
    ),
    max_leaves=6,
)
