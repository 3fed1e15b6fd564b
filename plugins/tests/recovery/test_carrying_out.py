"""What is written on pods before they are removed."""

from __future__ import annotations

from gangline_plugins.recovery.carrying_out import Removing

from ..default_preemption_cases import cluster, node, pod


async def test_every_removed_pod_says_why_and_one_on_a_dead_node_that_it_has_ended() -> None:
    found = cluster([node("a"), node("b")], [pod("dead", 1, 1, "a"), pod("mute", 1, 1, "b"), pod("lent", 1, 1, "b")])
    pods = found.cache.pods

    await Removing(found.handle, 1.0).carry_out([pods["dead"], pods["mute"]], {"a"}, (), "lost", [pods["lent"]])

    written = {name: patch["status"] for verb, name, patch in found.client.calls if verb == "patch"}
    reasons = {name: status["conditions"][0]["reason"] for name, status in written.items()}
    assert reasons == {"dead": "GangRecovery", "mute": "GangRecovery", "lent": "PreemptionByScheduler"}
    assert {name: status.get("phase") for name, status in written.items()} == {
        "dead": "Failed",
        "mute": None,
        "lent": None,
    }
    assert {name for verb, name, _ in found.client.calls if verb == "delete"} == {"dead", "mute", "lent"}
