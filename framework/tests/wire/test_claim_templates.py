"""GpuClaims as ResourceClaimTemplates: what is asked for, what cannot be, and how templates are called."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.model import DeviceConstraint, ObjectMeta
from gangline.wire.claim_templates import ENTRY, claim_spec, faults, name_of, template_name, template_of
from gangline.wire.custom_resources import ClaimDevices, ClaimTopology, GpuClaim, GpuClaimSpec

ISLAND = "gpu.gangline.dev/island"


def spec(device_class: str = "gpu.x", topology: ClaimTopology | None = None, **devices: Any) -> GpuClaimSpec:
    return GpuClaimSpec(
        devices=ClaimDevices(**devices), topology=topology or ClaimTopology(), device_class_name=device_class
    )


def named(name: str, of: GpuClaimSpec) -> GpuClaim:
    return GpuClaim(ObjectMeta(name=name, namespace="team", uid="u"), of)


def test_a_claim_asks_for_as_many_devices_of_its_class() -> None:
    (request,) = claim_spec(spec(count=3)).devices.requests

    assert request.exactly is not None
    assert (request.exactly.device_class_name, request.exactly.count) == ("gpu.x", 3)
    assert request.exactly.allocation_mode == "ExactCount"


def test_a_template_belongs_to_its_claim_and_says_so() -> None:
    template = template_of(named("pair", spec()))

    (owner,) = template.metadata.owner_references
    assert (owner.kind, owner.name, owner.uid, owner.api_version) == ("GpuClaim", "pair", "u", "gpu.scheduling/v1")
    assert owner.controller and owner.block_owner_deletion is None
    assert template.metadata.labels == {"gpu.scheduling/claim-template": "true"}
    assert template.spec.metadata.annotations == {"gpu.scheduling/claim": "pair"}
    assert template.metadata.namespace == "team" and template.metadata.name.startswith("pair-")


@pytest.mark.parametrize(
    ("topology", "count", "linked"),
    [
        (ClaimTopology("Required", link_attribute=ISLAND), 2, True),
        (ClaimTopology("Required", link_attribute=ISLAND), 1, False),
        (ClaimTopology("Preferred", link_attribute=ISLAND), 2, False),
        (ClaimTopology("Ignore"), 2, False),
    ],
)
def test_links_that_are_required_are_a_constraint(topology: ClaimTopology, count: int, linked: bool) -> None:
    constraints = claim_spec(spec(topology=topology, count=count)).devices.constraints

    assert constraints == ([DeviceConstraint(["gpus"], match_attribute=ISLAND)] if linked else [])


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (spec(exclusivity="Shared", fraction=0.5), "exclusivity: Shared cannot be carried out"),
        (spec(policy="spread"), "policy: spread cannot be carried out"),
        (spec(policy="preferIds", prefer_ids=[1]), "policy: preferIds cannot be carried out"),
        (spec(count=33), "at most 32 devices, got 33"),
        (spec(topology=ClaimTopology("Preferred", 100)), "minBandwidthGBps: cannot be carried out"),
        (spec(topology=ClaimTopology("Required"), count=2), "Required needs topology.linkAttribute"),
        (spec(topology=ClaimTopology(link_attribute="island")), "must be DOMAIN/NAME, got 'island'"),
        (spec("", topology=ClaimTopology(link_attribute=ISLAND)), "only with spec.deviceClassName"),
    ],
)
def test_what_no_resource_claim_can_ask_for_is_a_fault(wrong: GpuClaimSpec, told: str) -> None:
    (found,) = faults(wrong)

    assert told in found


@pytest.mark.parametrize(
    "right",
    [
        spec(),
        spec(count=32),
        spec(exclusivity="MIG", mig_profile="1g.10gb", count=2),
        spec(topology=ClaimTopology("Required")),
        spec(topology=ClaimTopology("Required", link_attribute=ISLAND), count=4),
        spec("", count=64),
        spec("", exclusivity="Shared"),
    ],
)
def test_what_can_be_asked_for_is_none(right: GpuClaimSpec) -> None:
    assert list(faults(right)) == []


def test_another_spec_and_another_claim_have_another_name_and_what_is_no_device_changes_none() -> None:
    one, two = spec(), spec(count=2)
    elsewhere = msgspec.structs.replace(one, gang_ref="gang")

    names = {template_name(named("a", one)), template_name(named("a", two)), template_name(named("b", one))}
    assert len(names) == 3
    assert template_name(named("a", elsewhere)) == template_name(named("a", one))


def test_names_of_templates_are_valid_and_differ_where_they_are_cut() -> None:
    first, second = "a" * 245 + "." + "b" * 7, "a" * 245 + "." + "c" * 7

    names = [name_of(each, claim_spec(spec())) for each in (first, second)]
    assert names[0] != names[1]
    assert all(len(name) <= 253 and ".-" not in name for name in names)
    assert len(ENTRY) < 20


@given(st.integers(1, 32), st.sampled_from(["", "1g.10gb", "1g.10gb+me", "1g.10gb.me", "2g.20gb-me"]))
def test_a_spec_that_comes_back_from_the_api_server_has_the_same_name(count: int, profile: str) -> None:
    asked = claim_spec(spec(count=count, exclusivity="MIG" if profile else "Exclusive", mig_profile=profile))
    back = msgspec.json.decode(msgspec.json.encode(asked), type=type(asked))

    assert name_of("claim", back) == name_of("claim", asked)
