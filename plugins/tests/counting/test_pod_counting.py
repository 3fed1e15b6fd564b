"""The counters say at any time what counting again would say."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from gangline import PodInfo, Selector, compile_selector, model, resources
from gangline.testing import Cache
from gangline_plugins.counting.columns import RowCounts
from gangline_plugins.counting.counts import Clause, CountLimits, PodCounts, Query, SelectorIndex
from gangline_plugins.counting.inter_pod_affinity_terms import Effect, OwnedTerm, TermOwners, terms_of

APPS = ("web", "db", "cache")
SPACES = ("red", "blue", "green")


def selector(*expressions: tuple[str, str, tuple[str, ...]]) -> Selector:
    requirements = [model.Requirement(key, operator, list(values)) for key, operator, values in expressions]
    return compile_selector(model.LabelSelector(match_expressions=requirements))


WEB = selector(("app", "In", ("web",)))
QUERIES = (
    Query((Clause(WEB, frozenset(("red",))),)),
    Query((Clause(WEB, frozenset(("red",))),), terminating=False),
    Query((Clause(selector(("app", "In", ("web", "db"))), frozenset(("red", "blue"))),)),
    Query((Clause(selector(("app", "NotIn", ("web",))), frozenset(("red", "blue"))),)),
    Query((Clause(selector(("tier", "Exists", ())), frozenset(), selector()),)),
    Query((Clause(selector(), frozenset(("green",)), selector(("team", "In", ("a",)))),)),
    Query((Clause(WEB, frozenset(("red",))), Clause(selector(("tier", "DoesNotExist", ())), frozenset(("red",))))),
    Query((Clause(compile_selector(None), frozenset(("red",))),)),
)


def node(name: str) -> model.Node:
    return model.Node(metadata=model.ObjectMeta(name=name))


def namespace(name: str, **labels: str) -> model.Namespace:
    return model.Namespace(metadata=model.ObjectMeta(name=name, labels=labels))


def pod(
    name: str, space: str, labels: dict[str, str], affinity: model.Affinity | None = None, gone: bool = False
) -> model.Pod:
    return model.Pod(
        metadata=model.ObjectMeta(
            name=name,
            namespace=space,
            uid=name,
            labels=labels,
            deletion_timestamp="2026-01-01T00:00:00Z" if gone else None,
        ),
        spec=model.PodSpec(containers=[model.Container(name="c")], affinity=affinity),
    )


def repelling(app: str, key: str = "zone") -> model.Affinity:
    term = model.PodAffinityTerm(
        topology_key=key,
        label_selector=model.LabelSelector(match_labels={"app": app}),
        namespace_selector=model.LabelSelector(),
    )
    return model.Affinity(pod_anti_affinity=model.PodAffinity(required=[term]))


pods = st.builds(
    lambda space, app, tier, affinity, gone: (space, {"app": app, **({"tier": tier} if tier else {})}, affinity, gone),
    st.sampled_from(SPACES),
    st.sampled_from(APPS),
    st.sampled_from(("", "front", "back")),
    st.sampled_from((None, repelling("web"), repelling("db"))),
    st.booleans(),
)


class Placements(RuleBasedStateMachine):
    """Random placements, removals, what-ifs and changes of namespaces."""

    limits = CountLimits()

    @initialize()
    def build(self) -> None:
        self.cache = Cache()
        for row in range(40):
            self.cache.upsert_node(node(f"n{row}"))
        self.counts = PodCounts(self.cache, self.limits)
        self.cache.track(self.counts)
        self.owners = self.cache.tracker(TermOwners, self.cache)
        self.names = 0

    @rule(given=pods, row=st.integers(0, 39), copies=st.integers(1, 40))
    def place(self, given: tuple[str, dict[str, str], model.Affinity | None, bool], row: int, copies: int) -> None:
        for i in range(copies):
            self.names += 1
            self.cache.assume(self.cache.record(pod(f"p{self.names}", *given)), (row + i) % 40)

    @rule(given=pods, rows=st.lists(st.integers(0, 39), min_size=2, max_size=9), stay=st.booleans())
    def place_at_once(
        self, given: tuple[str, dict[str, str], model.Affinity | None, bool], rows: list[int], stay: bool
    ) -> None:
        space, labels, affinity, gone = given
        self.names += len(rows)
        like = [
            pod(f"p{self.names - i}", space, {**labels, "index": str(i % 3)}, affinity, gone) for i in range(len(rows))
        ]
        records = [self.cache.record(each) for each in like]
        with self.cache.transaction() as attempt:
            attempt.place_all(records, rows)
            if stay:
                for record in records:
                    self.cache.adopt(record)
                attempt.commit()

    @rule(share=st.floats(0.0, 1.0))
    def take_off(self, share: float) -> None:
        for uid in list(self.cache.pods)[: int(len(self.cache.pods) * share)]:
            self.cache.remove_pod(uid)

    @rule(given=pods)
    def consider(self, given: tuple[str, dict[str, str], model.Affinity | None, bool]) -> None:
        with self.cache.transaction() as attempt:
            attempt.place(self.cache.record(pod("maybe", *given)), 3)
            for placed in list(self.cache.pods.values())[:3]:
                attempt.unplace(placed)

    @rule(space=st.sampled_from(SPACES), team=st.sampled_from(("a", "b")))
    def label_namespace(self, space: str, team: str) -> None:
        self.cache.store(resources.NAMESPACES).upsert(namespace(space, team=team))

    @rule(name=st.sampled_from(("n1", "n2")))
    def replace_node(self, name: str) -> None:
        self.cache.remove_node(name)
        self.cache.upsert_node(node(name))

    @invariant()
    def counts_are_a_recount(self) -> None:
        for query in QUERIES:
            expected = recount(self.cache, query)

            assert self.counts.count(query).column(40).tolist() == expected
            assert sorted(self.counts.count(query).rows()) == [row for row in range(40) if expected[row]]
            assert self.counts.count(query).total == sum(expected)

    @invariant()
    def owners_are_a_recount(self) -> None:
        probe = self.cache.record(pod("probe", "red", {"app": "web"}))
        expected: Counter[int] = Counter()
        for placed in self.cache.pods.values():
            if any(
                "web" in values for t in terms_of(placed).anti for _, _, values in t.clause.selector.requirements or ()
            ):
                expected[placed.row] += 1
        found: Counter[int] = Counter()
        for term, counts in self.owners.matching(probe):
            assert term.effect is Effect.REPELS
            found.update({int(row): int(counts.column(40)[row]) for row in counts.rows()})

        assert found == expected


def recount(cache: Cache, query: Query) -> list[int]:
    column = [0] * 40
    for placed in cache.pods.values():
        stored = cache.store(resources.NAMESPACES).get(placed.namespace)
        labels = stored.metadata.labels if stored else None
        if (query.terminating or not placed.terminating) and query.matches(placed.namespace, labels, placed.labels):
            column[placed.row] += 1
    return column


class CrampedPlacements(Placements):
    """The same, with hardly anything kept for later."""

    limits = CountLimits(counted_bytes=0, fewest_counted=2, empty_groups=1)


@pytest.mark.parametrize("machine", [Placements, CrampedPlacements], ids=["roomy", "cramped"])
def test_counters_equal_a_recount_whatever_happened(machine: type[Placements]) -> None:
    run_state_machine_as_test(machine, settings=settings(stateful_step_count=20))


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(1, 3)), max_size=120))
def test_row_counts_are_the_same_sparse_and_dense(steps: list[tuple[int, int]]) -> None:
    counts, expected = RowCounts(), Counter[int]()
    for row, amount in [*steps, *((row, -amount) for row, amount in steps[::2])]:
        counts.add(row, amount)
        expected[row] += amount
    column = np.ones(200, dtype=np.int64)
    counts.add_to(column, 7)

    assert counts.column(200).tolist() == [expected[row] for row in range(200)]
    assert column.tolist() == [1 + 7 * expected[row] for row in range(200)]
    assert sorted(counts.rows()) == sorted(row for row in expected if expected[row])
    assert counts.total == expected.total()


def test_trackers_are_shared_by_all_who_ask_and_die_with_the_cluster() -> None:
    cache = Cache()
    tracker = weakref.ref(cache.tracker(PodCounts, cache))

    assert cache.tracker(PodCounts, cache) is tracker()
    del cache
    gc.collect()
    assert tracker() is None


def test_memory_stays_bounded_when_every_pod_has_its_own_labels_and_terms() -> None:
    cache = Cache()
    cache.upsert_node(node("n0"))
    counts, owners = cache.tracker(PodCounts, cache), cache.tracker(TermOwners, cache)
    for i in range(3000):
        record = cache.record(pod(f"p{i}", "red", {"app": f"a{i}"}, repelling(f"a{i}")))
        counts.count(terms_of(record).anti[0].query)
        owners.matching(record)
        cache.assume(record, 0)
        cache.remove_pod(record.uid)

    assert len(counts._groups) <= 1024
    assert len(counts._groups_by_pair) <= 1024
    assert len(owners._terms) <= 256
    assert len(owners._matches) <= 4096


def test_queries_that_nobody_asks_for_are_dropped() -> None:
    counts = PodCounts(Cache(), CountLimits(counted_bytes=0))
    for i in range(500):
        counts.count(Query((Clause(selector(("app", "In", (f"a{i}",))), frozenset(("red",))),)))

    assert len(counts._counted) == 64


def test_the_index_yields_all_that_can_match_and_each_once() -> None:
    index: SelectorIndex[str] = SelectorIndex()
    index.add(selector(("app", "In", ("web", "db")), ("tier", "In", ("front",))), "two keys")
    index.add(selector(("app", "NotIn", ("db",))), "negative")
    index.add(selector(("app", "In", ("db",))), "other")
    index.add(compile_selector(None), "nothing")

    assert sorted(index.candidates({"app": "web", "tier": "front"})) == ["negative", "two keys"]
    index.remove(selector(("app", "NotIn", ("db",))), "negative")
    assert list(index.candidates({"app": "db"})) == ["other"]


@pytest.fixture
def owners() -> Iterator[tuple[Cache, TermOwners]]:
    cache = Cache()
    cache.upsert_node(node("n0"))
    yield cache, cache.tracker(TermOwners, cache)


def test_equal_terms_of_different_pods_share_their_counts(owners: tuple[Cache, TermOwners]) -> None:
    cache, tracker = owners
    records: list[PodInfo] = []
    for i in range(3):
        records.append(cache.record(pod(f"p{i}", "red", {"app": f"a{i}"}, repelling("web"))))
        cache.assume(records[-1], 0)
    ((term, counts),) = tracker.matching(cache.record(pod("new", "red", {"app": "web"})))

    assert term == OwnedTerm(Effect.REPELS, terms_of(records[0]).anti[0].clause, "zone")
    assert counts.total == 3
