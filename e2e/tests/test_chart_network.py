"""Who may reach the pods of the chart, and whom they may reach, as rendered by the real helm."""

from __future__ import annotations

from typing import Any

import pytest

from gangline_e2e.chart import Helm, HelmFailed
from gangline_e2e.workloads import Manifest

pytestmark = pytest.mark.timeout(300)

READERS = [{"podSelector": {}}, {"namespaceSelector": {"matchLabels": {"gangline.dev/reads-metrics": "true"}}}]
API_SERVER = [443, 6443, 8443, 16443]


async def policies(helm: Helm, values: Manifest | None = None) -> dict[str, Manifest]:
    """The spec of each NetworkPolicy by its name without what all begin with."""
    found = [each for each in await helm.render(values) if each["kind"] == "NetworkPolicy"]
    return {each["metadata"]["name"].removeprefix("gpu-scheduler"): each["spec"] for each in found}


def let_in(policy: Manifest) -> dict[tuple[int, ...], Any]:
    """Peers by ports; None is everybody."""
    return {tuple(port["port"] for port in rule["ports"]): rule.get("from") for rule in policy["ingress"]}


async def test_metrics_are_for_the_chosen_and_reviews_for_whoever_the_api_server_is(helm: Helm) -> None:
    found = await policies(helm)

    assert {name: let_in(policy) for name, policy in found.items()} == {
        "": {(8080, 10259): READERS},
        "-webhook": {(8443,): None, (8080, 10259): READERS},
        "-agent": {(8080, 10259): READERS},
        "-certs": {},
    }
    assert {tuple(policy["policyTypes"]) for policy in found.values()} == {("Ingress", "Egress")}


async def test_each_component_has_a_policy_that_selects_its_pods_alone(helm: Helm) -> None:
    rendered = await helm.render()

    apps = {each["spec"]["podSelector"]["matchLabels"]["app"] for each in rendered if each["kind"] == "NetworkPolicy"}
    made = {
        each["spec"]["template"]["metadata"]["labels"]["app"]
        for each in rendered
        if each["kind"] in ("Deployment", "DaemonSet")
    }
    assert made == apps - {"gpu-scheduler-certs"}


async def test_peers_are_taken_from_the_values(helm: Helm) -> None:
    mine = [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}, "podSelector": {"matchLabels": {"a": "b"}}}]
    addresses = [{"ipBlock": {"cidr": "10.0.0.1/32"}}]

    found = await policies(helm, {"networkPolicy": {"metricsFrom": mine, "reviewsFrom": addresses}})
    closed = await policies(helm, {"networkPolicy": {"metricsFrom": []}})

    assert let_in(found[""]) == {(8080, 10259): mine}
    assert let_in(found["-webhook"]) == {(8443,): addresses, (8080, 10259): mine}
    assert let_in(closed[""]) == {} and let_in(closed["-webhook"]) == {(8443,): None}


@pytest.mark.parametrize(
    ("prefix", "port"),
    [
        ("http://extender:8888", 8888),
        ("http://extender:8889/path", 8889),
        ("https://extender/path", 443),
        ("http://extender/a:7", 80),
    ],
)
async def test_the_scheduler_may_reach_its_extenders(helm: Helm, prefix: str, port: int) -> None:
    found = await policies(helm, {"config": {"extenders": [{"urlPrefix": prefix}]}})

    def out(name: str) -> set[int]:
        return {each["port"] for rule in found[name]["egress"] for each in rule["ports"]}

    assert out("") == {*API_SERVER, 53, port}
    assert out("-webhook") == out("-agent") == out("-certs") == {*API_SERVER, 53}


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({"metricsFrom": [{}]}, id="a peer that is everybody"),
        pytest.param({"reviewsFrom": [{"ipBlock": {}}]}, id="no addresses"),
        pytest.param({"egressPorts": []}, id="no way to the API server"),
    ],
)
async def test_a_wrong_peer_is_refused(helm: Helm, values: Manifest) -> None:
    with pytest.raises(HelmFailed, match="/networkPolicy"):
        await helm.render({"networkPolicy": values})


async def test_there_are_none_where_they_are_switched_off(helm: Helm) -> None:
    assert await policies(helm, {"networkPolicy": {"enabled": False}}) == {}
