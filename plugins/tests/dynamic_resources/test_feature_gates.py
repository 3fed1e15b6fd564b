"""The argument featureGates: what kube-scheduler does behind gates is done where they are on, and nothing elsewhere."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any

import pytest

from gangline import GanglineError, model, resources
from gangline.simulate import InMemoryServer, SimulatedClient, make_scheduler
from gangline.testing import make_node
from gangline.testing.configured import configuration

from .claim_cases import DRIVER, Cluster, exactly

TAINTS: Mapping[str, bool] = {"DRADeviceTaintRules": True}


def profile(gates: Mapping[str, Any]) -> str:
    args = [{"name": "DynamicResources", "args": {"featureGates": gates}}] if gates else []
    return json.dumps(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{"schedulerName": "default-scheduler", "pluginConfig": args}],
        }
    )


def rule(name: str, **selector: str) -> model.DeviceTaintRule:
    meant = model.DeviceTaintSelector(driver=DRIVER, **selector)
    spec = model.DeviceTaintRuleSpec(model.RuleTaint("broken", "NoSchedule"), meant)
    return model.DeviceTaintRule(model.ObjectMeta(name), spec)


class Without(SimulatedClient):
    """A client of an API server that does not serve some kinds."""

    def __init__(self, server: InMemoryServer, *plurals: str) -> None:
        super().__init__(server)
        self._plurals = set(plurals)
        self.listed: list[str] = []

    async def list(self, resource: Any, **more: Any) -> Any:
        """See the interface."""
        self.listed.append(resource.plural)
        return await super().list(resource, **more)

    async def served(self, group: str, version: str) -> set[str]:
        """See the interface."""
        return await super().served(group, version) - self._plurals


def two_pods(gates: Mapping[str, Any]) -> Cluster:
    """A node with a broken device and a sound one, and a pod for each of them."""
    cluster = Cluster(a=2)
    cluster.profile = profile(gates)
    cluster.simulated.create(resources.DEVICE_TAINT_RULES, rule("broken", pool="a", device="gpu-0"))
    cluster.template("one")
    for name in ("p", "q"):
        cluster.pod(name, "one")
    return cluster


def test_a_device_that_a_rule_taints_is_given_when_the_rule_has_gone() -> None:
    cluster = two_pods(TAINTS)
    found = []

    async def story() -> None:
        await cluster.simulated.until(lambda: len(cluster.simulated.bound()) == 1)
        await cluster.settle()
        found.append(cluster.given())
        cluster.simulated.server.delete(resources.DEVICE_TAINT_RULES, "broken")
        await cluster.bound("p", "q")

    cluster.play(story)

    assert found == [[("a", "gpu-1")]]
    assert sorted(cluster.given()) == [("a", "gpu-0"), ("a", "gpu-1")]


@pytest.mark.parametrize("gates", [{}, {"DRADeviceTaintRules": False}])
def test_without_the_gate_rules_are_neither_read_nor_heeded(gates: Mapping[str, Any]) -> None:
    cluster = two_pods(gates)
    client = Without(cluster.simulated.server)

    cluster.play(lambda: cluster.bound("p", "q"), client)

    assert "resourceslices" in client.listed
    assert "devicetaintrules" not in client.listed


def test_where_rules_are_not_served_the_log_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    cluster = two_pods(TAINTS)

    async def story() -> None:
        await cluster.bound("p", "q")
        await asyncio.sleep(120)

    with caplog.at_level(logging.INFO):
        cluster.play(story, Without(cluster.simulated.server, "devicetaintrules"))

    said = [each.getMessage() for each in caplog.records if "devicetaintrules" in each.getMessage()]
    assert len(said) == 1
    assert "does not serve devicetaintrules" in said[0]


def test_a_rule_that_cannot_be_read_harms_only_itself() -> None:
    cluster = two_pods(TAINTS)
    taint = {"key": "k" * 400, "effect": "NoSchedule"}
    spec = {"taint": taint, "deviceSelector": {"driver": DRIVER}}
    cluster.simulated.server.create(resources.DEVICE_TAINT_RULES, {"metadata": {"name": "absurd"}, "spec": spec})

    async def story() -> None:
        await cluster.simulated.until(lambda: len(cluster.simulated.bound()) == 1)
        await cluster.settle()

    cluster.play(story)

    assert cluster.given() == [("a", "gpu-1")]
    assert [note for note in cluster.simulated.notes("absurd") if "317" in note]


@pytest.mark.parametrize("gates", [{"DRADeviceTaintRule": True}, {"DRADeviceTaintRules": "yes"}, {"X": False}])
def test_a_gate_that_is_not_known_is_refused(gates: Any) -> None:
    cluster = Cluster(a=1)

    with pytest.raises(GanglineError, match="featureGates"):
        make_scheduler(profile(gates), SimulatedClient(cluster.simulated.server), cluster.simulated.clock)


def test_rules_are_read_from_manifests() -> None:
    cluster = two_pods(TAINTS)
    taint = {"key": "broken", "effect": "NoExecute"}
    metadata = {"name": "all"}
    manifest = {"apiVersion": "resource.k8s.io/v1beta2", "kind": "DeviceTaintRule", "metadata": metadata}

    warnings = cluster.simulated.server.apply_manifest({**manifest, "spec": {"taint": taint}})
    cluster.play(cluster.settle)

    assert warnings == []
    assert not cluster.simulated.bound()


@pytest.mark.parametrize(("gates", "at"), [({"DRAListTypeAttributes": True}, {"p": "a"}), ({}, {})])
def test_selectors_read_lists_behind_their_gate(gates: Mapping[str, bool], at: Mapping[str, str]) -> None:
    cluster = Cluster()
    cluster.simulated.create(resources.NODES, make_node("a"))
    cluster.profile = profile(gates)
    cluster.offer("a", model.Device("gpu-9", attributes={"roots": model.DeviceAttribute(strings=["pci0", "pci1"])}))
    expression = f'device.attributes["{DRIVER}"].roots.includes("pci1")'
    cluster.template("one", exactly(selectors=[model.DeviceSelector(model.CelDeviceSelector(expression))]))
    cluster.pod("p", "one")

    cluster.play(cluster.settle)

    assert cluster.simulated.bound() == at


def test_lists_are_read_as_long_as_the_configuration_in_use_turns_the_gate_on() -> None:
    cluster = Cluster()
    cluster.simulated.create(resources.NODES, make_node("a"))
    roots = model.DeviceAttribute(strings=["pci0", "pci1"])
    cluster.offer("a", *(model.Device(f"gpu-{number}", attributes={"roots": roots}) for number in range(3)))
    expression = f'device.attributes["{DRIVER}"].roots.includes("pci1")'
    cluster.template("one", exactly(selectors=[model.DeviceSelector(model.CelDeviceSelector(expression))]))
    gates = {"DRAListTypeAttributes": True}
    found = []

    async def story() -> None:
        async with cluster.simulated.scheduling(profile(gates)) as scheduler:
            for number, each in enumerate([gates, {}, gates]):
                scheduler.use(configuration(profile(each)))
                await cluster.settle()
                cluster.pod(f"p{number}", "one")
                await cluster.settle()
                found.append(f"p{number}" in cluster.simulated.bound())

    cluster.play(story, schedules=False)

    assert found == [True, False, True]


def test_rules_count_as_long_as_the_configuration_in_use_turns_the_gate_on() -> None:
    cluster = Cluster(a=1)
    cluster.profile = profile(TAINTS)
    cluster.simulated.create(resources.DEVICE_TAINT_RULES, rule("broken"))
    cluster.template("one")
    found = []

    async def story() -> None:
        async with cluster.simulated.scheduling(cluster.profile) as scheduler:
            for number, gates in enumerate([{}, TAINTS, {}, TAINTS, {}]):
                name = f"p{number}"
                scheduler.use(configuration(profile(gates)))
                await cluster.settle()
                cluster.pod(name, "one")
                await cluster.settle()
                found.append(name in cluster.simulated.bound())
                cluster.simulated.server.delete(resources.PODS, name, namespace="default")
                await cluster.settle()

    cluster.play(story, schedules=False)

    assert found == [True, False, True, False, True]
