"""Manifests, command lines and discovery are pure: what goes in decides what comes out."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from cryptography import x509

from gangline_e2e import commands, sources
from gangline_e2e.certificates import Authority, Pair
from gangline_e2e.discovery import read_kinds
from gangline_e2e.errors import HarnessError
from gangline_e2e.workloads import gpu_pod, is_ready, job, kwok_node

PAIR = Pair(Path("crt"), Path("key"))
SECRETS = commands.Secrets(Path("etcd-ca"), PAIR, Path("ca"), PAIR, Path("sa.key"))
PORTS = commands.Ports(*range(1, 6))


@pytest.mark.parametrize("controllers", [True, False], ids=["controllers", "no controllers"])
def test_pods_need_service_accounts_only_where_a_controller_makes_them(controllers: bool) -> None:
    words = commands.apiserver(PORTS, SECRETS, service_accounts=controllers)

    (disabled,) = [word for word in words if word.startswith("--disable-admission-plugins=")]
    assert ("ServiceAccount" in disabled) is not controllers


def test_nothing_listens_beyond_loopback() -> None:
    etcd = commands.etcd(Path("data"), PORTS, SECRETS)
    apiserver = commands.apiserver(PORTS, SECRETS, service_accounts=False)

    listening = [word for word in etcd if word.startswith("--listen-")]
    assert listening == [
        "--listen-client-urls=https://127.0.0.1:1",
        "--listen-peer-urls=https://127.0.0.1:2",
    ]
    assert "--bind-address=127.0.0.1" in apiserver


def test_a_node_offers_its_gpus_and_is_not_ready_before_kwok_has_seen_it() -> None:
    node = kwok_node("n", gpus=4, labels={"rack": "r1"})

    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "4"
    assert node["metadata"]["labels"]["rack"] == "r1"
    assert not is_ready(node)


def test_a_pod_without_gpus_asks_for_none() -> None:
    pod = gpu_pod("p", gpus=0)

    assert pod["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "1", "memory": "1Gi"}}


def test_a_job_copies_the_labels_of_its_pod_but_not_the_name() -> None:
    template = job("j", gpu_pod("p", labels={"app": "a"}), parallelism=3)["spec"]["template"]

    assert template["metadata"] == {"labels": {"app": "a"}, "annotations": {}}


def test_discovery_says_where_a_custom_kind_is() -> None:
    resource = {
        "resource": "gpuclaims",
        "responseKind": {"kind": "GpuClaim"},
        "scope": "Namespaced",
        "verbs": ["list"],
    }
    version = {"version": "v1", "resources": [resource]}
    document = {"items": [{"metadata": {"name": "example.com"}, "versions": [version]}]}

    kind = read_kinds("/apis", document)["example.com/v1", "GpuClaim"]

    assert kind.collection("team") == "/apis/example.com/v1/namespaces/team/gpuclaims"


def test_a_client_certificate_names_its_user_and_groups_and_its_key_is_private(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path, "ca")
    pair = authority.client("someone", "system:kube-scheduler", ("g1", "g2"))

    certificate = x509.load_pem_x509_certificate(pair.certificate.read_bytes())
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate.read_bytes()))

    assert certificate.subject.rfc4514_string() == "CN=system:kube-scheduler,O=g2,O=g1"
    assert stat.S_IMODE(pair.key.stat().st_mode) == 0o600


def test_a_named_cluster_is_used_and_nothing_is_started(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "given"
    kubeconfig.touch()
    env = {sources.KUBECONFIG: str(kubeconfig), "GANGLINE_CONTROL_PLANE_DIR": os.devnull}

    with sources.cluster(tmp_path / "run", env=env) as cluster:
        assert cluster.kubeconfig == kubeconfig
        assert not (tmp_path / "run").exists()


def test_a_named_cluster_without_its_file_is_an_error(tmp_path: Path) -> None:
    env = {sources.KUBECONFIG: str(tmp_path / "absent")}

    with (
        pytest.raises(HarnessError, match=r"^GANGLINE_E2E_KUBECONFIG: no file .*absent$"),
        sources.cluster(tmp_path, env=env),
    ):
        pass
