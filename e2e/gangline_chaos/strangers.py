"""Faults of objects: strangers delete them, nodes go or are not heard of, agents and the webhook fall silent.

Each of these faults copes with an API server that is away for a while, because another fault may cause that.
"""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gangline_chaos.asking import change, patiently, put
from gangline_chaos.judge.objects import ALLOCATED
from gangline_chaos.site import ELECTION, Site
from gangline_chaos.units import FABRIC
from gangline_e2e import node_losses
from gangline_e2e.day import fabric
from gangline_e2e.devices import LEASES, MANAGED
from gangline_e2e.gpu_crds import NODE_STATUSES, node_status
from gangline_e2e.node_losses import NODES
from gangline_e2e.ports import free_port
from gangline_e2e.workloads import KWOK_NODE, Manifest

SILENT_S = 400.0
"""The age of the last heartbeat of an agent that is silent: older than GpuClaims trust by default."""
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
WEBHOOK = "chaos"
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
STATES = (("False", "KubeletNotReady", NOT_READY), ("Unknown", "NodeStatusUnknown", UNREACHABLE))
"""The status of the condition Ready, and the taint, of a node that reports a fault, and of a node that is silent."""


@asynccontextmanager
async def lose_node(site: Site, rng: random.Random) -> AsyncIterator[str]:
    """A node with its report is deleted, and made anew at the end."""
    number = rng.randrange(FABRIC.nodes)
    await patiently(lambda: fabric.lose(site.api, FABRIC, number))
    try:
        yield FABRIC.name(number)
    finally:
        await _report(site, number)
        await put(site.api, FABRIC.node(number))


@asynccontextmanager
async def unready_nodes(site: Site, rng: random.Random) -> AsyncIterator[str]:
    """Nodes are not ready or not heard of, with the taints for that; nobody runs or ends their pods meanwhile."""
    numbers = rng.sample(range(FABRIC.nodes), rng.randint(1, 2))
    status, reason, taint = rng.choice(STATES)
    for number in numbers:
        await _say_ready(site, number, status, reason, [taint])
    try:
        yield f"{', '.join(map(FABRIC.name, numbers))}: {reason}"
    finally:
        for number in numbers:
            await _say_ready(site, number, "True", "KubeletReady", [])


async def _say_ready(site: Site, number: int, status: str, reason: str, taints: list[str]) -> None:
    path = f"{NODES}/{FABRIC.name(number)}"
    effects = [{"key": key, "effect": effect} for key in taints for effect in ("NoSchedule", "NoExecute")]
    played = None if taints else "fake"
    condition = {**node_losses.ready(status), "reason": reason}
    if taints:  # otherwise kwok would set the node ready again at once
        await change(site.api, path, {"metadata": {"annotations": {KWOK_NODE: played}}})
    await change(site.api, f"{path}/status", {"status": {"conditions": [condition]}})
    await change(site.api, path, {"metadata": {"annotations": {KWOK_NODE: played}}, "spec": {"taints": effects}})


@asynccontextmanager
async def delete_reports(site: Site, rng: random.Random) -> AsyncIterator[str]:
    """GpuNodeStatus objects are deleted, and reported anew at the end, as agents do."""
    numbers = rng.sample(range(FABRIC.nodes), rng.randint(1, 4))
    await patiently(lambda: site.api.delete_many(f"{NODE_STATUSES}/{FABRIC.name(number)}" for number in numbers))
    try:
        yield ", ".join(map(FABRIC.name, numbers))
    finally:
        for number in numbers:
            await _report(site, number)


@asynccontextmanager
async def silent_agents(site: Site, rng: random.Random) -> AsyncIterator[str]:
    """The last heartbeats of some agents are too old to be trusted, until the agents report anew."""
    numbers = rng.sample(range(FABRIC.nodes), rng.randint(1, 4))
    old = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - SILENT_S))
    for number in numbers:
        await _beat(site, number, old)
    try:
        yield ", ".join(map(FABRIC.name, numbers))
    finally:
        for number in numbers:
            await _beat(site, number, None)


async def _beat(site: Site, number: int, at: str | None) -> None:
    path = f"{NODE_STATUSES}/{FABRIC.name(number)}/status"
    await change(site.api, path, {"status": {"heartbeatTime": at}})


async def _report(site: Site, number: int) -> None:
    name = FABRIC.name(number)
    await put(site.api, node_status(name))
    await change(site.api, f"{NODE_STATUSES}/{name}/status", FABRIC.report(number))


@asynccontextmanager
async def webhook_down(site: Site, rng: random.Random) -> AsyncIterator[str]:
    """The API server asks a webhook about pods that refuses connections: pods are made unchanged, or not at all."""
    policy = rng.choice(("Ignore", "Fail"))
    await put(site.api, _webhook(policy, site.api.namespace))
    try:
        yield policy
    finally:
        await patiently(lambda: site.api.delete(f"{WEBHOOKS}/{WEBHOOK}"))


def _webhook(policy: str, namespace: str) -> Manifest:
    """As the chart registers it for pods, and for changes of their devices; nobody listens on the port."""
    shared: Manifest = {
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 5,
        "failurePolicy": policy,
        "clientConfig": {"url": f"https://127.0.0.1:{free_port()}/mutate"},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
    }
    changes = " != ".join(
        f"{each}.metadata.?annotations[?'{ALLOCATED}'].orValue('')" for each in ("oldObject", "object")
    )
    conditions = [{"name": "changes-allocation", "expression": changes}]
    hooks = [
        {**shared, "name": "pods.gpu-scheduler.svc", "rules": [_pods("CREATE")]},
        {**shared, "name": "allocations.gpu-scheduler.svc", "rules": [_pods("UPDATE")], "matchConditions": conditions},
    ]
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration"}
    return {**kind, "metadata": {"name": WEBHOOK}, "webhooks": hooks}


def _pods(operation: str) -> Manifest:
    return {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": [operation]}


@asynccontextmanager
async def delete_pods(site: Site, rng: random.Random) -> AsyncIterator[str]:
    """Pods are deleted, with and without a grace period."""
    names = sorted(site.workload.pods)
    chosen = rng.sample(names, min(len(names), rng.randint(1, 6)))
    for name in chosen:
        await _delete(site, f"{site.api.pods}/{name}", rng.random() < 0.5)
    yield ", ".join(chosen)


@asynccontextmanager
async def delete_groups(site: Site, rng: random.Random) -> AsyncIterator[str]:
    """PodGroups are deleted."""
    paths = site.workload.groups()
    chosen = rng.sample(paths, min(len(paths), 3))
    for path in chosen:
        await _delete(site, path)
    yield ", ".join(path.rpartition("/")[2] for path in chosen)


@asynccontextmanager
async def delete_locks(site: Site, rng: random.Random) -> AsyncIterator[str]:
    """Leases of devices are deleted."""
    collection = LEASES.format(site.api.namespace)
    found = await patiently(lambda: site.api.list(collection, labelSelector=MANAGED))
    names = sorted(each["metadata"]["name"] for each in found)
    chosen = rng.sample(names, min(len(names), rng.randint(1, 12)))
    for name in chosen:
        await _delete(site, f"{collection}/{name}")
    yield f"{len(chosen)} of {len(names)}"


@asynccontextmanager
async def delete_election(site: Site, rng: random.Random) -> AsyncIterator[str]:
    """The Lease by which the leader is elected is deleted."""
    await _delete(site, f"{LEASES.format(site.api.namespace)}/{ELECTION}")
    yield ELECTION


async def _delete(site: Site, path: str, at_once: bool = True) -> None:
    await patiently(lambda: site.api.delete(path, at_once=at_once))
