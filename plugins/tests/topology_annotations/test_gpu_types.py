"""Types of GPUs: what domains list and labels say, and where the pods go that name one."""

from __future__ import annotations

import pytest

from gangline import model, resources
from gangline.testing import make_node, make_pod
from gangline_plugins.gpu.leases.plugin import own_namespace
from gangline_plugins.leaf_spine.documents import Domain
from gangline_plugins.topology_annotations.gpu_types import is_same

from .annotation_cases import LEAF, SPINE, Bench

PRODUCT = "nvidia.com/gpu.product"
GPU_TYPE = "topology.scheduler/gpu-type"
NOT_OFFERED = ("node(s) were in domains that do not offer the GPU type that the pod names",)
OTHER, UNKNOWN = ("node(s) had another GPU type than the pod names",), ("node(s) had no known GPU type",)
H100, A100 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-80GB"


def node(name: str, leaf: str, product: str = "", spine: str = "spine-0") -> model.Node:
    return make_node(name, labels={SPINE: spine, LEAF: leaf, **({PRODUCT: product} if product else {})})


def offering(name: str, *types: str) -> Domain:
    return Domain(name=name, type="spine" if name.startswith("spine") else "leaf", gpu_types=list(types))


def naming(types: str) -> model.Pod:
    return make_pod(f"p-{len(types)}", gpus=1, annotations={GPU_TYPE: types})


def test_a_pod_that_names_a_type_goes_to_the_domains_that_offer_it() -> None:
    domains = [offering("leaf-0", "H100"), offering("leaf-1", "A100", "L40S")]
    bench = Bench([node("a", "leaf-0"), node("b", "leaf-1"), node("c", "leaf-2")], (), *domains)

    assert bench.verdicts(naming("H100")) == {"a": (), "b": NOT_OFFERED, "c": UNKNOWN}
    assert bench.verdicts(naming("l40s")) == {"a": NOT_OFFERED, "b": (), "c": UNKNOWN}
    assert bench.verdicts(naming("H100, L40S")) == {"a": (), "b": (), "c": UNKNOWN}
    assert set(bench.verdicts(make_pod("q", gpus=1)).values()) == {()}


def test_the_narrowest_domain_that_lists_types_counts() -> None:
    domains = [offering("spine-0", "A100"), offering("leaf-1", "H100")]
    bench = Bench([node("a", "leaf-0"), node("b", "leaf-1")], (), *domains)

    assert bench.verdicts(naming("H100")) == {"a": NOT_OFFERED, "b": ()}
    assert bench.verdicts(naming("A100")) == {"a": (), "b": NOT_OFFERED}


def test_the_label_of_a_node_tells_types_of_one_domain_apart_and_counts_without_any_domain() -> None:
    nodes = (node("a", "leaf-0", H100), node("b", "leaf-0", A100), node("c", "leaf-1", f"{H100}-SHARED"))

    mixed = Bench(nodes, (), offering("leaf-0", "H100", "A100"), offering("leaf-1", "A100"))
    plain = Bench(nodes)

    assert mixed.verdicts(naming("H100")) == {"a": (), "b": OTHER, "c": NOT_OFFERED}
    assert plain.verdicts(naming("H100")) == {"a": (), "b": OTHER, "c": ()}


def test_a_pod_that_selects_a_product_goes_to_the_domains_that_offer_it_only() -> None:
    nodes = (node("a", "leaf-0", H100), node("b", "leaf-1", H100), node("c", "leaf-2", H100))
    bench = Bench(nodes, (), offering("leaf-0", "H100"), offering("leaf-1", "A100"))
    by_selector, by_affinity = make_pod("p", gpus=1), make_pod("q", gpus=1)
    by_selector.spec.node_selector = {PRODUCT: H100}
    term = model.NodeSelectorTerm(match_expressions=[model.Requirement(PRODUCT, "In", [H100])])
    required = model.NodeSelector([term])
    by_affinity.spec.affinity = model.Affinity(node_affinity=model.NodeAffinity(required=required))

    expected: dict[str, tuple[str, ...]] = {"a": (), "b": NOT_OFFERED, "c": ()}
    assert (bench.verdicts(by_selector), bench.verdicts(by_affinity)) == (expected, expected)


def test_an_affinity_that_leaves_the_type_open_names_none() -> None:
    bench = Bench([node("a", "leaf-0")], (), offering("leaf-0", "A100"))
    pod = make_pod("p", gpus=1)
    named = model.NodeSelectorTerm(match_expressions=[model.Requirement(PRODUCT, "In", [H100])])
    other = model.NodeSelectorTerm(match_expressions=[model.Requirement(LEAF, "Exists")])
    pod.spec.affinity = model.Affinity(node_affinity=model.NodeAffinity(required=model.NodeSelector([named, other])))

    assert bench.verdicts(pod) == {"a": ()}


def test_a_type_that_nobody_has_is_told_with_those_that_there_are() -> None:
    bench = Bench([node("a", "leaf-0"), node("b", "leaf-1", A100)], (), offering("leaf-0", "H100", "L40S"))

    said = bench.message(naming("H900"))

    assert f"no node or domain has GPUs of type H900: there are H100, L40S, {A100}" in said
    assert "nothing says which types there are" in Bench([make_node("a")]).message(naming("H900"))


def test_types_follow_what_is_configured_and_what_nodes_are_labelled() -> None:
    bench = Bench([node("a", "leaf-0")], (), offering("leaf-0", "A100"))
    before = bench.message(naming("H100"))
    spec = {"type": "leaf", "gpuTypes": ["H100"]}
    metadata = model.ObjectMeta("leaf-0", own_namespace(), resource_version="1")
    bench.cache.store(resources.DOMAIN_CONFIGS).upsert(model.Document(metadata, spec))
    configured = bench.verdicts(naming("H100"))
    bench.cache.upsert_node(node("a", "leaf-0", A100))

    assert "there are A100" in before
    assert (configured, bench.verdicts(naming("H100"))) == ({"a": ()}, {"a": OTHER})


@pytest.mark.parametrize("value", ["", "H100,", "!", ",".join(f"T{n}" for n in range(17)), "T" * 64])
def test_types_that_cannot_be_read_are_told_and_count_as_none(value: str) -> None:
    bench = Bench([node("a", "leaf-0")], (), offering("leaf-0", "A100"))

    assert bench.verdicts(make_pod("p", gpus=1, annotations={GPU_TYPE: value})) == {"a": ()}
    (event,) = bench.handle.fake_recorder.events
    assert event.note.startswith(f"{GPU_TYPE}: ")


def test_wishes_of_bandwidth_and_types_count_on_nodes_without_any_label() -> None:
    bare = make_node("a")
    bare.metadata.labels = {}
    bench = Bench([bare])
    pod = make_pod("p", gpus=1, annotations={"topology.scheduler/network-bandwidth": "100Gb"})

    assert bench.verdicts(pod) == {"a": ("node(s) had no known network bandwidth",)}
    assert "no node or domain has GPUs of type H100" in bench.message(naming("H100"))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("H100", H100, True),
        ("nvidia-h100", "H100-80GB-HBM3", True),
        ("A100", f"{A100}-MIG-1g.10gb", True),
        ("Tesla-V100-SXM2-32GB", "Tesla-V100-SXM2-32GB-SHARED", True),
        ("AMD Instinct MI300X", "MI300X", True),
        ("A10", A100, False),
        ("H100", "NVIDIA-GH200-480GB", False),
        ("1g.10gb", f"{A100}-MIG-1g.10gb", False),
        ("NVIDIA", H100, False),
    ],
)
def test_types_are_compared_word_by_word(one: str, other: str, expected: bool) -> None:
    assert (is_same(one, other), is_same(other, one)) == (expected, expected)
