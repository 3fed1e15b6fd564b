"""The annotation gpu-scheduling-map, line by line, and the index of a pod."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.model import ObjectMeta, OwnerReference
from gangline.wire.scheduling_map import MOST_FAULTS, MapEntry, parse, pod_index

COMPLETION = "batch.kubernetes.io/job-completion-index"
STATEFUL = "apps.kubernetes.io/pod-index"


def test_the_canonical_map_says_where_each_of_five_pods_goes() -> None:
    found = parse("0=node1:0,1\n1=node2:2\n2=node3:0,1,2\n3=node4:3\n4=node4:3\n")

    assert found.faults == ()
    assert found.entries == {
        0: MapEntry("node1", "0,1"),
        1: MapEntry("node2", "2"),
        2: MapEntry("node3", "0,1,2"),
        3: MapEntry("node4", "3"),
        4: MapEntry("node4", "3"),
    }


@pytest.mark.parametrize(
    ("line", "entry"),
    [
        pytest.param("  0 = node1 : 0,1  ", MapEntry("node1", "0,1"), id="white space around every part"),
        pytest.param("0=node1:0,1\r", MapEntry("node1", "0,1"), id="a line of DOS"),
        pytest.param("0=node1:", MapEntry("node1", ""), id="no devices"),
        pytest.param("0=node1:GPU-a=b:c", MapEntry("node1", "GPU-a=b:c"), id="only the first separators count"),
        pytest.param("+0=node1:all", MapEntry("node1", "all"), id="devices are not read"),
    ],
)
def test_a_line_is_read_leniently(line: str, entry: MapEntry) -> None:
    assert parse(line).entries == {0: entry}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("one=node1:0", "the index 'one' is not an integer"),
        ("1.5=node1:0", "the index '1.5' is not an integer"),
        ("1_0=node1:0", "the index '1_0' is not an integer"),
        ("=node1:0", "the index '' is not an integer"),
        ("9" * 5000 + "=node1:0", "is not an integer"),
        ("node1:0", "there is no '=' after the index"),
        ("1=node1", "there is no ':' between the node and its devices"),
        ("1=:0", "it names no node"),
    ],
    ids=lambda value: value[:20],
)
def test_a_bad_line_is_reported_and_the_lines_around_it_count(line: str, why: str) -> None:
    found = parse(f"0=a:0\n\n{line}\n2=c:2")

    assert found.entries == {0: MapEntry("a", "0"), 2: MapEntry("c", "2")}
    assert [fault.number for fault in found.faults] == [3]
    assert why in str(found.faults[0])


def test_of_two_lines_for_one_index_the_last_counts() -> None:
    assert parse("3=a:0\n3=b:1").entries == {3: MapEntry("b", "1")}


def test_negative_indices_are_kept_apart() -> None:
    assert parse("-1=a:0\n1=b:1").entries == {-1: MapEntry("a", "0"), 1: MapEntry("b", "1")}


@pytest.mark.parametrize("text", ["", "\n", "  \n\t\n"], ids=["empty", "one line", "white space"])
def test_a_blank_map_is_empty_and_nothing_is_wrong_with_it(text: str) -> None:
    found = parse(text)

    assert (found.entries, found.faults) == ({}, ())


@given(st.text())
def test_any_text_is_read_and_every_line_is_an_entry_a_fault_or_blank(text: str) -> None:
    found = parse(text)

    lines = [line for line in text.split("\n") if line.strip()]
    assert len(found.entries) + found.skipped <= len(lines)
    assert bool(found.entries or found.faults) == bool(lines)


def test_of_many_bad_lines_the_first_are_kept_and_all_are_counted() -> None:
    found = parse("bad\n" * 50_000 + "7=a:0")

    assert found.entries == {7: MapEntry("a", "0")}
    assert [fault.number for fault in found.faults] == list(range(1, MOST_FAULTS + 1))
    assert found.skipped == 50_000


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("my-app-0", 0),
        ("test-pod-42", 42),
        ("service-deployment-123", 123),
        ("my-app-abc", None),
        ("test-pod-", None),
        ("pod7", None),
        ("", None),
        ("a-1_0", None),
    ],
)
def test_the_index_is_the_integer_after_the_last_dash(name: str, index: int | None) -> None:
    assert pod_index(ObjectMeta(name=name)) == index


def test_the_index_is_what_follows_the_generated_prefix() -> None:
    assert pod_index(ObjectMeta(name="rank7", generate_name="rank")) == 7


@pytest.mark.parametrize("key", [COMPLETION, STATEFUL])
def test_a_label_or_an_annotation_counts_more_than_the_name(key: str) -> None:
    assert pod_index(ObjectMeta(name="web-5", labels={key: "2"})) == 2
    assert pod_index(ObjectMeta(name="web-5", annotations={key: "3"})) == 3


def test_a_label_that_is_no_number_is_passed_over() -> None:
    assert pod_index(ObjectMeta(name="web-5", labels={COMPLETION: "x", STATEFUL: "2"})) == 2
    assert pod_index(ObjectMeta(name="web-5", labels={COMPLETION: ""})) == 5


def test_a_pod_without_a_name_has_the_index_of_its_label_or_none_yet() -> None:
    assert pod_index(ObjectMeta(generate_name="train-", labels={COMPLETION: "4"})) == 4
    assert pod_index(ObjectMeta(generate_name="train-3-")) is None


@pytest.mark.parametrize(("kind", "index"), [("ReplicaSet", None), ("Job", None), ("StatefulSet", 24765)])
def test_random_characters_at_the_end_of_a_name_are_no_index(kind: str, index: int | None) -> None:
    owner = OwnerReference(kind=kind, name="web-5d4f", controller=True)

    assert pod_index(ObjectMeta(name="web-5d4f-24765", owner_references=[owner])) == index
