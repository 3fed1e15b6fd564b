"""What is kept of the claims of pods is what their store has."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from gangline import PodInfo, model, resources
from gangline.testing import Cache, make_pod
from gangline_plugins.dynamic_resources.claims import ClaimProblem, Claims, PodClaims, claims_of

NAMES = ("a", "b", "c")
STEPS = st.one_of(
    st.tuples(st.just("upsert"), st.sampled_from(NAMES), st.booleans()),
    st.tuples(st.just("remove"), st.sampled_from(NAMES), st.just(False)),
    st.tuples(st.just("pod"), st.sampled_from(NAMES), st.booleans()),
)


@given(st.lists(STEPS, max_size=15))
def test_kept_claims_are_those_of_the_store(steps: list[tuple[str, str, bool]]) -> None:
    cache = Cache()
    store = cache.store(resources.RESOURCE_CLAIMS)
    kept = PodClaims(store)
    pods = {name: pod_with(cache, name, name) for name in NAMES}
    for kind, name, flag in steps:
        if kind == "upsert":
            deleted = "2026-01-01T00:00:00Z" if flag else None
            store.upsert(model.ResourceClaim(model.ObjectMeta(name, "default", deletion_timestamp=deleted)))
        elif kind == "remove":
            store.remove("default", name)
        else:
            pods[name] = pod_with(cache, name, "a" if flag else "b")
        for pod in pods.values():
            assert answer(partial(kept.of, pod)) == answer(partial(claims_of, pod, store))


def pod_with(cache: Cache, name: str, claim: str) -> PodInfo:
    return cache.record(make_pod(name, resource_claims=[model.PodResourceClaim("gpu", claim, None)]))


def answer(ask: Callable[[], Claims]) -> Claims | str:
    try:
        return ask()
    except ClaimProblem as problem:
        return str(problem)
