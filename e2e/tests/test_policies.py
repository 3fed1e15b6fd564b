"""What the chart's admission policies refuse, and whom: allocations, device locks and reports cannot be made up.

There is neither a webhook nor a scheduler: what holds here holds while both are away.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from gangline_e2e.errors import Refused
from gangline_e2e.gpu_crds import NODE_STATUSES, claim, node_status
from gangline_e2e.guarded import (
    AGENT,
    ALLOCATED,
    CLAIMS,
    LEASES,
    MAP,
    MIN_RUNTIME,
    SECOND,
    TEAM,
    UUIDS,
    Guarded,
    annotated,
    give,
    lease,
    plain_pod,
    warnings,
)
from gangline_e2e.guarded import (
    guarded as guarded_cluster,
)
from gangline_e2e.workloads import Manifest, binding

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
REFUSED = "only the scheduler sets gpu.scheduling/allocated"

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guarded(helm_program: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Guarded]:
    """The cluster that all tests share."""
    async with guarded_cluster(tmp_path_factory.mktemp("policies"), helm_program) as found:
        yield found


async def test_every_expression_fits_the_types_of_what_it_judges(guarded: Guarded) -> None:
    async def judged() -> list[Manifest] | None:
        found = await guarded.api.list(POLICIES)
        return found if all("typeChecking" in each.get("status", {}) for each in found) else None

    policies = await guarded.api.until(judged, "the controller has checked all policies", timeout_s=60)

    assert len(policies) == 9
    warnings = [each["status"]["typeChecking"].get("expressionWarnings", []) for each in policies]
    assert [each for each in warnings if each] == []


@pytest.mark.parametrize("who", ["alice", "admin", f"system:serviceaccount:{TEAM}:gpu-scheduler"])
@pytest.mark.parametrize("key", [ALLOCATED, UUIDS, f"{ALLOCATED}-by-me"])
async def test_a_pod_that_brings_an_allocation_is_refused(guarded: Guarded, who: str, key: str) -> None:
    user = guarded.user(who, "system:masters")

    with pytest.raises(Refused, match=f"only the scheduler sets {key}"):
        await user.create(plain_pod("forger", {key: "0"}))


@pytest.mark.parametrize("path", ["older", "older/status"])
@pytest.mark.parametrize("value", ["7", None], ids=["changed", "removed"])
async def test_an_allocation_is_not_changed_or_removed_by_others(
    guarded: Guarded, path: str, value: str | None
) -> None:
    with pytest.raises(Refused, match=REFUSED):
        await guarded.alice.patch(path, annotated({ALLOCATED: value}))

    pod = await guarded.api.get(f"{guarded.api.pods}/older")
    assert pod["metadata"]["annotations"][ALLOCATED] == "0,1"


@pytest.mark.parametrize("path", ["", "/status"], ids=["pod", "status"])
async def test_an_allocation_is_not_added_to_a_pod_by_others(guarded: Guarded, path: str) -> None:
    await guarded.alice.create(plain_pod(name := f"plain{path.replace('/', '-')}"))

    with pytest.raises(Refused, match=REFUSED):
        await guarded.alice.patch(name + path, annotated({ALLOCATED: "0"}))
    await guarded.scheduler.patch(name + path, annotated({ALLOCATED: "0"}))  # such a write does reach the pod

    pod = await guarded.api.get(f"{guarded.api.pods}/{name}")
    assert pod["metadata"]["annotations"][ALLOCATED] == "0"


@pytest.mark.parametrize("path", ["pods/{}/binding", "bindings"])
async def test_a_binding_brings_an_allocation_from_the_scheduler_alone(guarded: Guarded, path: str) -> None:
    await guarded.alice.create(plain_pod(name := f"bound-{path[:4].strip('/')}"))
    where = f"/api/v1/namespaces/{TEAM}/{path.format(name)}"

    with pytest.raises(Refused, match=REFUSED):
        await guarded.alice.create(binding(name, "node-a", {ALLOCATED: "0"}), where)
    await guarded.scheduler.create(binding(name, "node-a", {ALLOCATED: "0"}), where)

    pod = await guarded.api.get(f"{guarded.api.pods}/{name}")
    assert (pod["spec"]["nodeName"], pod["metadata"]["annotations"][ALLOCATED]) == ("node-a", "0")


async def test_a_scheduler_that_is_trusted_by_name_may_bind_with_an_allocation(guarded: Guarded) -> None:
    await guarded.alice.create(plain_pod("second"))

    await guarded.user(SECOND).create(
        binding("second", "node-a", {ALLOCATED: "0"}), f"{guarded.api.pods}/second/binding"
    )

    assert (await guarded.api.get(f"{guarded.api.pods}/second"))["metadata"]["annotations"][ALLOCATED] == "0"


async def test_other_schedulers_bind_pods_without_allocations(guarded: Guarded) -> None:
    await guarded.alice.create(plain_pod("foreign"))

    await guarded.alice.create(binding("foreign", "node-a"), f"{guarded.api.pods}/foreign/binding")

    assert (await guarded.api.get(f"{guarded.api.pods}/foreign"))["spec"]["nodeName"] == "node-a"


async def test_a_pod_with_an_allocation_stays_in_the_hands_of_kubelets_controllers_and_users(guarded: Guarded) -> None:
    kubelet = guarded.user("system:node:node-a", "system:nodes")
    debugger = {"name": "debug", "image": "debug:1", "terminationMessagePolicy": "File", "imagePullPolicy": "Always"}
    pod = await guarded.api.get(f"{guarded.api.pods}/older")

    await kubelet.patch("older/status", {"status": {"phase": "Running"}})
    await guarded.alice.patch("older", {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}})
    await guarded.alice.ask("PUT", f"{guarded.api.pods}/older/ephemeralcontainers", _with(pod, debugger))

    pod = await guarded.api.get(f"{guarded.api.pods}/older")
    assert pod["metadata"]["annotations"] | {ALLOCATED: "0,1", "c": "d"} == pod["metadata"]["annotations"]
    assert pod["status"]["phase"] == "Running"
    assert [each["name"] for each in pod["spec"]["ephemeralContainers"]] == ["debug"]


@pytest.mark.parametrize("path", ["ephemeralcontainers", "resize"])
async def test_no_other_way_to_a_pod_takes_an_allocation_along(guarded: Guarded, path: str) -> None:
    await guarded.alice.create(plain_pod(name := f"by-{path}"))
    pod = await guarded.api.get(f"{guarded.api.pods}/{name}")
    pod["metadata"]["annotations"] = {ALLOCATED: "0"}

    try:
        await guarded.alice.ask("PUT", f"{guarded.api.pods}/{name}/{path}", pod)
    except Refused as error:
        assert error.status == 403 and REFUSED in error.message

    stored = await guarded.api.get(f"{guarded.api.pods}/{name}")
    assert ALLOCATED not in stored["metadata"].get("annotations", {})


async def test_a_template_that_brings_an_allocation_makes_no_pods_and_says_why(guarded: Guarded) -> None:
    pod = plain_pod("", {ALLOCATED: "0"}, labels={"app": "forger"})
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "forger"}}, "template": pod}
    path = f"/apis/apps/v1/namespaces/{TEAM}/replicasets"
    await guarded.alice.create(
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "forger"}, "spec": spec}, path
    )

    async def said() -> str | None:
        status = (await guarded.api.get(f"{path}/forger")).get("status", {})
        messages: list[str] = [
            each["message"] for each in status.get("conditions", []) if each["type"] == "ReplicaFailure"
        ]
        return messages[0] if messages else None

    assert REFUSED in await guarded.api.until(said, "the ReplicaSet says why it has no pods")
    await guarded.api.delete(f"{path}/forger")


async def test_device_locks_are_written_by_the_scheduler_alone(guarded: Guarded) -> None:
    lock = lease("gpu-node-a-0", {"gpu.scheduling/managed": "true"})
    refused = "only the scheduler writes the Leases that lock devices"

    with pytest.raises(Refused, match=refused):
        await guarded.alice.create(lock, LEASES)
    await guarded.scheduler.create(lock, LEASES)
    for patch in ({"spec": {"holderIdentity": "me"}}, {"metadata": {"labels": {"gpu.scheduling/managed": None}}}):
        with pytest.raises(Refused, match=refused):
            await guarded.alice.patch(f"{LEASES}/gpu-node-a-0", patch)
    await guarded.alice.create(lease("mine"), LEASES)
    with pytest.raises(Refused, match=refused):
        await guarded.alice.patch(f"{LEASES}/mine", {"metadata": {"labels": {"gpu.scheduling/managed": "true"}}})

    await guarded.alice.ask("DELETE", f"{LEASES}/gpu-node-a-0")  # whom RBAC lets may do that: namespaces have to end


async def test_what_a_claim_has_come_to_is_written_by_the_scheduler_alone(guarded: Guarded) -> None:
    path = CLAIMS
    await guarded.alice.create(claim("mine"), path)

    with pytest.raises(Refused, match="only the scheduler writes the status of a GpuClaim"):
        await guarded.alice.patch(f"{path}/mine/status", {"status": {"phase": "Bound", "allocated": "node-a:0"}})
    await guarded.scheduler.patch(f"{path}/mine/status", {"status": {"phase": "Pending"}})
    await guarded.alice.patch(f"{path}/mine", {"metadata": {"labels": {"a": "b"}}})

    assert (await guarded.api.get(f"{path}/mine"))["status"] == {"phase": "Pending"}


async def test_which_gpus_a_node_has_is_said_by_its_agent_alone(guarded: Guarded) -> None:
    agent = {
        "Impersonate-User": AGENT,
        "Impersonate-Extra-authentication.kubernetes.io%2Fnode-name": "node-a",
    }
    collector = guarded.user("system:serviceaccount:kube-system:generic-garbage-collector", "system:masters")
    refused = "only the agent of a node says which GPUs it has"

    with pytest.raises(Refused, match=refused):
        await guarded.user("admin", "system:masters").create(node_status("node-a"), NODE_STATUSES)
    await guarded.api.request("POST", NODE_STATUSES, node_status("node-a"), headers=agent)
    with pytest.raises(Refused, match=refused):
        await collector.patch(f"{NODE_STATUSES}/node-a/status", {"status": {"total": 8}})

    await collector.patch(f"{NODE_STATUSES}/node-a", {"metadata": {"ownerReferences": None}})
    await collector.ask("DELETE", f"{NODE_STATUSES}/node-a")


@pytest.mark.parametrize(
    ("allow", "allowed"),
    [
        pytest.param(None, False, id="nothing"),
        pytest.param("min-runtime", False, id="another"),
        pytest.param(f"{'x,' * 512}scheduling-map", False, id="too long"),
        pytest.param("min-runtime , scheduling-map", True, id="by name"),
        pytest.param("*", True, id="all"),
    ],
)
async def test_a_map_needs_a_permission_of_the_namespace(guarded: Guarded, allow: str | None, allowed: bool) -> None:
    await _allow(guarded, allow, "scheduling-map" if allowed else "")

    if allowed:
        await guarded.alice.create(plain_pod("", {MAP: "0=node-a:0"}))
        return
    with pytest.raises(Refused, match=f"the namespace {TEAM} may not use gpu-scheduling-map"):
        await guarded.alice.create(plain_pod("", {MAP: "0=node-a:0"}))


async def test_a_map_is_not_slipped_in_later(guarded: Guarded) -> None:
    await _allow(guarded, None)
    await guarded.alice.create(plain_pod("late-map"))

    for path in ("late-map", "late-map/status"):
        with pytest.raises(Refused, match="may not use gpu-scheduling-map"):
            await guarded.alice.patch(path, annotated({MAP: "0=node-a:0"}))


async def test_a_map_of_another_scheduler_is_none_of_our_business(guarded: Guarded) -> None:
    await _allow(guarded, None)

    stored = await guarded.alice.create(plain_pod("", {MAP: "0=node-a:0"}, scheduler="default-scheduler"))

    assert stored["metadata"]["annotations"][MAP] == "0=node-a:0"


async def test_a_tenant_cannot_give_permissions_to_its_own_namespace(guarded: Guarded) -> None:
    await give(guarded.api, "RoleBinding", "bob", "admin")

    with pytest.raises(Refused, match='User "bob" cannot patch resource "namespaces"'):
        await guarded.user("bob").patch(f"/api/v1/namespaces/{TEAM}", annotated({"gangline.dev/allow": "*"}))


async def test_protection_that_is_not_permitted_is_warned_about(guarded: Guarded) -> None:
    await _allow(guarded, None)
    warning = f"{MIN_RUNTIME} is not obeyed: the annotation gangline.dev/allow of the namespace {TEAM} does not name"

    warned = await warnings(guarded.api, plain_pod("", {MIN_RUNTIME: "1h"}))
    plain = await warnings(guarded.api, plain_pod(""))

    assert plain == []
    assert [warning in each for each in warned] == [True]


async def _allow(guarded: Guarded, value: str | None, name: str = "") -> None:
    """Write the permissions of the team, and wait until the API server judges by them; ``name`` is the map's."""
    await guarded.api.merge(f"/api/v1/namespaces/{TEAM}", annotated({"gangline.dev/allow": value}))

    async def judged() -> bool:
        try:
            await guarded.alice.ask("POST", guarded.api.pods, plain_pod("", {MAP: "0=node-a:0"}), dryRun="All")
        except Refused:
            return not name
        return bool(name)

    await guarded.api.until(judged, "the API server knows the permissions")


def _with(pod: Manifest, debugger: Manifest) -> Manifest:
    return {**pod, "metadata": _unversioned(pod), "spec": {**pod["spec"], "ephemeralContainers": [debugger]}}


def _unversioned(pod: Manifest) -> Manifest:
    return {key: value for key, value in pod["metadata"].items() if key != "resourceVersion"}
