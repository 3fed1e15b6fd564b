"""The programs come from go.mod, and what is missing is said in one line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gangline_e2e import binaries
from gangline_e2e.errors import HarnessError, NoControlPlane
from gangline_e2e.forked_pytest import run_pytest

PROBE = """
def test_needs_a_cluster(control_plane):
    raise AssertionError("a control plane was found")
"""


@pytest.mark.parametrize(
    ("env", "folder"),
    [
        ({"GANGLINE_CONTROL_PLANE_DIR": "/a", "XDG_CACHE_HOME": "/b"}, "/a"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/gangline/control-plane"),
        ({}, str(Path.home() / ".cache/gangline/control-plane")),
    ],
    ids=["named", "XDG", "default"],
)
def test_the_cache_folder_is_named_by_the_environment(env: dict[str, str], folder: str) -> None:
    assert binaries.cache_folder(env) == Path(folder)


def test_a_missing_program_is_named_with_the_way_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(NoControlPlane, match=rf"^no etcd in {tmp_path}: run `make control-plane`$"):
        binaries.find({"GANGLINE_CONTROL_PLANE_DIR": str(tmp_path)})


def test_the_version_is_that_of_kubernetes_in_go_mod() -> None:
    required = [{"Path": "sigs.k8s.io/kwok", "Version": "v0.8.0"}]
    required.append({"Path": "k8s.io/kubernetes", "Version": "v1.36.3"})

    words = binaries.version_flags({"Require": required}).split()

    assert "k8s.io/component-base/version.gitVersion=v1.36.3" in words
    assert "k8s.io/component-base/version.gitMinor=36" in words


def test_helm_is_told_its_version_and_the_kubernetes_that_it_was_built_with() -> None:
    required = [{"Path": "helm.sh/helm/v3", "Version": "v3.22.0"}, {"Path": "k8s.io/client-go", "Version": "v0.37.0"}]

    words = binaries.helm_flags({"Require": required}).split()

    assert "helm.sh/helm/v3/internal/version.version=v3.22.0" in words
    assert "helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=37" in words


def test_a_missing_helm_is_named_with_the_way_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(NoControlPlane, match=rf"^no helm in {tmp_path}: run `make control-plane`$"):
        binaries.find_helm({"GANGLINE_CONTROL_PLANE_DIR": str(tmp_path)})


@pytest.mark.parametrize(
    ("package", "name"),
    [("k8s.io/kubernetes/cmd/kube-apiserver", "kube-apiserver"), ("go.etcd.io/etcd/server/v3", "etcd")],
)
def test_a_program_is_named_after_its_package(package: str, name: str) -> None:
    assert binaries.program_name(package) == name


def test_building_without_go_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(HarnessError, match=r"^go is not on PATH: install Go .*"):
        binaries.build(tmp_path)


@pytest.mark.parametrize(("ci", "outcome"), [("", "1 skipped"), ("true", "1 error")], ids=["by hand", "CI"])
def test_without_a_control_plane_tests_skip_but_fail_in_ci(tmp_path: Path, ci: str, outcome: str) -> None:
    conftest = Path(__file__).parents[1] / "conftest.py"
    (tmp_path / "conftest.py").write_text(conftest.read_text())
    (tmp_path / "test_probe.py").write_text(PROBE)
    missing = {"GANGLINE_CONTROL_PLANE_DIR": str(tmp_path), "PATH": "", "CI": ci, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    env = {key: value for key, value in os.environ.items() if key != "GANGLINE_E2E_KUBECONFIG"}

    run = run_pytest(["-rsE", "-p", "no:cacheprovider", str(tmp_path)], tmp_path, env | missing)

    assert outcome in run.stdout
    assert "run `make control-plane`" in run.stdout
