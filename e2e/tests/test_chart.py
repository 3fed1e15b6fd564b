"""The Helm chart, rendered by the real helm: what it says and refuses, and that the API server takes every word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import gangline_profiles
from gangline.kube import resources
from gangline.kube.resources import Resource
from gangline_e2e.api import Api
from gangline_e2e.chart import CHART, RELEASE, Helm, HelmFailed, one, pod_specs
from gangline_e2e.errors import Refused
from gangline_e2e.workloads import Manifest, Manifests
from gangline_webhook import registration
from gangline_webhook.enforcing import ENFORCEMENTS, Enforcement

pytestmark = pytest.mark.timeout(300)

MONITORING = {
    "serviceMonitor": {"enabled": True},
    "prometheusRule": {"enabled": True},
    "grafanaDashboard": {"enabled": True, "annotations": {"grafana_folder": "GPUs"}},
}
VALUE_SETS: dict[str, Manifest] = {
    "defaults": {},
    "a quick lease": {
        "leaderElection": {"leaseDuration": "6s", "renewDeadline": "4s", "retryPeriod": "1s"},
    },
    "one of each": {"replicaCount": 1, "webhook": {"replicaCount": 1}, "leaderElection": {"leaderElect": False}},
    "many of each": {"replicaCount": 5, "autoscaling": {"enabled": True}, "priorityClassName": "system-node-critical"},
    "cert-manager": {"webhook": {"certificates": {"mode": "cert-manager"}}},
    "provided": {"webhook": {"certificates": {"mode": "provided", "secretName": "mine"}, "caBundle": "LS0tLS0="}},
    "monitoring": {"metrics": MONITORING, "networkPolicy": {"enabled": False}},
    "a page for some": {"ui": {"viewers": [{"kind": "Group", "name": "gpu-users"}, {"kind": "User", "name": "ann"}]}},
    "without CRDs": {"crds": {"install": False}, "policies": {"install": False}},
    "scheduler alone": {"webhook": {"enabled": False}, "agent": {"enabled": False}},
    "defragmentation": {"profiles": [{"plugins": {"multiPoint": {"enabled": [{"name": "Defragmentation"}]}}}]},
    "runtime": {"webhook": {"enforcement": "runtime", "excludeOwnNamespace": True}},
    "two profiles": {"profiles": [{}, {"schedulerName": "other"}], "config": {"podMaxBackoffSeconds": 20}},
    "everything set": {
        "imagePullSecrets": [{"name": "registry"}],
        "serviceAccount": {"name": "gpus", "annotations": {"a": "b"}},
        "env": [{"name": "A", "value": "1"}],
        "volumes": [{"name": "more", "emptyDir": {}}],
        "volumeMounts": [{"name": "more", "mountPath": "/more"}],
        "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
        "affinity": {"nodeAffinity": {}},
        "podAnnotations": {"a": "b"},
        "podLabels": {"team": "gpus"},
        "leaderElection": {"resourceNamespace": "kube-system"},
        "webhook": {"failurePolicy": "Fail", "objectSelector": {"matchLabels": {"a": "b"}}},
        "agent": {
            "simulate": "dgx-h100",
            "resourceSlices": "publish",
            "partitions": True,
            "runtimeClassName": "nvidia",
            "nodeSelector": {"a": "b"},
        },
        "scheduler": {
            "extraRules": [{"apiGroups": ["example.com"], "resources": ["racks"], "verbs": ["list"]}],
            "provisioningRequests": True,
        },
    },
}
NOT_WATCHED = (
    resources.EVENTS,
    resources.PRIORITY_CLASSES,
    resources.SECRETS,
    resources.MUTATING_WEBHOOKS,
    resources.VALIDATING_WEBHOOKS,
    resources.TOKEN_REVIEWS,
    resources.SUBJECT_ACCESS_REVIEWS,
    resources.RESOURCE_CLAIM_TEMPLATES,
    resources.POD_TEMPLATES,
    resources.PROVISIONING_REQUESTS,
)
KINDS = [each for each in vars(resources).values() if isinstance(each, Resource) and each not in NOT_WATCHED]
SERVERS = ("Deployment/gpu-scheduler", "Deployment/gpu-scheduler-webhook", "DaemonSet/gpu-scheduler-agent")
EXAMPLES = CHART.parents[1] / "examples"
POLICY = "ValidatingAdmissionPolicy"
AGENT_POLICIES = {"node-status", "node-labels", "node-status-writers", "resource-slices"}
SCHEDULER_POLICIES = {"allocations", "device-locks", "claim-status", "scheduling-map", "min-runtime"}
NOT_SERVED = {"monitoring.coreos.com/v1", "cert-manager.io/v1"}


async def test_lint_finds_nothing_to_complain_about(helm: Helm) -> None:
    assert "0 chart(s) failed" in await helm.lint()


@pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS)
async def test_the_api_server_takes_every_field_of_every_manifest(helm: Helm, cluster: Api, values: Manifest) -> None:
    manifests = await helm.render(values, cluster.namespace)

    for manifest in manifests:
        if manifest["apiVersion"] not in NOT_SERVED:
            await cluster.apply(manifest, dryRun="All")


async def test_a_field_that_the_api_server_does_not_know_is_noticed(helm: Helm, cluster: Api) -> None:
    service = one(await helm.render(None, cluster.namespace), "Service", RELEASE)
    service["spec"]["protocols"] = ["TCP"]

    with pytest.raises(Refused, match=r"spec\.protocols: field not declared in schema"):
        await cluster.apply(service, dryRun="All")


@pytest.mark.parametrize(
    ("values", "where"),
    [
        pytest.param({"replicas": 2}, "additional properties 'replicas' not allowed", id="unknown"),
        pytest.param({"webhook": {"replicas": 2}}, "at '/webhook'", id="unknown below"),
        pytest.param({"replicaCount": "two"}, "/replicaCount", id="type"),
        pytest.param({"replicaCount": -1}, "/replicaCount", id="negative"),
        pytest.param({"webhook": {"failurePolicy": "Maybe"}}, "/webhook/failurePolicy", id="failurePolicy"),
        pytest.param({"webhook": {"enforcement": "none"}}, "/webhook/enforcement", id="enforcement"),
        pytest.param({"webhook": {"timeoutSeconds": 31}}, "/webhook/timeoutSeconds", id="timeout"),
        pytest.param({"webhook": {"certificates": {"mode": "none"}}}, "/webhook/certificates/mode", id="mode"),
        pytest.param({"webhook": {"caBundle": "not base64!"}}, "/webhook/caBundle", id="caBundle"),
        pytest.param({"scheduler": {"name": "Not A Name"}}, "/scheduler/name", id="scheduler name"),
        pytest.param({"profiles": []}, "/profiles", id="no profile"),
        pytest.param({"profiles": [{"plugin": {}}]}, "/profiles/0", id="field of a profile"),
        pytest.param({"config": {"profiles": []}}, "/config", id="profiles in config"),
        pytest.param({"leaderElection": {"leaseDuration": "15"}}, "/leaderElection/leaseDuration", id="duration"),
        pytest.param({"priorityClass": {"value": 2_000_000_000}}, "/priorityClass/value", id="priority"),
        pytest.param({"logging": {"level": "loud"}}, "/logging/level", id="log level"),
        pytest.param({"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy", id="pull policy"),
    ],
)
async def test_a_wrong_value_is_refused_with_its_path(helm: Helm, values: Manifest, where: str) -> None:
    with pytest.raises(HelmFailed, match="specifications of the schema") as refused:
        await helm.render(values)

    assert where in str(refused.value)


async def test_a_certificate_that_would_be_renewed_for_ever_is_refused(helm: Helm) -> None:
    with pytest.raises(HelmFailed, match="renewBeforeDays: 30 must be less than days, 30"):
        await helm.render({"webhook": {"certificates": {"days": 30}}})


async def test_partitions_of_real_gpus_are_refused(helm: Helm) -> None:
    with pytest.raises(HelmFailed, match=r"agent\.partitions needs agent\.simulate and agent\.resourceSlices"):
        await helm.render({"agent": {"partitions": True, "resourceSlices": "publish"}})


async def test_every_value_stands_in_the_schema(helm: Helm) -> None:
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    assert set(schema["properties"]) - {"global"} == set(values)
    for name, value in values.items():
        inner = schema["properties"][name].get("properties")
        assert inner is None or set(inner) == set(value), name


async def test_every_definition_of_the_chart_is_installed_and_kept(helm: Helm) -> None:
    sources = [yaml.safe_load(file.read_text()) for file in sorted((CHART / "crds").glob("*.yaml"))]

    rendered = [each for each in await helm.render() if each["kind"] == "CustomResourceDefinition"]

    assert {each["metadata"]["name"]: each["spec"] for each in rendered} == {
        each["metadata"]["name"]: each["spec"] for each in sources
    }
    assert all(each["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep" for each in rendered)
    assert not [
        each
        for each in await helm.render({"crds": {"install": False}}, RELEASE, CHART, "--include-crds")
        if each["kind"] == "CustomResourceDefinition"
    ]


async def test_the_default_profiles_are_those_that_come_with_gangline(helm: Helm) -> None:
    rendered = await helm.render()

    names = ["gpu-scheduler", "topology-aware-scheduler"]
    ours = [profile for name in names for profile in yaml.safe_load(gangline_profiles.read(name))["profiles"]]
    assert _profiles(rendered) == ours
    (webhook,) = pod_specs(rendered)["Deployment/gpu-scheduler-webhook"]["containers"]
    assert [word for word in webhook["args"] if word.startswith("--scheduler-name=")] == [
        f"--scheduler-name={name}" for name in names
    ]


@pytest.mark.parametrize("name", ["mine", "topology-aware-scheduler"])
async def test_the_first_profile_has_the_name_that_is_asked_for_unless_another_one_has_it(
    helm: Helm, name: str
) -> None:
    names = [each["schedulerName"] for each in _profiles(await helm.render({"scheduler": {"name": name}}))]

    assert names == list(dict.fromkeys([name, "topology-aware-scheduler"]))


async def test_where_the_runtime_enforces_pods_go_where_agents_report(helm: Helm) -> None:
    mine = {
        "plugins": {"filter": {"enabled": [{"name": "GpuClaim"}]}},
        "pluginConfig": [{"name": "A"}, {"name": "GpuClaim", "args": {"implicitClaims": True}}],
    }
    values = {"webhook": {"enforcement": "runtime"}, "profiles": [mine, {"schedulerName": "none"}]}

    first, second = _profiles(await helm.render(values))

    assert first["pluginConfig"] == [
        {"name": "A"},
        {"name": "GpuClaim", "args": {"implicitClaims": True, "requireReport": True}},
    ]
    assert second == {"schedulerName": "none"}


@pytest.mark.parametrize("enforcement", ENFORCEMENTS)
@pytest.mark.parametrize("own", [False, True], ids=["all namespaces", "without its own"])
async def test_the_webhook_is_registered_as_its_own_manifests_say(
    helm: Helm, enforcement: Enforcement, own: bool
) -> None:
    webhook = {"enforcement": enforcement, **({"excludeOwnNamespace": True} if own else {})}
    rendered = await helm.render({"profiles": [{}, {"schedulerName": "other"}], "webhook": webhook})

    excluded = ["kube-system", "kube-public", "kube-node-lease", *([RELEASE] if own else [])]
    name = "gpu-scheduler-webhook"
    mutating = registration.mutating(
        name,
        _client("/mutate"),
        scheduler_names=["gpu-scheduler", "other"],
        enforcement=enforcement,
        own=(RELEASE, "gpu-scheduler-agent"),
        exclude_namespaces=excluded,
    )
    validating = registration.validating(name, _client("/validate"), exclude_namespaces=excluded)
    for ours in (mutating, validating):
        theirs = one(rendered, ours["kind"], name)["webhooks"]
        assert [_on_one_line(each) for each in theirs] == ours["webhooks"]


async def test_all_pods_run_without_privileges(helm: Helm) -> None:
    specs = pod_specs(await helm.render())

    assert len(specs) == 6
    for spec in specs.values():
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            security = container["securityContext"]
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert security["readOnlyRootFilesystem"] is True
            assert (security["runAsUser"], security["allowPrivilegeEscalation"]) == (1000, False)
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}


async def test_every_server_is_probed_where_it_listens(helm: Helm) -> None:
    rendered = await helm.render()

    for component in SERVERS:
        (container,) = pod_specs(rendered)[component]["containers"]
        ports = {each["name"]: each["containerPort"] for each in container["ports"]}
        probes = [container[probe]["httpGet"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")]
        assert [each["path"] for each in probes] == ["/healthz", "/healthz", "/readyz"]
        assert all(f"--listen=0.0.0.0:{ports[each['port']]}" in container["args"] for each in probes)


async def test_each_component_has_a_service_account_of_its_own(helm: Helm) -> None:
    rendered = await helm.render()

    accounts = {name: spec["serviceAccountName"] for name, spec in pod_specs(rendered).items()}
    made = {each["metadata"]["name"] for each in rendered if each["kind"] == "ServiceAccount"}
    assert accounts == {
        "Deployment/gpu-scheduler": "gpu-scheduler",
        "Deployment/gpu-scheduler-webhook": "gpu-scheduler-webhook",
        "DaemonSet/gpu-scheduler-agent": "gpu-scheduler-agent",
        "CronJob/gpu-scheduler-certs": "gpu-scheduler-certs",
        "Job/gpu-scheduler-certs-register": "gpu-scheduler-certs",
        "Job/gpu-scheduler-certs-first": "gpu-scheduler-certs-first",
    }
    assert made == set(accounts.values())


@pytest.mark.parametrize("resource", KINDS, ids=lambda each: f"{each.plural}.{each.group}")
async def test_the_scheduler_may_follow_every_kind_that_it_knows(helm: Helm, resource: Resource[Any]) -> None:
    rendered = await helm.render()

    rules = one(rendered, "ClusterRole", "gpu-scheduler-scheduler")["rules"]
    rules += [rule for role in _roles_in(rendered, RELEASE) for rule in role["rules"]]
    verbs = {
        verb
        for rule in rules
        if resource.group in rule["apiGroups"] and resource.plural in rule["resources"]
        for verb in rule["verbs"]
    }
    assert verbs >= {"list", "watch"}


@pytest.mark.parametrize("enabled", [False, True], ids=["off", "on"])
async def test_the_scheduler_may_ask_for_nodes_only_if_a_value_says_so(helm: Helm, enabled: bool) -> None:
    rendered = await helm.render({"scheduler": {"provisioningRequests": enabled}})

    rules = one(rendered, "ClusterRole", "gpu-scheduler-scheduler")["rules"]
    verbs = {resource: set(rule["verbs"]) for rule in rules for resource in rule.get("resources", ())}
    expected = {"get", "list", "watch", "create", "delete"} if enabled else set()
    assert verbs.get("provisioningrequests", set()) == expected
    assert ("podtemplates" in verbs) == enabled


@pytest.mark.parametrize(
    ("args", "namespace", "creates"),
    [
        pytest.param(None, "kube-system", False, id="by hand"),
        pytest.param({"namespace": "moves", "intervalSeconds": 300}, "moves", True, id="in the background"),
    ],
)
async def test_defragmentation_may_write_where_it_keeps_what_it_moves(
    helm: Helm, args: Manifest | None, namespace: str, creates: bool
) -> None:
    profile: Manifest = {"plugins": {"multiPoint": {"enabled": [{"name": "Defragmentation"}]}}}
    if args is not None:
        profile["pluginConfig"] = [{"name": "Defragmentation", "args": args}]

    role = one(await helm.render({"profiles": [profile]}), "Role", "gpu-scheduler-scheduler-moves")

    assert role["metadata"]["namespace"] == namespace
    assert [rule["verbs"] for rule in role["rules"][1:]] == [["create"]] * creates


async def test_no_role_has_a_wildcard_or_all_secrets(helm: Helm) -> None:
    rendered = await helm.render()

    rules = [rule for each in rendered if each["kind"] in ("Role", "ClusterRole") for rule in each["rules"]]
    assert rules
    assert not [rule for rule in rules if "*" in [word for words in rule.values() for word in words]]
    secrets = [rule for rule in rules if "secrets" in rule.get("resources", ())]
    assert all(
        rule["verbs"] == ["create"] or rule["resourceNames"] == ["gpu-scheduler-webhook-cert"] for rule in secrets
    )


async def test_monitoring_scrapes_every_service_on_a_port_that_it_has(helm: Helm) -> None:
    rendered = await helm.render({"metrics": MONITORING})

    monitor = one(rendered, "ServiceMonitor", "gpu-scheduler")["spec"]
    services = [each for each in rendered if each["kind"] == "Service"]
    labels = monitor["selector"]["matchLabels"].items()
    assert all(each["metadata"]["labels"].items() >= labels for each in services)
    for endpoint in monitor["endpoints"]:
        assert all(endpoint["port"] in [port["name"] for port in each["spec"]["ports"]] for each in services)
    (group,) = one(rendered, "PrometheusRule", "gpu-scheduler")["spec"]["groups"]
    assert all({"alert", "expr", "labels", "annotations"} <= rule.keys() for rule in group["rules"])
    page = "https://github.com/gangline/gangline/blob/main/docs/operating/runbooks.md"
    links = {rule["alert"]: rule["annotations"]["runbook_url"] for rule in group["rules"]}
    assert links == {alert: f"{page}#{alert.lower()}" for alert in links}


async def test_the_dashboard_is_the_file_and_is_left_out_by_default(helm: Helm) -> None:
    file = json.loads((CHART / "dashboards" / "gangline.json").read_text(encoding="utf-8"))
    rendered = await helm.render({"metrics": {"grafanaDashboard": {"enabled": True, "namespace": "grafana"}}})

    found = one(rendered, "ConfigMap", "gpu-scheduler-dashboard")
    assert json.loads(found["data"]["gangline.json"]) == file
    assert found["metadata"]["namespace"] == "grafana" and found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert "gpu-scheduler-dashboard" not in [each["metadata"]["name"] for each in await helm.render()]


async def test_the_page_is_for_whom_a_value_names(helm: Helm) -> None:
    viewers = [{"kind": "Group", "name": "gpu-users"}, {"kind": "ServiceAccount", "name": "a", "namespace": "b"}]
    manifests = await helm.render({"ui": {"viewers": viewers}})

    assert one(manifests, "ClusterRole", f"{RELEASE}-ui-viewer")["rules"] == [
        {"nonResourceURLs": ["/ui", "/ui/*"], "verbs": ["get"]}
    ]
    subjects = one(manifests, "ClusterRoleBinding", f"{RELEASE}-ui-viewer")["subjects"]
    assert [(each["kind"], each["name"], each.get("namespace")) for each in subjects] == [
        ("Group", "gpu-users", None),
        ("ServiceAccount", "a", "b"),
    ]


@pytest.mark.parametrize("enabled", [True, False])
async def test_the_page_can_be_turned_off(helm: Helm, enabled: bool) -> None:
    manifests = await helm.render({"ui": {"enabled": enabled}})

    (container,) = pod_specs(manifests)["Deployment/gpu-scheduler"]["containers"]
    assert ("--no-ui" in container["args"]) is not enabled
    assert any(each["metadata"]["name"] == f"{RELEASE}-ui-viewer" for each in manifests) is enabled


async def test_cert_manager_makes_the_secret_that_the_webhook_mounts(helm: Helm) -> None:
    rendered = await helm.render({"webhook": {"certificates": {"mode": "cert-manager"}}})

    certificate = one(rendered, "Certificate", "gpu-scheduler-webhook")["spec"]
    assert certificate["secretName"] == _mounted_secret(rendered)
    assert "gpu-scheduler-webhook.gpu-scheduler.svc" in certificate["dnsNames"]
    assert certificate["issuerRef"] == {"kind": "Issuer", "name": "gpu-scheduler-webhook"}
    configuration = one(rendered, "MutatingWebhookConfiguration", "gpu-scheduler-webhook")
    injected = configuration["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]
    assert injected == "gpu-scheduler/gpu-scheduler-webhook"
    assert not [each for each in rendered if each["kind"] in ("Job", "CronJob")]


async def test_provided_certificates_are_mounted_and_trusted(helm: Helm) -> None:
    rendered = await helm.render(VALUE_SETS["provided"])

    assert _mounted_secret(rendered) == "mine"
    webhooks = one(rendered, "ValidatingWebhookConfiguration", "gpu-scheduler-webhook")["webhooks"]
    assert {each["clientConfig"]["caBundle"] for each in webhooks} == {"LS0tLS0="}
    assert not [each for each in rendered if each["kind"] in ("Job", "CronJob", "Certificate")]


async def test_the_policies_name_the_accounts_of_this_release_and_who_is_trusted(helm: Helm) -> None:
    rendered = await helm.render(
        {"serviceAccount": {"name": "gpus"}, "policies": {"trustedUsers": ["a", "b:c"]}}, "elsewhere"
    )

    conditions = _conditions(rendered)
    for name in AGENT_POLICIES:
        assert "'^system:serviceaccount:elsewhere:gpus-agent$'" in conditions[name]
    for name in ("allocations", "device-locks", "claim-status", "node-status-writers"):
        assert (
            "!(request.userInfo.username in ['system:serviceaccount:elsewhere:gpus', 'a', 'b:c'])" in conditions[name]
        )
    assert conditions.keys() == {*AGENT_POLICIES, *SCHEDULER_POLICIES}


async def test_every_policy_fails_closed_and_has_its_binding(helm: Helm) -> None:
    rendered = await helm.render()

    policies = {each["metadata"]["name"]: each for each in rendered if each["kind"] == POLICY}
    bound = {each["spec"]["policyName"]: each for each in rendered if each["kind"] == f"{POLICY}Binding"}
    assert {each["spec"]["failurePolicy"] for each in policies.values()} == {"Fail"}
    assert bound.keys() == policies.keys()
    actions = {name: each["spec"]["validationActions"] for name, each in bound.items()}
    assert actions.pop("gpu-scheduler-min-runtime") == ["Warn", "Audit"]
    assert all(each == ["Deny"] for each in actions.values())


async def test_without_agents_nobody_is_held_to_a_node(helm: Helm) -> None:
    rendered = await helm.render({"agent": {"enabled": False}})

    assert _conditions(rendered).keys() == SCHEDULER_POLICIES


async def test_a_permission_is_asked_for_where_the_profile_asks_for_it(helm: Helm) -> None:
    enabled = {"multiPoint": {"enabled": [{"name": "GpuSchedulingMap"}, {"name": "GangPreemption"}]}}
    trusting = [{"name": "GpuSchedulingMap", "args": {"requirePermission": False}}]
    profiles = [
        {"schedulerName": "strict", "plugins": enabled},
        {"schedulerName": "trusting", "plugins": enabled, "pluginConfig": trusting},
        {"schedulerName": "plain"},
    ]

    some = _conditions(await helm.render({"profiles": profiles}))
    none = _conditions(await helm.render({"profiles": profiles[2:]}))

    assert "in ['strict']" in some["scheduling-map"]
    assert "in ['strict', 'trusting']" in some["min-runtime"]
    assert none.keys() == {*AGENT_POLICIES, *SCHEDULER_POLICIES} - {"scheduling-map", "min-runtime"}


async def test_a_packaged_chart_renders_the_same(helm: Helm, tmp_path: Path) -> None:
    await helm.run("package", str(CHART), "--destination", str(tmp_path))
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]

    package = tmp_path / f"gpu-scheduler-{version}.tgz"
    assert await helm.render(None, RELEASE, package) == await helm.render()


async def test_the_configuration_of_leaves_is_read_where_it_counts_and_where_it_may_land(helm: Helm) -> None:
    rendered = await helm.render()

    for namespace in (RELEASE, "kube-system", "default"):
        (role,) = [each for each in _roles_in(rendered, namespace) if each["metadata"]["name"].endswith("-leaves")]
        verbs = {kind: set(rule["verbs"]) for rule in role["rules"] for kind in rule["resources"]}
        status = {"domainconfigs/status": {"patch"}} if namespace != "default" else {}
        assert verbs == status | {
            kind: {"list", "watch"}
            for kind in ("schedulerconfigs", "topologyschedulerconfigs", "domainconfigs", "configmaps")
        }


@pytest.mark.parametrize("value", ["", "publish", "withdraw"])
async def test_an_agent_may_write_slices_where_it_is_told_to(helm: Helm, value: str) -> None:
    rendered = await helm.render({"agent": {"resourceSlices": value}})

    rules = one(rendered, "ClusterRole", "gpu-scheduler-agent")["rules"]
    (container,) = pod_specs(rendered)["DaemonSet/gpu-scheduler-agent"]["containers"]
    found = [word for word in container["args"] if "slices" in word]
    assert found == ([f"--resource-slices={value}"] if value else [])
    assert ("resourceslices" in {kind for rule in rules for kind in rule["resources"]}) is bool(value)


async def test_an_agent_comes_to_a_node_that_nobody_has_labelled(helm: Helm) -> None:
    spec = pod_specs(await helm.render())["DaemonSet/gpu-scheduler-agent"]

    (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert {each["operator"] for each in term["matchExpressions"]} == {"NotIn"}


def _roles_in(rendered: Manifests, namespace: str) -> Manifests:
    """The scheduler's roles in a namespace."""
    roles = [each for each in rendered if each["kind"] == "Role" and each["metadata"]["namespace"] == namespace]
    return [each for each in roles if each["metadata"]["name"].startswith("gpu-scheduler-scheduler")]


def _client(path: str) -> Manifest:
    """How the chart leads to the webhook; the caBundle is written later."""
    service = {"namespace": RELEASE, "name": "gpu-scheduler-webhook", "path": path, "port": 443}
    return {"service": service}


def _conditions(rendered: Manifests) -> dict[str, str]:
    """The match conditions of each policy, by its name without what all of them begin with."""
    policies = [each for each in rendered if each["kind"] == POLICY]
    return {
        each["metadata"]["name"].removeprefix("gpu-scheduler-"): " ".join(
            condition["expression"] for condition in each["spec"]["matchConditions"]
        )
        for each in policies
    }


def _on_one_line(webhook: Manifest) -> Manifest:
    conditions = webhook.get("matchConditions", [])
    folded = [{**each, "expression": " ".join(each["expression"].split())} for each in conditions]
    return {**webhook, "matchConditions": folded} if folded else webhook


def _profiles(rendered: Manifests) -> Any:
    """The profiles in the scheduler's configuration."""
    config = one(rendered, "ConfigMap", "gpu-scheduler-config")["data"]["config.yaml"]
    return yaml.safe_load(config)["profiles"]


def _mounted_secret(rendered: Manifests) -> str:
    volumes = pod_specs(rendered)["Deployment/gpu-scheduler-webhook"]["volumes"]
    name: str = next(each["secret"]["secretName"] for each in volumes if "secret" in each)
    return name
