"""Builds the manifests that tell the API server when to call the webhook; pure, the chart says the same in YAML.

Rules
- The webhook gets only pods that concern GPUs: the API server evaluates the conditions, and other pods cost nothing.
- The webhook does not get Gangline's own pods; otherwise a new cluster would wait for itself. It does get other pods in
  Gangline's namespace.
- Each call has a time-out of a few seconds, and by default pods are created even if the webhook is away.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Literal

from gangline.wire.custom_resources import (
    ALLOCATED,
    ALLOCATED_UUIDS,
    CLAIM,
    GPU,
    GPU_GROUP,
    GPU_VERSION,
    MIG_PREFIX,
    RANKS,
    SCHEDULING_MAP,
)
from gangline_webhook.enforcing import Enforcement
from gangline_webhook.reviewing import VERSIONS

Manifest = dict[str, Any]
FailurePolicy = Literal["Ignore", "Fail"]

API_VERSION = "admissionregistration.k8s.io/v1"
TIMEOUT = 5
"""Seconds that the API server waits."""

_ANNOTATIONS = "object.metadata.?annotations.orValue({})"
_CONTAINERS = "(object.spec.containers + object.spec.?initContainers.orValue([]))"
_CHOOSES_ITSELF = (
    f"{_CONTAINERS}.exists(c, has(c.env) && c.env.exists(e, e.name == 'NVIDIA_VISIBLE_DEVICES' "
    "&& (has(e.valueFrom) || !(e.?value.orValue('') in ['', 'void', 'none']))))"
)
_REQUESTS_GPUS = (
    f"{_CONTAINERS}.exists(c, has(c.resources) && has(c.resources.limits) && c.resources.limits.exists(name, "
    f"name.startsWith('{GPU}') || name.startsWith('{MIG_PREFIX}')))"
)


def at_url(url: str, authority: bytes) -> Manifest:
    """A client configuration for a webhook outside the cluster; ``authority`` is PEM."""
    return {"url": url, "caBundle": base64.b64encode(authority).decode()}


def at_service(namespace: str, name: str, path: str, authority: bytes) -> Manifest:
    """A client configuration for a webhook behind a Service on port 443; ``authority`` is PEM."""
    service = {"namespace": namespace, "name": name, "path": path, "port": 443}
    return {"service": service, "caBundle": base64.b64encode(authority).decode()}


def mutating(
    name: str,
    client: Manifest,
    *,
    scheduler_names: Sequence[str] = ("gpu-scheduler",),
    enforcement: Enforcement = "device-plugin",
    own: tuple[str, str] | None = None,
    exclude_namespaces: Sequence[str] = ("kube-system",),
    failure_policy: FailurePolicy = "Ignore",
) -> Manifest:
    """The MutatingWebhookConfiguration for new pods; ``client`` leads to /mutate.

    ``own`` has the namespace and the label ``app`` of the agents, which have to see every GPU.
    """
    conditions = [{"name": "concerns-gpus", "expression": concerns_gpus(scheduler_names, enforcement)}]
    if own is not None:
        conditions.append({"name": "is-no-agent", "expression": is_no_agent(*own)})
    webhook = {
        **_common(client, exclude_namespaces, failure_policy),
        "name": "pods.gpu-scheduler.svc",
        "rules": [_rule("", "v1", "pods", "CREATE")],
        "matchConditions": conditions,
        "reinvocationPolicy": "IfNeeded",
    }
    return _configuration("MutatingWebhookConfiguration", name, [webhook])


def validating(
    name: str,
    client: Manifest,
    *,
    exclude_namespaces: Sequence[str] = ("kube-system",),
    failure_policy: FailurePolicy = "Ignore",
) -> Manifest:
    """The ValidatingWebhookConfiguration for claims, for pods whose allocation changes, and for Jobs that want ranks.

    ``client`` leads to /validate. A binding is not an update, so the scheduler is not asked.
    """
    common = _common(client, exclude_namespaces, failure_policy)
    claims = {
        **common,
        "name": "claims.gpu-scheduler.svc",
        "rules": [_rule(GPU_GROUP, GPU_VERSION, "gpuclaims", "CREATE", "UPDATE")],
    }
    pods = {
        **common,
        "name": "allocations.gpu-scheduler.svc",
        "rules": [_rule("", "v1", "pods", "UPDATE")],
        "matchConditions": [{"name": "changes-allocation", "expression": changes_allocation()}],
    }
    jobs = {
        **common,
        "name": "ranks.gpu-scheduler.svc",
        "failurePolicy": "Ignore",  # it only warns
        "rules": [_rule("batch", "v1", "jobs", "CREATE")],
        "matchConditions": [{"name": "asks-for-ranks", "expression": asks_for_ranks()}],
    }
    return _configuration("ValidatingWebhookConfiguration", name, [claims, pods, jobs])


def concerns_gpus(scheduler_names: Sequence[str], enforcement: Enforcement = "device-plugin") -> str:
    """In CEL: a new pod has a claim, our map or a forged allocation, asks for ranks, or sets the runtime's variable.

    If the runtime enforces, also pods of our schedulers that request GPUs.
    """
    is_ours = f"object.spec.schedulerName in [{', '.join(map(_quoted, scheduler_names))}]"
    cases = [
        f"{_quoted(CLAIM)} in {_ANNOTATIONS}",
        f"({_quoted(SCHEDULING_MAP)} in {_ANNOTATIONS} && {is_ours})",
        f"{_quoted(RANKS)} in {_ANNOTATIONS}",
        f"{_ANNOTATIONS}.exists(key, key.startsWith({_quoted(ALLOCATED)}))",
        _CHOOSES_ITSELF,
    ]
    if enforcement == "runtime":
        cases.append(f"({is_ours} && {_REQUESTS_GPUS})")
    return " || ".join(cases)


def is_no_agent(namespace: str, app: str) -> str:
    """In CEL: a pod is no agent. Only a user who may create pods in our namespace could imitate an agent."""
    label = "object.metadata.?labels.?app.orValue('')"
    return f"!(request.namespace == {_quoted(namespace)} && {label} == {_quoted(app)})"


def asks_for_ranks() -> str:
    """In CEL: the pods of a new Job ask for ranks."""
    return f"{_quoted(RANKS)} in object.spec.template.?metadata.?annotations.orValue({{}})"


def changes_allocation() -> str:
    """In CEL: an update changes an annotation that only the scheduler may set."""
    keys = ", ".join(_quoted(key) for key in (ALLOCATED, ALLOCATED_UUIDS))
    before, after = "oldObject.metadata.?annotations[?key]", "object.metadata.?annotations[?key]"
    return f"[{keys}].exists(key, {before}.orValue('') != {after}.orValue(''))"


def _configuration(kind: str, name: str, webhooks: list[Manifest]) -> Manifest:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "webhooks": webhooks}


def _common(client: Manifest, exclude_namespaces: Sequence[str], failure_policy: FailurePolicy) -> Manifest:
    excluded = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": list(exclude_namespaces)}
    return {
        "clientConfig": client,
        "admissionReviewVersions": [version.rpartition("/")[2] for version in VERSIONS],
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT,
        "failurePolicy": failure_policy,
        "matchPolicy": "Equivalent",
        "namespaceSelector": {"matchExpressions": [excluded]} if exclude_namespaces else {},
    }


def _rule(group: str, version: str, resource: str, *operations: str) -> Manifest:
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": [resource],
        "operations": list(operations),
        "scope": "Namespaced",
    }


def _quoted(text: str) -> str:
    """A string in CEL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
