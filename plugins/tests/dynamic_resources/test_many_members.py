"""A gang of many members without claims is asked about by their classes, not one member after the other."""

from __future__ import annotations

import pytest

from gangline import model
from gangline.testing import FakeHandle, cluster, make_node, make_pod
from gangline_plugins.dynamic_resources import DynamicResources, DynamicResourcesArgs

CACHE = cluster([make_node("a")])
CLAIMS = [model.PodResourceClaim("gpu", resource_claim_name="shared")]


@pytest.mark.parametrize("claims", [[], CLAIMS], ids=["no claims", "a claim"])
def test_identities_of_members_are_those_of_each_member(claims: list[model.PodResourceClaim]) -> None:
    plugin = DynamicResources(DynamicResourcesArgs(), FakeHandle(CACHE))
    plain = [CACHE.record(make_pod(f"p{number}")) for number in range(3)]
    pods = [*plain, CACHE.record(make_pod("last", resource_claims=claims))]

    answers = plugin.identity_all(pods)

    assert (answers or [None] * 4) == list(map(plugin.identity, pods))
    assert (answers is None) == (not claims)
