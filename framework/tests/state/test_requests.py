"""What a pod asks for, container by container, as kube-scheduler counts it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.errors import InvalidQuantity
from gangline.model import Container, ContainerStatus, PodCondition, PodSpec, PodStatus, ResourceRequirements, Resources
from gangline.state.requests import DEFAULT_MEMORY, DEFAULT_MILLI_CPU, MAX_REQUEST, allocatable, compute

MI = 2**20


def asking(cpu: str = "", memory: str = "", name: str = "", restart: str | None = None, **more: str) -> Container:
    requests: Resources = {k: v for k, v in {"cpu": cpu, "memory": memory, **more}.items() if v}
    return Container(name=name, resources=ResourceRequirements(requests=requests), restart_policy=restart)


def real(*containers: Container, init: tuple[Container, ...] = ()) -> dict[str, int]:
    return dict(compute(PodSpec(containers=list(containers), init_containers=list(init))).real)


def test_containers_add_up_and_bytes_are_rounded_once_at_the_end() -> None:
    assert real(asking("100m", "0.5"), asking("1.5", "0.5")) == {"cpu": 1600, "memory": 1}


def test_an_init_container_counts_only_where_it_is_larger_than_the_sum() -> None:
    assert real(asking("1", "1Mi"), asking("1", "1Mi"), init=(asking("3", "1Mi"),)) == {"cpu": 3000, "memory": 2 * MI}


def test_a_sidecar_adds_to_the_containers_and_to_the_init_containers_after_it() -> None:
    sidecar = asking("2", restart="Always")

    assert real(asking("1"), init=(asking("4"), sidecar)) == {"cpu": 4000}
    assert real(asking("1"), init=(sidecar, asking("4"))) == {"cpu": 6000}
    assert real(asking("5"), init=(sidecar, asking("4"))) == {"cpu": 7000}


@given(st.lists(st.integers(0, 9), max_size=4), st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=4))
def test_the_request_is_the_highest_need_at_any_moment_of_the_start(
    containers: list[int], init: list[tuple[int, bool]]
) -> None:
    needs, running = [0], 0
    for cpu, is_sidecar in init:
        needs.append(running + cpu)
        running += cpu if is_sidecar else 0
    needs.append(running + sum(containers))

    asked = real(
        *(asking(str(cpu)) for cpu in containers),
        init=tuple(asking(str(cpu), restart="Always" if is_sidecar else None) for cpu, is_sidecar in init),
    )

    assert asked.get("cpu", 0) == 1000 * max(needs)


def test_overhead_comes_on_top() -> None:
    spec = PodSpec(containers=[asking("1", "1Mi")], overhead={"cpu": "250m", "memory": "1Mi"})

    found = compute(spec)

    assert found.real == {"cpu": 1250, "memory": 2 * MI}
    assert found.nonzero == (1250, 2 * MI)


def test_a_limit_stands_in_for_a_request_that_is_missing() -> None:
    limits = ResourceRequirements(requests={"cpu": "1"}, limits={"cpu": "2", "memory": "1Mi", "nvidia.com/gpu": 4})

    assert real(Container(resources=limits)) == {"cpu": 1000, "memory": MI, "nvidia.com/gpu": 4}


def test_pod_level_resources_replace_the_sum_but_not_in_scores_nor_for_devices() -> None:
    whole = ResourceRequirements(requests={"cpu": "8", "memory": "1Gi", "nvidia.com/gpu": 9})
    spec = PodSpec(containers=[asking("1", "1Mi", **{"nvidia.com/gpu": "2"})], resources=whole)

    found = compute(spec)

    assert found.real == {"cpu": 8000, "memory": 1024 * MI, "nvidia.com/gpu": 2}
    assert found.nonzero == (8000, 1024 * MI)
    assert found.scoring == {"cpu": 1000, "memory": MI, "nvidia.com/gpu": 2}


def test_containers_that_name_nothing_count_for_something_in_scores_only() -> None:
    found = compute(PodSpec(containers=[Container(), asking("1"), asking(memory="1Mi")]))

    assert found.real == {"cpu": 1000, "memory": MI}
    assert found.nonzero == (1000 + 2 * DEFAULT_MILLI_CPU, MI + 2 * DEFAULT_MEMORY)
    assert found.scoring == {"cpu": found.nonzero[0], "memory": found.nonzero[1]}


def test_a_request_of_nothing_is_not_a_request() -> None:
    found = compute(PodSpec(containers=[asking("0", "0", **{"nvidia.com/gpu": "0"})]))

    assert found.real == {} and found.nonzero == (0, 0)


@pytest.mark.parametrize(
    ("spec", "allocated", "running", "infeasible", "cpu"),
    [
        ("1", "2", "1", False, 2000),
        ("3", "2", "1", False, 3000),
        ("3", "2", "1", True, 2000),
        ("1", "1", "4", False, 4000),
    ],
    ids=["shrinks", "grows", "cannot grow", "still runs with more"],
)
def test_a_resize_counts_the_most_of_what_was_asked_given_and_used(
    spec: str, allocated: str, running: str, infeasible: bool, cpu: int
) -> None:
    conditions = [PodCondition("PodResizePending", "True", reason="Infeasible")] if infeasible else []
    status = PodStatus(
        conditions=conditions,
        container_statuses=[
            ContainerStatus("main", {"cpu": allocated}, ResourceRequirements(requests={"cpu": running}))
        ],
    )

    assert compute(PodSpec(containers=[asking(spec, name="main")]), status).real == {"cpu": cpu}


def test_a_resize_of_the_whole_pod_counts_the_most_too() -> None:
    spec = PodSpec(containers=[asking("1")], resources=ResourceRequirements(requests={"cpu": "2"}))
    status = PodStatus(resources=ResourceRequirements(requests={"cpu": "3"}), allocated_resources={"cpu": "4"})

    assert compute(spec, status).real == {"cpu": 4000}


def test_a_huge_request_is_cut_so_that_sums_stay_within_64_bits() -> None:
    assert real(asking(memory="8E")) == {"memory": MAX_REQUEST}


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        (PodSpec(containers=[Container(), asking("x")]), "spec.containers[1].resources.requests[cpu]"),
        (PodSpec(init_containers=[asking("x")]), "spec.initContainers[0].resources.requests[cpu]"),
        (
            PodSpec(containers=[Container(resources=ResourceRequirements(limits={"memory": "x"}))]),
            "spec.containers[0].resources.limits[memory]",
        ),
        (PodSpec(overhead={"cpu": "x"}), "spec.overhead[cpu]"),
        (
            PodSpec(resources=ResourceRequirements(requests={"cpu": "x"})),
            "spec.resources.requests[cpu]",
        ),
    ],
    ids=["container", "init container", "limit", "overhead", "pod"],
)
def test_an_invalid_quantity_names_its_path(spec: PodSpec, path: str) -> None:
    with pytest.raises(InvalidQuantity) as error:
        compute(spec)

    assert str(error.value).startswith(f"{path}: 'x': not a quantity")


def test_a_negative_amount_is_refused() -> None:
    with pytest.raises(InvalidQuantity) as error:
        allocatable({"cpu": "-1"}, "status.allocatable")

    assert str(error.value) == "status.allocatable[cpu]: '-1': must not be negative"


def test_a_node_offers_milli_cpu_and_whole_units() -> None:
    offered = allocatable({"cpu": "1.5", "memory": "1Ki", "nvidia.com/gpu": 8}, "status.allocatable")

    assert offered == {"cpu": 1500, "memory": 1024, "nvidia.com/gpu": 8}
    assert allocatable(None, "status.allocatable") == {}


def test_a_limit_of_the_whole_pod_counts_only_where_no_container_asks() -> None:
    limits = ResourceRequirements(limits={"cpu": "8", "memory": "1Gi"})

    assert compute(PodSpec(containers=[asking("1")], resources=limits)).real == {"cpu": 1000, "memory": 1024 * MI}


@pytest.mark.parametrize(
    ("requests", "nonzero"),
    [
        ({"memory": "1Gi"}, (1000, 1024 * MI)),
        ({"cpu": "4"}, (4000, MI)),
        ({"cpu": "4", "memory": "1Gi"}, (4000, 1024 * MI)),
        ({"nvidia.com/gpu": "1"}, (1000 + DEFAULT_MILLI_CPU, MI + DEFAULT_MEMORY)),
    ],
    ids=["memory", "cpu", "both", "neither, for a pod has no devices of its own"],
)
def test_a_pod_with_requests_of_its_own_gets_a_default_only_for_what_nobody_names(
    requests: Resources, nonzero: tuple[int, int]
) -> None:
    spec = PodSpec(containers=[asking("1", "1Mi"), Container()], resources=ResourceRequirements(requests=requests))

    assert compute(spec).nonzero == nonzero


def test_a_default_stands_in_where_neither_the_pod_nor_a_container_names_a_resource() -> None:
    pod_level = ResourceRequirements(requests={"memory": "1Gi"})
    nothing = PodSpec(containers=[Container(), Container()], resources=pod_level)
    overhead = PodSpec(containers=[Container()], resources=pod_level, overhead={"cpu": "10m"})

    assert compute(nothing).nonzero == (2 * DEFAULT_MILLI_CPU, 1024 * MI)
    assert compute(overhead).nonzero == (10, 1024 * MI)


def test_what_the_kubelet_says_of_a_plain_init_container_does_not_count() -> None:
    status = PodStatus(
        init_container_statuses=[ContainerStatus("init", {"cpu": "8"}, ResourceRequirements(requests={"cpu": "8"}))]
    )
    plain = PodSpec(containers=[asking("1")], init_containers=[asking("2", name="init")])
    sidecar = PodSpec(containers=[asking("1")], init_containers=[asking("2", name="init", restart="Always")])

    assert compute(plain, status).real == {"cpu": 2000}
    assert compute(sidecar, status).real == {"cpu": 9000}


def test_a_resize_of_the_whole_pod_counts_for_what_the_pod_asks_for_and_for_nothing_else() -> None:
    spec = PodSpec(containers=[asking("1", "1Mi")], resources=ResourceRequirements(requests={"cpu": "2"}))
    status = PodStatus(
        conditions=[PodCondition("PodResizePending", "True", reason="Infeasible")],
        resources=ResourceRequirements(requests={"memory": "1Gi"}),
    )

    assert compute(spec, status).real == {"memory": MI}


def test_of_two_conditions_of_a_resize_the_first_counts() -> None:
    conditions = [PodCondition("PodResizePending", "True", reason=reason) for reason in ("Deferred", "Infeasible")]
    running = ContainerStatus("main", {"cpu": "1"}, ResourceRequirements(requests={"cpu": "1"}))

    found = compute(
        PodSpec(containers=[asking("2", name="main")]), PodStatus(conditions=conditions, container_statuses=[running])
    )

    assert found.real == {"cpu": 2000}


def test_like_nodes_offer_equal_amounts_and_each_may_change_its_own() -> None:
    offered: Resources = {"cpu": "8", "memory": "1Ki", "example.com/gpu": "4"}
    mine = allocatable(offered, "a")
    mine["cpu"] = 0

    assert allocatable({**offered}, "b") == {"cpu": 8000, "memory": 1024, "example.com/gpu": 4}


def test_equal_numbers_that_are_read_otherwise_are_not_mixed_up() -> None:
    whole, rounded = 2**55, float(2**55)  # as a text, the second one ends in 970, not in 968
    assert whole == rounded

    assert allocatable({"example.com/a": rounded}, "") != allocatable({"example.com/a": whole}, "")


def test_like_nodes_with_a_wrong_amount_are_refused_with_their_own_paths() -> None:
    for path in ("a", "b"):
        with pytest.raises(InvalidQuantity, match=rf"{path}\[memory\]"):
            allocatable({"cpu": "8", "memory": "-1"}, path)
