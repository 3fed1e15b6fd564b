"""Scores: as a plain reckoning node by node gives them, and what they prefer."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline import custom_resources, resources
from gangline.model import ObjectMeta
from gangline.testing import Cache, cluster, make_node, make_pod, make_runtime, run_score
from gangline_plugins.anti_fragmentation import AntiFragmentation
from gangline_plugins.anti_fragmentation.arguments import PRODUCT, AntiFragmentationArgs, TypicalPod
from gangline_plugins.anti_fragmentation.gradient import Gradient
from gangline_plugins.anti_fragmentation.published import fragmentation
from gangline_plugins.anti_fragmentation.rating import AskedAmounts, Balanced, Published
from gangline_plugins.anti_fragmentation.typical import ANYWHERE, PodKind, Typical, cpu_per_gpu, models
from gangline_plugins.gpu.claim import GpuClaim as GpuClaimPlugin
from gangline_plugins.gpu.devices import device_table

FRACTIONS = (250, 400, 600)
WEIGHTS = [math.sqrt(n) for n in range(2, 12)]
ON_H100 = models(PRODUCT, ["H100"])


def fleet(nodes: list[tuple[int, int, str]], reported: bool = True) -> Cache:
    """Nodes of so many CPUs, GPUs and this model, and a claim for each fraction."""
    cache = cluster(
        make_node(f"n{i}", gpus=gpus, cpu=cpu, labels={PRODUCT: model}) for i, (cpu, gpus, model) in enumerate(nodes)
    )
    for i, (_, gpus, _) in enumerate(nodes if reported else []):
        devices = [custom_resources.GpuDevice(id=id, uuid=f"{i}-{id}", health="Healthy") for id in range(gpus)]
        cache.store(resources.GPU_NODE_STATUSES).upsert(
            custom_resources.GpuNodeStatus(
                ObjectMeta(name=f"n{i}"),
                custom_resources.GpuNodeStatusSpec(f"n{i}"),
                custom_resources.GpuNodeStatusStatus(total=gpus, devices=devices),
            )
        )
    for milli in FRACTIONS:
        spec = custom_resources.GpuClaimSpec(
            devices=custom_resources.ClaimDevices(exclusivity="Shared", fraction=milli / 1000)
        )
        cache.store(resources.GPU_CLAIMS).upsert(
            custom_resources.GpuClaim(ObjectMeta(name=f"part-{milli}", namespace="default"), spec)
        )
    return cache


def pod(name: str, cpu: int, gpus: int, milli: int, node: str = "") -> Any:
    if 0 < milli < 1000:
        return make_pod(name, cpu=cpu, node=node, annotations={custom_resources.CLAIM: f"part-{milli}"})
    return make_pod(name, gpus, cpu=cpu, node=node)


def reference(kinds: Typical, model: str, cpu: int, free: list[int]) -> float:
    """Fragmentation by the words of the paper."""
    total = 0.0
    for kind, popularity in kinds:
        will_do = kind.where == ANYWHERE or model == "H100"
        fits = kind.count and will_do and cpu >= kind.cpu and sum(f >= kind.milli for f in free) >= kind.count
        total += popularity * (sum(f for f in free if f < kind.milli) if fits else sum(free))
    return total


kinds_of = st.lists(
    st.builds(
        PodKind,
        cpu=st.integers(0, 12).map(lambda n: n * 1000),
        count=st.sampled_from([1, 1, 2, 4]),
        milli=st.sampled_from([*FRACTIONS, 1000]),
        where=st.sampled_from([ANYWHERE, ON_H100]),
    )
    | st.sampled_from([PodKind(2000), PodKind(9000)]),
    min_size=1,
    max_size=10,
    unique=True,
).map(
    lambda kinds: tuple(
        (kind, weight / sum(WEIGHTS[: len(kinds)])) for kind, weight in zip(kinds, WEIGHTS, strict=False)
    )
)
nodes_of = st.lists(
    st.tuples(st.integers(1, 32), st.integers(0, 4), st.sampled_from(["H100", "L40S"])), min_size=1, max_size=5
)
placed = st.lists(st.tuples(st.integers(0, 4), st.sampled_from([*FRACTIONS, 1000, 0]), st.integers(0, 3)), max_size=14)


def fill(cache: Cache, pods: list[tuple[int, int, int]], count: int) -> None:
    for number, (node, milli, cpu) in enumerate(pods):
        if node < count:
            cache.upsert_pod(cache.record(pod(f"p{number}", cpu, int(milli > 0), milli, f"n{node}")))


@given(kinds_of, nodes_of, placed, placed)
def test_fragmentation_of_every_node_is_what_the_paper_says(
    kinds: Typical, nodes: list[Any], before: list[Any], after: list[Any]
) -> None:
    cache = fleet(nodes)
    gradient = Gradient(kinds, device_table(cache).columns)
    for pods in (before, [(n, m, c) for n, m, c in after]):
        fill(cache, pods, len(nodes))
        gradient.refresh(cache.nodes.view())

    view = cache.nodes.view()
    cpu = view.allocatable("cpu") - view.requested("cpu")
    for row, (_, _, model) in enumerate(nodes):
        expected = reference(kinds, model, int(cpu[row]), gradient.free[row].tolist())
        assert gradient.fragmentation[row] == pytest.approx(expected)


@given(kinds_of, nodes_of, placed, st.booleans())
def test_a_state_that_was_read_node_by_node_equals_one_that_was_read_at_once(
    kinds: Typical, nodes: list[Any], pods: list[Any], reported: bool
) -> None:
    cache = fleet(nodes, reported)
    columns = device_table(cache).columns
    by_node, at_once = Gradient(kinds, columns), Gradient(kinds, columns)
    by_node.refresh(cache.nodes.view())
    for number, (node, milli, cpu) in enumerate(pods):
        if node < len(nodes):
            cache.upsert_pod(cache.record(pod(f"p{number}", cpu, int(milli > 0), milli, f"n{node}")))
        by_node.refresh(cache.nodes.view())
    at_once.refresh(cache.nodes.view())

    everything = slice(0, len(nodes))
    assert by_node.free.tolist() == at_once.free.tolist()
    assert by_node.fragmentation.tolist() == at_once.fragmentation.tolist()
    one, other = by_node.now(everything), at_once.now(everything)
    assert np.array_equal(one.model, other.model)
    assert np.array_equal(one.cpu, other.cpu)
    assert np.array_equal(one.total, other.total)
    assert np.array_equal(one.usable, other.usable)


@given(kinds_of, nodes_of, placed, st.sampled_from([(2000, 1, 400), (1000, 1, 1000), (3000, 2, 1000), (4000, 0, 0)]))
def test_published_scores_are_those_of_the_best_device(
    kinds: Typical, nodes: list[Any], pods: list[Any], wanted: tuple[int, int, int]
) -> None:
    cache = fleet(nodes)
    fill(cache, pods, len(nodes))
    rating = Published(kinds, device_table(cache).columns)
    view = cache.nodes.view()
    rating.gradient.refresh(view)
    asked = AskedAmounts(*wanted)
    cpu = view.allocatable("cpu") - view.requested("cpu")

    scores = rating.scores(asked, view)

    for row, (_, _, model) in enumerate(nodes):
        free = rating.gradient.free[row].tolist()
        room = [id for id, f in enumerate(free) if f >= asked.milli > 0]
        if len(room) < asked.count:
            continue
        choices = [[id] for id in room] if asked.is_part else [room[: asked.count]]
        gains = [
            reference(kinds, model, int(cpu[row]), free)
            - reference(
                kinds,
                model,
                int(cpu[row]) - asked.cpu,
                [f - asked.milli * (id in chosen) for id, f in enumerate(free)],
            )
            for chosen in choices
        ]
        bounds = [int(100 / (1 + math.exp(-(gain + slack) / 1000))) for gain in gains for slack in (-1e-6, 1e-6)]
        assert max(bounds[::2]) <= scores[row] <= max(bounds[1::2])


def authors_sum(kinds: Typical, allowed: list[bool], cpu: int, free: list[int]) -> float:
    """Fragmentation step by step as the authors' program adds it up."""
    sums = [0.0] * 7
    for (kind, popularity), may in zip(kinds, allowed, strict=True):
        has_cpu, has_gpu = cpu >= kind.cpu, sum(f >= kind.milli for f in free) >= kind.count
        if not kind.count:
            sums[4 if has_cpu else 5] += popularity * float(sum(free))
        elif not may:
            sums[6] += popularity * float(sum(free))
        elif has_cpu and has_gpu:
            sums[1] += popularity * float(sum(f for f in free if f < kind.milli))
        else:
            sums[3 if has_gpu else 1 if has_cpu else 0] += popularity * float(sum(free))
    total = 0.0
    for place in (0, 1, 3, 4, 5, 6):
        total += sums[place]
    return total


def test_the_published_sum_is_the_authors_to_the_last_bit() -> None:
    chance = np.random.default_rng(3)
    weights = chance.random(40)
    kinds = tuple(
        (PodKind(int(cpu), int(count), int(milli)), weight)
        for cpu, count, milli, weight in zip(
            chance.integers(0, 16_000, 40),
            chance.choice([0, 1, 1, 1, 2], 40),
            chance.choice([*FRACTIONS, 1000], 40),
            (weights / weights.sum()).tolist(),
            strict=True,
        )
    )
    allowed, cpu = chance.random((200, 40)) < 0.8, chance.integers(0, 16_000, 200)
    free = chance.choice([0, 130, 300, 450, 700, 1000], (200, 16))

    sums = fragmentation(kinds, allowed, cpu, free).tolist()

    states = zip(allowed.tolist(), cpu.tolist(), free.tolist(), strict=True)
    assert sums == [authors_sum(kinds, *state) for state in states]


def reference_prices(kinds: Typical, nodes: list[Any]) -> dict[str, float]:
    """Of each model, per GPU: demand by supply, where all demand is spread over what will do for it."""
    gpus = {model: sum(g for _, g, m in nodes if m == model) for model in ("H100", "L40S")}
    prices = dict.fromkeys(gpus, 0.0)
    total = 0.0
    for kind, popularity in kinds:
        will_do = ["H100", "L40S"] if kind.where == ANYWHERE else ["H100"]
        supply, demand = sum(gpus[model] for model in will_do), popularity * kind.count * kind.milli
        if supply and demand:
            total += demand
            for model in will_do:
                prices[model] += demand / supply
    return {model: price * sum(gpus.values()) / total if total else 1.0 for model, price in prices.items()}


@given(kinds_of, nodes_of, placed, st.sampled_from([(2000, 1, 400), (1000, 1, 1000), (3000, 2, 1000), (4000, 0, 0)]))
def test_balanced_scores_are_gain_less_imbalance_scarcity_and_leftover(
    kinds: Typical, nodes: list[Any], pods: list[Any], wanted: tuple[int, int, int]
) -> None:
    cache = fleet(nodes)
    fill(cache, pods, len(nodes))
    rating = Balanced(kinds, device_table(cache).columns)
    view = cache.nodes.view()
    rating.gradient.refresh(view)
    asked = AskedAmounts(*wanted)
    prices = reference_prices(kinds, nodes)
    ratio = cpu_per_gpu(kinds)

    scores = rating.scores(asked, view)

    for row, (_, _, model) in enumerate(nodes):
        cpu = int((view.allocatable("cpu") - view.requested("cpu"))[row])
        free = rating.gradient.free[row].tolist()
        room = sorted((f, id) for id, f in enumerate(free) if f >= asked.milli > 0)[: asked.count]
        if len(room) < asked.count:
            continue
        left = [f - asked.milli * (id in [i for _, i in room]) for id, f in enumerate(free)]
        gain = reference(kinds, model, cpu, free) - reference(kinds, model, cpu - asked.cpu, left)
        before, after = (cpu / ratio, (cpu - asked.cpu) / ratio) if ratio else (0.0, 0.0)
        imbalance = abs(sum(left) - after) - abs(sum(free) - before) if ratio else 0.0
        scarcity = asked.total * (prices[model] - 1.0)
        worth = gain - 0.5 * imbalance - scarcity - 0.01 * (sum(left) + after)
        assert scores[row] == pytest.approx(50 + 50 * worth / (1000 + abs(worth)))


def args(*pods: TypicalPod) -> AntiFragmentationArgs:
    return AntiFragmentationArgs(typical_pods=list(pods))


def best(scores: dict[str, float]) -> str:
    return max(scores, key=lambda name: scores[name])


@given(kinds_of, nodes_of, placed, st.booleans())
def test_a_node_alone_gets_the_score_that_it_gets_among_others(
    kinds: Typical, nodes: list[Any], pods: list[Any], reported: bool
) -> None:
    cache = fleet(nodes, reported)
    fill(cache, pods, len(nodes))
    rating, view = Balanced(kinds, device_table(cache).columns), cache.nodes.view()
    rating.gradient.refresh(view)

    for asked in (
        AskedAmounts(1000, 1, 1000),
        AskedAmounts(3000, 2, 1000),
        AskedAmounts(4000),
        AskedAmounts(9, 1, 250),
    ):
        together = rating.scores(asked, view).tolist()
        alone = [rating.scores(asked, view.at(np.array([row]))).item() for row in range(len(nodes))]
        assert alone == together


def test_a_pod_that_needs_much_cpu_goes_where_there_is_more_of_it_than_gpus_need() -> None:
    cache = fleet([(32, 4, "H100"), (64, 4, "H100")])
    typical = TypicalPod(1.0, cpu=8, gpus=1)

    assert best(run_score(AntiFragmentation, make_pod("p", cpu=16), cache, args(typical))) == "n1"


def test_a_part_of_a_device_goes_where_a_device_is_in_use_already() -> None:
    cache = fleet([(32, 4, "H100"), (32, 4, "H100")])
    cache.upsert_pod(cache.record(pod("p0", 2, 1, 600, "n1")))
    typical = (TypicalPod(0.5, cpu=8, gpus=1), TypicalPod(0.5, cpu=3, gpus=1, fraction=0.4))

    assert best(run_score(AntiFragmentation, pod("p", 3, 1, 400), cache, args(*typical))) == "n1"


def test_a_pod_for_any_model_leaves_alone_the_one_that_others_insist_on() -> None:
    cache = fleet([(32, 4, "H100"), (32, 4, "L40S"), (32, 4, "L40S")])
    typical = (TypicalPod(0.5, cpu=8, gpus=1), TypicalPod(0.5, cpu=8, gpus=1, models=["H100"]))

    assert best(run_score(AntiFragmentation, make_pod("p", 1, cpu=8), cache, args(*typical))) != "n0"


def test_whole_gpus_are_rated_on_nodes_that_report_no_devices() -> None:
    cache = fleet([(32, 4, "H100"), (32, 4, "H100")], reported=False)
    cache.upsert_pod(cache.record(make_pod("p0", 1, cpu=8, node="n1")))

    assert best(run_score(AntiFragmentation, make_pod("p", 1, cpu=8), cache, args(TypicalPod(1.0, 8, 1)))) == "n1"


def test_kept_scores_are_those_that_would_be_worked_out_anew() -> None:
    cache = fleet([(16 + 8 * i, 4, "H100" if i % 2 else "L40S") for i in range(6)])
    kinds = ((PodKind(8000, 1, 1000), 0.5), (PodKind(3000, 1, 400, ON_H100), 0.5))
    runtime = _runtime(cache)
    chance = np.random.default_rng(7)

    for number in range(40):
        record = cache.record(pod(f"p{number}", 1, 1, int(chance.choice([250, 400, 1000]))))
        filtered = runtime.evaluator.filter(record)
        scores = runtime.evaluator.scores(filtered)["AntiFragmentation"]
        fresh = Balanced(kinds, device_table(cache).columns)
        fresh.gradient.refresh(cache.nodes.view())
        want = device_table(cache).wants.of(record)
        asked = AskedAmounts(1000, 1, getattr(want, "milli", 0) or 1000)
        assert scores == pytest.approx(fresh.scores(asked, cache.nodes.view())[filtered.feasible])
        if filtered.feasible.any():
            cache.assume(record, runtime.evaluator.choose(filtered))
        if number % 15 == 14:  # prices change for all nodes
            cache.upsert_node(make_node("n0", gpus=4, cpu=16, labels={PRODUCT: f"{'H100' if number > 20 else 'A30'}"}))


def _runtime(cache: Cache) -> Any:
    typical = (TypicalPod(0.5, 8, 1), TypicalPod(0.5, 3, 1, 0.4, ["H100"]))
    return make_runtime(cache, AntiFragmentation, GpuClaimPlugin, args={"AntiFragmentation": args(*typical)})
