"""What goes past the bounds is refused with its place; what does not passes, whatever it is."""

from __future__ import annotations

import typing

import msgspec
import pytest

from gangline import InvalidObject, bounds, model
from gangline.testing import make_node, make_pod
from gangline.wire.custom_resources import Fabric, GpuNodeStatus, GpuNodeStatusStatus, Hca


def pod_with(**spec: object) -> model.Pod:
    pod = make_pod("p")
    for name, value in spec.items():
        setattr(pod.spec, name, value)
    return pod


def test_objects_of_usual_size_pass() -> None:
    bounds.check(make_pod("p", cpu=1, gpus=8, labels={"a": "b"}), bounds.MOST_IN_SPEC)
    bounds.check(make_node("n", gpus=8, labels={f"l{i}": "x" for i in range(200)}))


@pytest.mark.parametrize(
    ("pod", "place"),
    [
        (pod_with(node_selector={f"k{i}": "v" for i in range(257)}), "spec.nodeSelector"),
        (pod_with(containers=[model.Container() for _ in range(257)]), "spec.containers"),
        (pod_with(tolerations=[model.Toleration(key=str(i)) for i in range(257)]), "spec.tolerations"),
        (pod_with(containers=[model.Container(ports=[model.ContainerPort()] * 257)]), "spec.containers.ports"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_too_many_entries_are_named(pod: model.Pod, place: str) -> None:
    with pytest.raises(InvalidObject, match=rf"^{place}: 257 entries, and at most 256 are read"):
        bounds.check(pod, bounds.MOST_IN_SPEC)


def test_many_values_of_one_selector_are_read() -> None:
    values = [f"node-{i}" for i in range(4000)]
    wanted = model.Requirement(key="kubernetes.io/hostname", operator="In", values=values)

    bounds.check(model.NodeSelectorTerm(match_expressions=[wanted]), bounds.MOST_IN_SPEC)


def test_entries_count_together() -> None:
    containers = [
        model.Container(resources=model.ResourceRequirements(requests={f"r{i}": "1" for i in range(200)}))
        for _ in range(200)
    ]

    with pytest.raises(InvalidObject, match="more than 16384 entries in all"):
        bounds.check(pod_with(containers=containers), bounds.MOST_IN_SPEC)


def test_integers_have_64_bits() -> None:
    status = GpuNodeStatus(
        metadata=model.ObjectMeta(name="n"),
        status=GpuNodeStatusStatus(fabric=Fabric(hcas=[Hca(name="mlx5_0", ports=10**30)])),
    )

    with pytest.raises(InvalidObject, match=r"status\.fabric\.hcas\.ports: an integer of more than 64 bits"):
        bounds.check(status)


LARGE = {list: ["x"] * 5000, dict: {str(i): "x" for i in range(5000)}, int: 2**63}
STRUCTS = [struct for struct in vars(model).values() if isinstance(struct, type) and issubclass(struct, msgspec.Struct)]


@pytest.mark.parametrize("struct", STRUCTS)
def test_no_field_that_may_hold_much_is_passed_over(struct: type[msgspec.Struct]) -> None:
    for field in msgspec.structs.fields(struct):
        for kind, large in LARGE.items():
            if kind in (typing.get_origin(each) or each for each in bounds._alternatives(field.type)):
                with pytest.raises(InvalidObject):
                    bounds.check(holding(struct, field.name, large))


def holding(struct: type[msgspec.Struct], name: str, value: object) -> msgspec.Struct:
    """An object of which one field holds a value, and the others nothing."""
    nothing = {field.name: None for field in msgspec.structs.fields(struct)}
    return struct(**{**nothing, name: value})


@pytest.mark.parametrize(
    "entries",
    [list[str], dict[str, str], dict[str, str | int], list[str] | None, list[model.Taint], dict[str, model.Taint]],
)
def test_entries_that_are_small_by_their_type_are_not_looked_at(entries: object) -> None:
    assert not any(map(bounds._holds_large, bounds._alternatives(entries)))


@pytest.mark.parametrize(
    "entries", [list[int], list[model.Toleration], dict[str, model.Container] | None, typing.Any, list]
)
def test_all_others_are(entries: object) -> None:
    assert any(map(bounds._holds_large, bounds._alternatives(entries)))
