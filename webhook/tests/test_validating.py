"""Which claims are refused, in which words; and that nobody but the scheduler writes an allocation."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangline.wire.custom_resources import GpuClaim
from gangline_webhook.pods import Pod
from gangline_webhook.reviewing import Verdict
from gangline_webhook.validating import validate_claim, validate_pod

from .reviews import pod


def claim(devices: Any = None, **spec: Any) -> GpuClaim:
    return msgspec.convert({"metadata": {"name": "mine"}, "spec": {"devices": devices or {}, **spec}}, GpuClaim)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({}, id="nothing"),
        pytest.param(
            {"devices": {"count": 8, "policy": "preferIds", "preferIds": [0, 3]}}, id="fewer ids than devices"
        ),
        pytest.param({"devices": {"exclusivity": "Shared"}}, id="shared without a size"),
        pytest.param({"devices": {"exclusivity": "Shared", "fraction": 0.01}}, id="the smallest fraction"),
        pytest.param({"devices": {"exclusivity": "Shared", "fraction": 1}}, id="the largest fraction"),
        pytest.param({"devices": {"exclusivity": "Shared", "memoryGiB": 10}}, id="memory"),
        pytest.param({"devices": {"exclusivity": "MIG", "migProfile": "1g.10gb"}}, id="a MIG profile"),
        pytest.param({"devices": {"exclusivity": "MIG", "migProfile": "1g.5gb+me"}}, id="with media extensions"),
        pytest.param({"devices": {"exclusivity": "MIG", "migProfile": "1c.3g.40gb"}}, id="a compute instance"),
        pytest.param({"devices": {"exclusivity": "MIG", "migProfile": "1g.24gb+me.all"}}, id="with all extensions"),
        pytest.param({"devices": {"count": 4}, "topology": {"mode": "Required", "minBandwidthGBps": 400}}, id="links"),
        pytest.param({"network": {"preferredHcas": ["mlx5_0", "mlx5_1:1"], "minPorts": 2}}, id="adapters"),
    ],
)
def test_a_claim_that_makes_sense_passes_without_a_word(spec: Any) -> None:
    assert validate_claim(claim(**spec)) == Verdict()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"devices": {"count": 0}}, "spec.devices.count: must be from 1 to 64, got 0"),
        ({"devices": {"count": 10_000}}, "spec.devices.count: must be from 1 to 64, got 10000"),
        ({"devices": {"policy": "preferIds"}}, "preferIds needs the ids in spec.devices.preferIds"),
        ({"devices": {"preferIds": [1]}}, "preferIds: only for policy preferIds, this claim has contiguous"),
        ({"devices": {"policy": "preferIds", "preferIds": [1, 1]}}, "names a device twice: [1, 1]"),
        ({"devices": {"policy": "preferIds", "preferIds": [-1]}}, "ids start at 0: [-1]"),
        ({"devices": {"fraction": 0.5}}, "spec.devices.fraction: only for exclusivity Shared, this claim is Exclusive"),
        (
            {"devices": {"exclusivity": "MIG", "migProfile": "1g.5gb", "memoryGiB": 5}},
            "memoryGiB: only for exclusivity",
        ),
        ({"devices": {"exclusivity": "Shared", "fraction": 0.5, "memoryGiB": 5}}, "give one"),
        ({"devices": {"exclusivity": "Shared", "fraction": 0.001}}, "must be from 0.01 to 1.0, got 0.001"),
        ({"devices": {"exclusivity": "Shared", "fraction": 1.5}}, "must be from 0.01 to 1.0, got 1.5"),
        ({"devices": {"exclusivity": "Shared", "memoryGiB": 0}}, "spec.devices.memoryGiB: must be at least 1, got 0"),
        ({"devices": {"exclusivity": "MIG"}}, "exclusivity MIG needs a profile, such as 1g.10gb"),
        ({"devices": {"migProfile": "1g.10gb"}}, "spec.devices.migProfile: only for exclusivity MIG"),
        ({"devices": {"exclusivity": "MIG", "migProfile": "large"}}, "'large' is no MIG profile"),
        ({"devices": {"exclusivity": "MIG", "migProfile": "0g.10gb"}}, "'0g.10gb' is no MIG profile"),
        ({"topology": {"mode": "Ignore", "minBandwidthGBps": 400}}, "mode Ignore contradicts minBandwidthGBps 400"),
        ({"topology": {"minBandwidthGBps": -1}}, "minBandwidthGBps: must not be negative, got -1"),
        (
            {"devices": {"exclusivity": "MIG", "migProfile": "1g.10gb"}, "topology": {"minBandwidthGBps": 1}},
            "MIG instances have no links",
        ),
        (
            {"devices": {"count": 2, "policy": "spread"}, "topology": {"mode": "Required"}},
            "spec.topology.mode: Required wants devices of one NVLink island",
        ),
        ({"network": {"minPorts": -1}}, "spec.network.minPorts: must not be negative, got -1"),
        ({"network": {"preferredHcas": ["^mlx5_0"]}}, "'^mlx5_0' is no adapter"),
        ({"network": {"preferredHcas": ["a,b"]}}, "'a,b' is no adapter"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_claim_that_contradicts_itself_is_refused_and_told_where(spec: Any, message: str) -> None:
    verdict = validate_claim(claim(**spec))

    assert not verdict.allowed
    assert verdict.message.startswith("GpuClaim mine: spec.")
    assert message in verdict.message


def test_all_faults_are_told_at_once() -> None:
    verdict = validate_claim(claim({"count": 0, "exclusivity": "MIG"}, network={"minPorts": -1}))

    assert verdict.message.count(";") == 2


@pytest.mark.parametrize(
    ("spec", "warning"),
    [
        ({"topology": {"minBandwidthGBps": 400}}, "means nothing for one device"),
        ({"devices": {"count": 2, "policy": "spread"}, "topology": {"minBandwidthGBps": 400}}, "policy spread takes"),
    ],
)
def test_what_is_odd_but_harmless_is_warned_about(spec: Any, warning: str) -> None:
    verdict = validate_claim(claim(**spec))

    assert verdict.allowed
    assert warning in " ".join(verdict.warnings)


@pytest.mark.parametrize(("phase", "allowed"), [("", True), ("Failed", True), ("Reserved", False), ("Bound", False)])
def test_how_a_claim_shares_devices_stays_once_a_pod_has_some(phase: str, allowed: bool) -> None:
    old = claim({"exclusivity": "Shared", "fraction": 0.5})
    old.status.phase = phase

    assert validate_claim(claim({"exclusivity": "Shared", "fraction": 0.25}), old).allowed is allowed
    assert validate_claim(claim({"exclusivity": "Shared", "fraction": 0.5, "count": 2}), old).allowed


def test_an_old_claim_that_broke_a_rule_before_may_be_changed_elsewhere() -> None:
    bad = claim({"exclusivity": "MIG"})

    assert validate_claim(bad, claim({"exclusivity": "MIG"})).allowed
    assert not validate_claim(bad, claim()).allowed


@pytest.mark.parametrize("hcas", [["!"] * 100_000, ["!" * 1_000_000]], ids=["many", "long"])
def test_of_absurdly_many_or_long_faults_little_is_told(hcas: list[str]) -> None:
    verdict = validate_claim(claim(network={"preferredHcas": hcas}))

    assert not verdict.allowed
    assert verdict.message.startswith("GpuClaim mine: spec.network.preferredHcas: '!")
    assert len(verdict.message) < 2100


ALLOCATED = "gpu.scheduling/allocated"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({}, {ALLOCATED: "0"}, id="forged"),
        pytest.param({ALLOCATED: "0"}, {ALLOCATED: "0,1"}, id="changed"),
        pytest.param({ALLOCATED: "0"}, {}, id="removed"),
        pytest.param({}, {ALLOCATED + "-uuids": "GPU-1"}, id="forged UUIDs"),
    ],
)
def test_an_allocation_is_not_changed_on_a_pod(before: dict[str, str], after: dict[str, str]) -> None:
    verdict = validate_pod(*(msgspec.convert(pod(annotations=each), Pod) for each in (after, before)))

    assert not verdict.allowed
    assert "pod train-0: only the scheduler sets gpu.scheduling/allocated" in verdict.message


def test_other_changes_of_a_pod_pass() -> None:
    before = msgspec.convert(pod(annotations={ALLOCATED: "0"}), Pod)
    after = msgspec.convert(pod(annotations={ALLOCATED: "0", "a": "b"}, labels={"c": "d"}), Pod)

    assert validate_pod(after, before) == Verdict()
