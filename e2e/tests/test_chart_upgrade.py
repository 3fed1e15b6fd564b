"""What helm does with the chart on a real API server, without any of its pods: upgrade, uninstall, install again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import yaml

from gangline_e2e.api import Api, connect
from gangline_e2e.chart import CHART, CRDS, RELEASE, Helm, HelmFailed, definitions, previous_version
from gangline_e2e.errors import Refused
from gangline_e2e.gpu_crds import claim
from gangline_e2e.harness import ControlPlane, Options
from gangline_e2e.workloads import Manifest

CLAIMS = "gpuclaims.gpu.scheduling"
POD_GROUPS = "podgroups.scheduling.x-k8s.io"
KEPT = f"/apis/gpu.scheduling/v1/namespaces/{RELEASE}/gpuclaims/kept"
StartControlPlane = Callable[[Options], ControlPlane]

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def control_plane(start_control_plane: StartControlPlane) -> ControlPlane:
    """An API server that nothing else is on."""
    return start_control_plane(Options(kwok=False))


@pytest.fixture
async def api(control_plane: ControlPlane) -> AsyncIterator[Api]:
    """A client with the namespace of the release."""
    async with connect(control_plane.kubeconfig, RELEASE) as api:
        await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": RELEASE}})
        yield api


@pytest.fixture
def helm(control_plane: ControlPlane, helm_program: Path, tmp_path: Path) -> Helm:
    """The real helm, for that API server."""
    return Helm(helm_program, tmp_path / "helm", control_plane.kubeconfig)


async def test_an_upgrade_brings_new_definitions_and_keeps_claims(helm: Helm, api: Api, tmp_path: Path) -> None:
    older, columns = _older_definition()
    chart = previous_version(tmp_path, "0.0.9", {f"{CLAIMS}.yaml": older})
    await helm.install(RELEASE, None, chart, "--no-hooks")
    made = await _create_claim(api)
    assert await _columns(api) == columns[:1]

    await helm.upgrade(RELEASE, None, CHART, "--no-hooks")

    assert await _columns(api) == columns
    await _until_served(api)
    assert await api.get(KEPT) == made


async def test_uninstall_keeps_definitions_and_claims_and_the_next_install_takes_them_over(
    helm: Helm, api: Api
) -> None:
    before = await api.inventory()
    await helm.install(RELEASE, None, CHART, "--no-hooks")
    made = await _create_claim(api)

    await helm.uninstall(RELEASE)

    assert await _inventory(api) - before == {*definitions(), KEPT}
    await helm.install(RELEASE, None, CHART, "--no-hooks")
    await _until_served(api)
    assert await api.get(KEPT) == made


async def test_uninstall_deletes_what_the_components_have_made(helm: Helm, api: Api) -> None:
    await helm.install(RELEASE, None, CHART, "--no-hooks")
    before = await _inventory(api)
    data = {"tls.crt": "eA==", "tls.key": "eA=="}
    secret = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "data": data}
    await api.create({**secret, "metadata": {"name": "gpu-scheduler-webhook-cert"}})
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "gpu-scheduler"}}
    await api.create(lease)
    await api.create({**lease, "metadata": {"name": "another"}})
    history = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "gangline-domain-history"}}
    await api.create({**history, "data": {"topology-aware-scheduler": "{}"}})

    await helm.uninstall(RELEASE)

    assert {path.rpartition("/")[2] for path in await _inventory(api) - before} == {"another"}


async def test_definitions_that_are_not_the_releases_are_named_or_left_alone(helm: Helm, api: Api) -> None:
    for file in sorted((CHART / "crds").glob("*.yaml")):
        await api.create(yaml.safe_load(file.read_text()))

    with pytest.raises(HelmFailed, match=r"CustomResourceDefinition .* exists and cannot be imported"):
        await helm.install(RELEASE, None, CHART, "--no-hooks")

    await helm.install(RELEASE, {"crds": {"install": False}}, CHART, "--no-hooks")
    await helm.upgrade(RELEASE, None, CHART, "--no-hooks", "--take-ownership")


async def test_a_definition_of_another_project_stays_as_it_is(helm: Helm, api: Api) -> None:
    theirs = yaml.safe_load((CHART / "crds" / f"{POD_GROUPS}.yaml").read_text())
    theirs["metadata"]["labels"] = {"app": "scheduler-plugins"}
    await api.create(theirs)

    await helm.install(RELEASE, None, CHART, "--no-hooks")
    await helm.upgrade(RELEASE, None, CHART, "--no-hooks")

    labels = (await api.get(f"{CRDS}/{POD_GROUPS}"))["metadata"]["labels"]
    assert labels == {"app": "scheduler-plugins"}
    assert (await api.get(f"{CRDS}/{CLAIMS}"))["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm"


def _older_definition() -> tuple[Manifest, list[Manifest]]:
    """The definition of claims with the first of its columns alone, and all of them."""
    crd = yaml.safe_load((CHART / "crds" / f"{CLAIMS}.yaml").read_text())
    (version,) = crd["spec"]["versions"]
    columns = version["additionalPrinterColumns"]
    version["additionalPrinterColumns"] = columns[:1]
    return crd, columns


async def _columns(api: Api) -> list[Manifest]:
    (version,) = (await api.get(f"{CRDS}/{CLAIMS}"))["spec"]["versions"]
    columns: list[Manifest] = version["additionalPrinterColumns"]
    return columns


async def _inventory(api: Api) -> set[str]:
    """The paths of all objects, once the API server has made what comes of the definitions."""

    async def complete() -> set[str] | None:
        found = await api.inventory()
        return found if definitions() <= found else None

    return await api.until(complete, "the definitions have their API services")


async def _create_claim(api: Api) -> Manifest:
    await _until_served(api)
    return await api.create(claim("kept", devices={"count": 2}))


async def _until_served(api: Api) -> None:
    """Wait until claims are served: a new or changed definition takes a moment."""

    async def served() -> bool:
        try:
            await api.list(KEPT.rpartition("/")[0])
        except Refused as error:
            if error.status not in (404, 429):  # not yet, or its storage is being made
                raise
            return False
        return True

    await api.until(served, "claims are served")
