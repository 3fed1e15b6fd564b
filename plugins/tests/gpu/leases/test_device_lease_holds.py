"""What leases are called and say, who may share a device, and when a hold is over."""

from __future__ import annotations

from typing import Any

import pytest

from gangline import custom_resources, model
from gangline.testing import make_pod
from gangline_plugins.gpu.allocation import Allocation
from gangline_plugins.gpu.leases.holds import (
    DEVICES,
    HOLDERS,
    Hold,
    holder_for,
    holders_of,
    in_the_way,
    is_over,
    lease_of,
    node_of,
    parts_of,
)
from gangline_plugins.gpu.leases.names import device_of, label_value, lease_labels, lease_name

NOW = "2026-01-01T00:00:00.000000Z"
LONG = "gpu-worker." * 22  # 242 characters


def hold(*ids: int, by: str = "one.1", **fields: Any) -> Hold:
    return Hold(**{"pod": "ns/p", "by": by, "ids": ids, **fields})


@pytest.mark.parametrize(
    ("before", "now", "is_older"),
    [
        ("ns/us/9", "ns/us/10", True),
        ("ns/us/10", "ns/us/10", False),
        ("ns/us/11", "ns/us/10", False),
        ("ns/them/9", "ns/us/10", False),
        ("", "ns/us/10", False),
        ("ns/us/9", "", False),
        ("", "", False),
        ("ns/us/nine", "ns/us/10", False),
        ("ns/us/-9", "ns/us/10", False),
        ("ns/us/" + "0" * 5000, "ns/us/10", False),
    ],
)
def test_only_former_leaders_of_the_same_election_are_known_to_have_ended(
    before: str, now: str, is_older: bool
) -> None:
    assert hold(0, term=before).is_older_than(now) is is_older


# Names


def test_a_lease_is_called_by_node_and_device() -> None:
    assert lease_name("node-a", 3) == "gpu-node-a-3" and lease_name("node-a") == "gpu-node-a"
    assert device_of("gpu-node-a-3") == ("node-a", 3)
    assert device_of("gpu-node-a") is None and device_of("gpu-3") is None


def test_names_of_long_nodes_fit_and_differ() -> None:
    nodes = [LONG + "a.example", LONG + "b.example"]
    names = [lease_name(node, id) for node in nodes for id in (0, 15)]

    assert len(set(names)) == 4
    assert all(len(name) <= 253 and ".-" not in name for name in names)
    assert names[0].startswith("gpu-gpu-worker.gpu-worker")


def test_a_name_of_exactly_the_longest_length_is_kept() -> None:
    assert lease_name("n" * 247, 1) == f"gpu-{'n' * 247}-1"
    assert lease_name("n" * 248, 1) != f"gpu-{'n' * 248}-1"


def test_label_values_that_are_too_long_become_a_hash() -> None:
    labels = lease_labels("n" * 64, f"{'s' * 63}/{'p' * 64}")

    assert all(len(value) <= 63 for value in labels.values())
    assert labels[custom_resources.LEASE_POD_NAMESPACE] == "s" * 63 and labels[custom_resources.MANAGED] == "true"
    assert labels[custom_resources.LEASE_POD] == label_value("p" * 64) != label_value("p" * 65)


# Leases


def test_a_lease_that_is_written_is_read_as_it_was() -> None:
    holders = {"uid": hold(0, kind="Shared", milli=(400,), memory=(1024,)), "other": hold(0, by="two.1", adopted=True)}

    lease = lease_of("gpu-n-0", "locks", "n", holders, NOW)

    assert holders_of(lease) == holders and node_of(lease) == "n"
    assert lease.spec.holder_identity == "uid"


def test_the_lease_of_a_node_shows_which_pod_has_which_device() -> None:
    lease = lease_of("gpu-n", "locks", "n", {"a": hold(0, 2), "b": hold(1), "a/two.1": hold(2, by="two.1")}, NOW)

    assert (lease.metadata.annotations or {})[DEVICES] == '{"0":"a","1":"b","2":"a"}'
    assert lease.spec.holder_identity is None
    assert custom_resources.LEASE_POD not in (lease.metadata.labels or {})


@pytest.mark.parametrize("annotations", [None, {HOLDERS: "not json"}], ids=["by hand", "broken"])
def test_a_lease_without_readable_holders_is_held_by_its_identity(annotations: dict[str, str] | None) -> None:
    labels = {custom_resources.MANAGED: "true", custom_resources.LEASE_POD: "train", custom_resources.LEASE_NODE: "n"}
    metadata = model.ObjectMeta(name="gpu-n-4", namespace="team", labels=labels, annotations=annotations)
    lease = model.Lease(metadata=metadata, spec=model.LeaseSpec(holder_identity="uid"))

    assert holders_of(lease) == {"uid": Hold(pod="team/train", by="", ids=(4,))}
    assert node_of(lease) == "n"


def test_a_pod_takes_a_lease_per_device_in_the_order_of_their_names() -> None:
    allocation = Allocation(0, (2, 10), ("u2", "u10"), "Shared", milli=(100, 200), memory_mib=(1, 2))

    parts = parts_of(allocation, "n", "uid", "ns/p", "one.1", whole_node=False)

    assert [(p.lease, p.hold.ids, p.hold.milli, p.hold.memory) for p in parts] == [
        ("gpu-n-10", (10,), (200,), (2,)),
        ("gpu-n-2", (2,), (100,), (1,)),
    ]


def test_a_pod_takes_one_lease_of_the_node() -> None:
    [part] = parts_of(Allocation(0, (0, 1), ("m1", "m2"), "MIG"), "n", "uid", "ns/p", "one.1", whole_node=True)

    assert (part.lease, part.hold.ids, part.hold.instances) == ("gpu-n", (0, 1), ("m1", "m2"))


# Sharing

SHARED = {"kind": "Shared", "milli": (600,)}
MEMORY = {"kind": "Shared", "memory": (6000,)}


@pytest.mark.parametrize(
    ("new", "old", "clash"),
    [
        pytest.param({}, {}, True, id="exclusive twice"),
        pytest.param({}, {"kind": "Explicit"}, True, id="exclusive where a map is"),
        pytest.param({"kind": "Explicit"}, {}, True, id="a map where exclusive is"),
        pytest.param({"kind": "Explicit"}, SHARED, True, id="a map where shared is"),
        pytest.param({"kind": "Explicit"}, {"kind": "Explicit"}, False, id="maps of one namespace"),
        pytest.param({"kind": "Explicit"}, {"kind": "Explicit", "pod": "else/p"}, True, id="maps of two namespaces"),
        pytest.param(SHARED, {}, True, id="shared where exclusive is"),
        pytest.param(SHARED, SHARED, True, id="more than a device"),
        pytest.param(SHARED, {"kind": "Replicas", "milli": (400,)}, False, id="just a device"),
        pytest.param(MEMORY, {"kind": "Shared", "memory": (2000,)}, False, id="just its memory"),
        pytest.param(MEMORY, {"kind": "Shared", "memory": (2001,)}, True, id="more than its memory"),
        pytest.param({"kind": "MIG", "instances": ("a",)}, {"kind": "MIG", "instances": ("b",)}, False, id="instances"),
        pytest.param({"kind": "MIG", "instances": ("a",)}, {"kind": "MIG", "instances": ("a",)}, True, id="instance"),
        pytest.param({"kind": "MIG", "instances": ("a",)}, SHARED, True, id="instance of a shared device"),
    ],
)
def test_who_may_be_on_a_device_together(new: dict[str, Any], old: dict[str, Any], clash: bool) -> None:
    found = in_the_way("uid", hold(0, **new), {"other": hold(0, **old)}, [8000])

    assert found == (["other"] if clash else [])


def test_other_devices_and_the_pods_own_holds_are_not_in_the_way() -> None:
    holders = {"other": hold(1), "uid": hold(0, by="two.1"), "uid/three.1": hold(0, by="three.1")}

    assert in_the_way("uid", hold(0), holders, [0, 0]) == []


@pytest.mark.parametrize(
    ("old", "place"),
    [
        pytest.param(hold(0, by="two.1"), "uid", id="same devices"),
        pytest.param(hold(5, by="one.0"), "uid", id="earlier attempt of the same scheduler"),
        pytest.param(hold(5, by="two.1"), "uid/one.1", id="another scheduler's devices"),
        pytest.param(hold(5, by="one.0", adopted=True), "uid/one.1", id="devices adopted from another"),
    ],
)
def test_where_a_second_hold_of_a_pod_goes(old: Hold, place: str) -> None:
    assert holder_for("uid", hold(0), {"uid": old}) == place


# Two schedulers rely on one hold


def test_a_scheduler_writes_over_its_own_holds_and_those_of_former_leaders() -> None:
    ours, former = hold(0, by="one.1"), hold(0, by="two.1", term="ns/us/1")
    new = hold(0, by="one.2", term="ns/us/2")

    assert new.after(ours) == new.after(former) == new


def test_an_adopted_hold_is_left_as_its_owner_wrote_it() -> None:
    owners = hold(0, by="two.1", term="ns/us/3")

    adopted = hold(0, by="one.1", term="ns/us/0").after(owners)
    again = hold(0, by="one.2", term="ns/us/0").after(adopted)

    assert adopted.adopted and again.by == "one.2"
    assert again.without("one.1") == again
    assert again.without("one.2") == owners


def test_the_owner_of_an_adopted_hold_leaves_it_to_the_other() -> None:
    adopted = hold(0, by="one.1").after(hold(0, by="two.1"))

    left = adopted.without("two.1")

    assert left == hold(0, by="one.1")
    assert hold(0, by="one.1").without("one.1") is None


def test_an_owner_that_tries_again_is_the_one_who_adopts() -> None:
    adopted = hold(0, by="one.1").after(hold(0, by="two.1"))

    again = hold(0, by="two.2").after(adopted)

    assert again.without("two.2") == hold(0, by="one.1")
    assert again.without("one.1") == hold(0, by="two.2")


def test_a_hold_that_several_have_adopted_is_left_to_the_reaper() -> None:
    several = hold(0, by="three.1").after(hold(0, by="one.1").after(hold(0, by="two.1")))

    assert several.without("three.1") == several.without("two.1") == several


# Ends


def pod_with(node: str = "", ids: str | None = None, phase: str = "", uid: str = "uid") -> model.Pod:
    pod = make_pod("p", namespace="ns", node=node, annotations={} if ids is None else {custom_resources.ALLOCATED: ids})
    pod.metadata.uid, pod.status.phase = uid, phase
    return pod


@pytest.mark.parametrize(
    ("pod", "over"),
    [
        pytest.param(None, True, id="gone"),
        pytest.param(pod_with(uid="new"), True, id="made anew"),
        pytest.param(pod_with("n", "0,1", "Succeeded"), True, id="succeeded"),
        pytest.param(pod_with("n", "0,1", "Failed"), True, id="failed"),
        pytest.param(pod_with(), False, id="waits"),
        pytest.param(pod_with("n", "0,1", "Running"), False, id="runs"),
        pytest.param(pod_with("n"), False, id="runs without saying on what"),
        pytest.param(pod_with("n", "2,3"), True, id="on other devices"),
        pytest.param(pod_with("m", "0,1"), True, id="on another node"),
    ],
)
def test_when_a_hold_is_over(pod: model.Pod | None, over: bool) -> None:
    assert is_over(hold(0, 1), "uid", "n", pod, {0, 1, 2, 3}) is over


def test_a_hold_is_not_over_because_of_an_annotation_that_no_lease_goes_with() -> None:
    assert not is_over(hold(0, 1), "uid", "n", pod_with("n", "2,3"), {0, 1, 2})


def test_a_hold_that_does_not_name_its_pod_is_never_over() -> None:
    assert not is_over(Hold(pod="ns/", by="", ids=(0,)), "uid", "n", None, ())
