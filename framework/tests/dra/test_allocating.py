"""What claims get: one rule of the allocator in each test."""

from __future__ import annotations

import gc

import pytest

from gangline.dra import kept_cuts, solving
from gangline.errors import InvalidObject
from gangline.model.resource_slices import ResourceSlice

from .offers import GPU, allocated, ask, claim, device, exactly, names, offer

PAIR = [device("d0"), device("d1")]


def test_devices_are_given_in_the_order_of_slices_by_name() -> None:
    slices = [offer("b", [device("late")], slices=2), offer("a", [device("early")], slices=2)]

    assert names(ask(slices, [claim(exactly(2))])) == ["early", "late"]


def test_a_device_is_given_once() -> None:
    assert names(ask([offer("s", PAIR)], [claim(exactly()), claim(exactly())])) == ["d0", "d1"]
    assert names(ask([offer("s", PAIR)], [claim(exactly(2)), claim(exactly())])) is None
    assert names(ask([offer("s", PAIR)], [claim(exactly())], [allocated("d0")])) == ["d1"]


def test_admins_see_devices_that_others_have() -> None:
    pod = ask([offer("s", PAIR)], [claim(exactly(2, adminAccess=True))], [allocated("d0")])

    verdict = pod.on(0, "a")

    assert verdict.allocations is not None
    assert [(each.device, each.admin_access) for each in verdict.allocations[0].devices.results] == [
        ("d0", True),
        ("d1", True),
    ]


def test_what_an_admin_sees_is_still_free_for_others() -> None:
    assert names(ask([offer("s", PAIR)], [claim(exactly())], [allocated("d0", adminAccess=True)])) == ["d0"]


def test_the_first_alternative_that_is_available_is_taken_and_named() -> None:
    alternatives = {"firstAvailable": [{"name": "many", **exactly(3)}, {"name": "few", **exactly(2)}]}
    verdict = ask([offer("s", PAIR)], [claim(alternatives)]).on(0, "a")

    assert verdict.allocations is not None
    assert {each.request for each in verdict.allocations[0].devices.results} == {"r0/few"}


def test_all_devices_are_given_or_none() -> None:
    every = {"deviceClassName": "gpu", "allocationMode": "All"}

    assert names(ask([offer("s", PAIR)], [claim(every)])) == ["d0", "d1"]
    assert names(ask([offer("s", PAIR)], [claim(every)], [allocated("d1")])) is None
    assert names(ask([], [claim(every)])) is None


def test_all_devices_of_a_pool_that_is_being_updated_are_an_error_and_others_are_not() -> None:
    incomplete = offer("s", PAIR, slices=2)

    assert "being updated" in str(
        names(ask([incomplete], [claim({"deviceClassName": "gpu", "allocationMode": "All"})]))
    )
    assert names(ask([incomplete], [claim(exactly())])) is None


def test_the_newest_generation_counts() -> None:
    slices = [offer("old", [device("old")], generation=1), offer("new", [device("new")], generation=2)]

    assert names(ask(slices, [claim(exactly())])) == ["new"]


@pytest.mark.parametrize(
    "devices",
    [
        [device("d0"), device("d0")],
        [device("d0", consumesCounters=[{"counterSet": "unknown", "counters": {}}])],
    ],
    ids=["two devices of one name", "a counter set that there is not"],
)
def test_nothing_is_given_from_an_invalid_pool(devices: list[dict[str, object]]) -> None:
    assert names(ask([offer("s", devices)], [claim(exactly())])) is None


def test_pools_with_binding_conditions_come_last() -> None:
    bound = offer("s", [device("bound", bindingConditions=["ready"])], pool="a-pool")

    assert names(ask([bound, offer("t", [device("plain")])], [claim(exactly(2))])) == ["plain", "bound"]


@pytest.mark.parametrize(
    ("effect", "tolerations", "given"),
    [
        ("NoSchedule", [], None),
        ("NoExecute", [], None),
        ("None", [], ["d0"]),
        ("NoSchedule", [{"key": "k", "operator": "Exists"}], ["d0"]),
        ("NoSchedule", [{"operator": "Exists", "effect": "NoExecute"}], None),
        ("NoSchedule", [{"key": "k", "operator": "Equal", "value": "v"}], ["d0"]),
        ("NoSchedule", [{"key": "k", "value": "other"}], None),
    ],
)
def test_taints_keep_a_device_from_those_who_do_not_tolerate_them(
    effect: str, tolerations: list[dict[str, str]], given: list[str] | None
) -> None:
    tainted = device("d0", taints=[{"key": "k", "value": "v", "effect": effect}])

    assert names(ask([offer("s", [tainted])], [claim(exactly(tolerations=tolerations))])) == given


def test_one_value_is_found_for_all_devices_of_a_constraint() -> None:
    devices = [device(f"d{i}", attributes={"root": root}) for i, root in enumerate(["x", "y", "y", "z"])]
    same = [{"matchAttribute": f"{GPU}/root"}]

    assert names(ask([offer("s", devices)], [claim(exactly(2), constraints=same)])) == ["d1", "d2"]
    assert names(ask([offer("s", devices)], [claim(exactly(3), constraints=same)])) is None
    assert names(ask([offer("s", devices)], [claim(exactly(2))])) == ["d0", "d1"]


def test_devices_without_the_attribute_of_a_constraint_are_not_given() -> None:
    assert names(ask([offer("s", PAIR)], [claim(exactly(), constraints=[{"matchAttribute": f"{GPU}/root"}])])) is None


def test_requests_get_distinct_values() -> None:
    devices = [device(f"d{i}", attributes={"root": root}) for i, root in enumerate(["x", "x", "y"])]
    distinct = [{"distinctAttribute": f"{GPU}/root"}]

    assert names(ask([offer("s", devices)], [claim(exactly(), exactly(), constraints=distinct)])) == ["d0", "d2"]


def test_all_devices_that_break_a_constraint_are_an_error() -> None:
    devices = [device(f"d{i}", attributes={"root": root}) for i, root in enumerate("xy")]
    every = {"deviceClassName": "gpu", "allocationMode": "All"}

    answer = names(ask([offer("s", devices)], [claim(every, constraints=[{"matchAttribute": f"{GPU}/root"}])]))

    assert "because a claim constraint would not be satisfied" in str(answer)


def counted(name: str, amount: str) -> dict[str, object]:
    return device(name, consumesCounters=[{"counterSet": "c", "counters": {"memory": {"value": amount}}}])


def partitions(left: str, *amounts: str, driver: str = GPU) -> list[ResourceSlice]:
    devices = [counted(f"d{i}", amount) for i, amount in enumerate(amounts)]
    counters = [{"name": "c", "counters": {"memory": {"value": left}}}]
    return [
        offer(f"{driver}-counters", [], slices=2, sharedCounters=counters, driver=driver),
        offer(f"{driver}-devices", devices, slices=2, driver=driver),
    ]


def test_partitions_consume_the_counters_of_their_pool() -> None:
    slices = partitions("80Gi", "40Gi", "80Gi", "20Gi", "20Gi")

    assert names(ask(slices, [claim(exactly(3))])) == ["d0", "d2", "d3"]
    assert names(ask(slices, [claim(exactly(2))], [allocated("d0")])) == ["d2", "d3"]
    assert names(ask(slices, [claim(exactly())], [allocated("d1")])) is None


def test_pools_of_two_drivers_with_one_name_have_counters_of_their_own() -> None:
    slices = [*partitions("1", "1"), *partitions("1", "1", driver="nic.example.com")]

    pod = ask(slices, [claim(exactly(2, "any"))])

    assert names(pod) == ["d0", "d0"]


def test_shares_of_a_device_are_given_until_its_capacity_is_consumed() -> None:
    shared = device("d0", allowMultipleAllocations=True, capacity={"memory": {"value": "80Gi"}})
    some = exactly(capacity={"requests": {"memory": "30Gi"}})

    verdict = ask([offer("s", [shared])], [claim(some), claim(some)]).on(0, "a")

    assert verdict.allocations is not None
    results = [result for each in verdict.allocations for result in each.devices.results]
    assert [(each.device, each.share_id, each.consumed_capacity) for each in results] == [
        ("d0", "share", {"memory": "30Gi"})
    ] * 2
    assert names(ask([offer("s", [shared])], [claim(some)] * 3)) is None


def test_shares_that_claims_have_already_leave_the_rest() -> None:
    shared = device("d0", allowMultipleAllocations=True, capacity={"memory": {"value": "80Gi"}})
    some = exactly(capacity={"requests": {"memory": "30Gi"}})
    taken = [allocated("d0", shareID="x", consumedCapacity={"memory": "40Gi"})]

    assert names(ask([offer("s", [shared])], [claim(some)], taken)) == ["d0"]
    assert names(ask([offer("s", [shared])], [claim(some)] * 2, taken)) is None


def test_a_failing_selector_is_an_error_only_if_the_search_comes_upon_the_device() -> None:
    devices = [device("good", attributes={"model": "x"}), device("bad")]
    selectors = [{"cel": {"expression": "model=x"}}]

    assert names(ask([offer("s", devices)], [claim(exactly(1, selectors=selectors))])) == ["good"]
    assert "no such key" in str(names(ask([offer("s", devices)], [claim(exactly(2, selectors=selectors))])))
    assert "no such key" in str(names(ask([offer("s", devices[::-1])], [claim(exactly(1, selectors=selectors))])))


def test_a_failing_selector_of_a_request_for_all_devices_is_told_in_the_words_of_kube_scheduler() -> None:
    selectors = [{"cel": {"expression": "model=x"}}]
    everything = {"deviceClassName": "gpu", "allocationMode": "All", "selectors": selectors}

    verdict = ask([offer("s", [device("d")])], [claim(everything)]).on(0, "a")

    assert verdict.error == "claim default/c: selector #0: CEL runtime error: no such key: model"


def test_an_expression_that_does_not_compile_is_an_error() -> None:
    selectors = [{"cel": {"expression": "nonsense"}}]

    assert "no expression" in str(names(ask([offer("s", PAIR)], [claim(exactly(1, selectors=selectors))])))


def test_more_devices_than_a_claim_may_have_are_an_error() -> None:
    assert "claim default/c: number of requested devices 33 exceeds the claim limit of 32" in str(
        names(ask([offer("s", PAIR)], [claim(exactly(20), exactly(13))]))
    )


def test_devices_of_the_network_are_for_the_nodes_of_their_selector() -> None:
    zone = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b", "c"]}]}]}
    pod = ask([offer("s", PAIR, nodeSelector=zone)], [claim(exactly())], nodes="abc")

    assert [names(pod, row) for row in range(3)] == [None, ["d0"], ["d0"]]
    verdict = pod.on(1, "b")
    assert verdict.allocations is not None and verdict.allocations[0].node_selector is not None
    (term,) = verdict.allocations[0].node_selector.node_selector_terms
    assert [each.values for each in term.match_expressions] == [["b", "c"]]


def test_devices_may_select_nodes_one_by_one() -> None:
    devices = [device("of-a", nodeName="a"), device("of-b", nodeName="b"), device("of-all", allNodes=True)]
    pod = ask([offer("s", devices, perDeviceNodeSelection=True)], [claim(exactly(2))], nodes="ab")

    assert [names(pod, row) for row in range(2)] == [["of-a", "of-all"], ["of-b", "of-all"]]


def test_a_device_of_one_node_binds_the_claim_to_the_node() -> None:
    verdict = ask([offer("s", PAIR)], [claim(exactly())]).on(0, "a")

    assert verdict.allocations is not None and verdict.allocations[0].node_selector is not None
    (term,) = verdict.allocations[0].node_selector.node_selector_terms
    assert [(each.key, each.values) for each in term.match_fields] == [("metadata.name", ["a"])]


def test_configuration_of_a_class_comes_once_and_that_of_the_claim_for_each_request_it_names() -> None:
    both = [{"requests": ["r0", "r1"], "opaque": {"driver": GPU, "parameters": 1}}]
    pod = ask([offer("s", PAIR)], [claim(exactly(1, "configured"), exactly(1, "configured"), config=both)])

    verdict = pod.on(0, "a")

    assert verdict.allocations is not None
    config = verdict.allocations[0].devices.config
    assert [(each.source, each.requests) for each in config] == [
        ("FromClass", ["r0", "r1"]),
        ("FromClaim", ["r0", "r1"]),
        ("FromClaim", ["r0", "r1"]),
    ]


@pytest.mark.parametrize(
    "request_",
    [
        exactly(1, "unknown"),
        {**exactly(), "allocationMode": "Some"},
        exactly(capacity={"requests": {"memory": "many"}}),
        exactly(selectors=[{}]),
        exactly(selectors=[{"cel": {"expression": "driver=x"}}] * 33),
    ],
    ids=["class", "mode", "quantity", "selector", "selectors"],
)
def test_claims_that_cannot_be_read_are_refused(request_: dict[str, object]) -> None:
    with pytest.raises(InvalidObject):
        ask([offer("s", PAIR)], [claim(request_)])


def test_a_slice_that_cannot_be_read_harms_its_own_pool_only() -> None:
    capacity = {"memory": {"value": "1", "requestPolicy": {"default": "1", "validValues": ["much"]}}}
    broken = [offer("r", [device("d0", capacity={"memory": {"value": "much"}})], pool="other")]
    broken.append(offer("s", [device("d0", capacity=capacity)], pool="another"))

    assert names(ask([*broken, offer("t", [device("d1")])], [claim(exactly())])) == ["d1"]


def test_a_share_of_which_it_cannot_be_read_what_it_consumes_takes_the_device() -> None:
    shared = device("d0", allowMultipleAllocations=True, capacity={"memory": {"value": "80Gi"}})
    some = exactly(capacity={"requests": {"memory": "1Gi"}})

    assert (
        names(
            ask([offer("s", [shared])], [claim(some)], [allocated("d0", shareID="x", consumedCapacity={"memory": "?"})])
        )
        is None
    )


def shapes() -> int:
    gc.collect()
    return sum(isinstance(each, solving.ProblemShape) for each in gc.get_objects())


def test_the_shapes_of_nodes_are_forgotten_with_their_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_cuts, "_MOST_CUT_BYTES", 0)
    monkeypatch.setattr(solving, "_MOST_BYTES", 0)
    slices = [
        offer(node, [device(f"d{number}") for number in range(count)], pool=node, nodeName=node)
        for count, node in enumerate("abcdef", 1)
    ]
    before = shapes()
    pod = ask(slices, [claim(exactly())], nodes="abcdef")

    assert [names(pod, row) for row in range(6)] == [["d0"]] * 6
    assert shapes() - before <= 2
