"""Plugins say of many members at once what they say of each."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import pytest
from framework.tests.profile import histories
from hypothesis import given
from hypothesis import strategies as st

from gangline import custom_resources, model
from gangline.groups import Groups
from gangline.profile.assembly import judging_runtimes
from gangline.profile.members import identities_of
from gangline.testing import FakeClock, make_node, make_pod
from gangline.wire.custom_resources import CLAIM
from gangline_profiles import names

from .placing import loaded
from .test_kept_decisions import APP, LIKE

_MORE: dict[str, dict[str, Any]] = {
    "unlike labels": {"labels": {"app": "y"}},
    "wishes": {"annotations": {"topology.gangline.dev/preferred-domain": "l0", "topology-scheduler/required": "x"}},
    "map": {"annotations": {custom_resources.SCHEDULING_MAP: "0=n4:0;1=n4:1"}},
    "claim and map": {"annotations": {custom_resources.SCHEDULING_MAP: "no map;;", CLAIM: "c0"}},
    "affine": {
        "labels": {"app": "x"},
        "affinity": model.Affinity(
            pod_affinity=model.PodAffinity(required=[model.PodAffinityTerm("rack", APP, match_label_keys=["app"])])
        ),
    },
}
PODS = {**LIKE, **_MORE}
KINDS = st.lists(st.sampled_from(list(PODS)), min_size=1, max_size=8)


def alike(said: Sequence[Hashable]) -> list[int]:
    """For each pod the first one of which the same was said."""
    return [said.index(each) for each in said]


@pytest.mark.parametrize("profile", names())
@given(placed=KINDS, kinds=KINDS)
def test_plugins_read_of_many_members_what_they_read_of_each(profile: str, placed: list[str], kinds: list[str]) -> None:
    cache = histories.begun([make_node("n4", gpus=8, cpu=64, pods=110)])
    made = judging_runtimes(loaded(profile), cache, clock=FakeClock(), grouping=Groups(cache))
    (runtime,) = made.values()
    for number, kind in enumerate(placed):
        cache.upsert_pod(cache.record(make_pod(f"placed-{number}", node="n4", **PODS[kind])))
    pods = [cache.record(make_pod(f"p-{number}", **PODS[kind])) for number, kind in enumerate(kinds)]
    notes, asked = [runtime.handle.workload(pod) for pod in pods], runtime.profile.identities

    of_each = [
        (pod.cls.id, *[identity.ask(pod, note) for identity in asked]) for pod, note in zip(pods, notes, strict=True)
    ]

    assert alike(identities_of(asked, pods, notes)) == alike(of_each)
    for place, identity in enumerate(asked, start=1):
        if identity.ask_all is not None:
            said = identity.ask_all(pods, notes)
            assert ([None] * len(pods) if said is None else said) == [each[place] for each in of_each]
