"""Has the API server refuse to bind some pods, so that a scheduler stays in the middle of its work."""

from __future__ import annotations

from gangline_e2e.api import Api
from gangline_e2e.asking import is_refused
from gangline_e2e.workloads import binding, gpu_pod


async def refuse_to_bind(api: Api, names: str) -> str:
    """Have the API server refuse to bind pods whose names match; the path of what to delete to end that."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]}
    version, name, probe = "admissionregistration.k8s.io/v1", f"guard-{api.namespace}", "probe"
    validation = {
        "expression": f"!object.metadata.name.matches('^({names}|{probe})$')",
        "messageExpression": "object.metadata.name + ' may not be bound'",
    }
    policy = {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule]}, "validations": [validation]}
    bind = {"policyName": name, "validationActions": ["Deny"]}
    for kind, spec in (("ValidatingAdmissionPolicy", policy), ("ValidatingAdmissionPolicyBinding", bind)):
        await api.create({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec})
    await api.create(gpu_pod(probe, gpus=0, scheduler_name="nobody"))
    path, nowhere = f"{api.pods}/{probe}/binding", binding(probe, "nowhere")
    await api.until(lambda: is_refused(api, path, nowhere, "may not be bound"), "the policy is in force")
    await api.delete(f"{api.pods}/{probe}", at_once=True)
    return f"/apis/{version}/validatingadmissionpolicybindings/{name}"
