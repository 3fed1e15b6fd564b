"""The Helm chart and the real helm: render, lint, install, upgrade, uninstall."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gangline_e2e.errors import HarnessError
from gangline_e2e.workloads import Manifest, Manifests

CHART = Path(__file__).parents[2] / "charts/gpu-scheduler"
RELEASE = "gpu-scheduler"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
TIMEOUT_S = 400


class HelmFailed(HarnessError):
    """helm ended with a failure; the text is what it printed on standard error."""


@dataclass(frozen=True, slots=True)
class Helm:
    """helm at ``program``; its caches and settings stand in ``folder``, never in the user's home."""

    program: Path
    folder: Path
    kubeconfig: Path | None = None

    async def run(self, *words: str) -> str:
        """Run helm and return what it printed; HelmFailed if it fails."""
        env = {"PATH": os.environ["PATH"], "HOME": str(self.folder)}
        env |= {f"HELM_{kind}_HOME": str(self.folder / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
        if self.kubeconfig is not None:
            env["KUBECONFIG"] = str(self.kubeconfig)
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(self.program, *words, env=env, stdout=pipe, stderr=pipe)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                output, errors = await process.communicate()
        except BaseException:
            process.kill()
            await process.wait()
            raise
        if process.returncode != 0:
            raise HelmFailed(f"helm {' '.join(words)}: {errors.decode().strip()}\n{output.decode().strip()}")
        return output.decode()

    async def lint(self, chart: Path = CHART) -> str:
        """The output of `helm lint --strict` for a chart."""
        return await self.run("lint", "--strict", str(chart))

    async def render(
        self, values: Manifest | None = None, namespace: str = RELEASE, chart: Path = CHART, *flags: str
    ) -> Manifests:
        """All manifests of a chart, the hooks too."""
        words = ["template", RELEASE, str(chart), "--namespace", namespace, *self._values(values), *flags]
        return [each for each in yaml.safe_load_all(await self.run(*words)) if each]

    async def install(self, namespace: str, values: Manifest | None = None, chart: Path = CHART, *flags: str) -> None:
        """Run `helm install` with these further ``flags``. Raises HelmFailed."""
        await self.run("install", RELEASE, str(chart), "--namespace", namespace, *self._values(values), *flags)

    async def upgrade(self, namespace: str, values: Manifest | None = None, chart: Path = CHART, *flags: str) -> None:
        """Run `helm upgrade` with these further ``flags``. Raises HelmFailed."""
        await self.run("upgrade", RELEASE, str(chart), "--namespace", namespace, *self._values(values), *flags)

    async def uninstall(self, namespace: str, *flags: str) -> None:
        """Run `helm uninstall` with these further ``flags``. Raises HelmFailed."""
        await self.run("uninstall", RELEASE, "--namespace", namespace, *flags)

    def _values(self, values: Manifest | None) -> list[str]:
        if not values:
            return []
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / "values.yaml"
        file.write_text(yaml.safe_dump(values))
        return ["--values", str(file)]


def one(manifests: Manifests, kind: str, name: str) -> Manifest:
    """The only manifest of that kind and name."""
    (found,) = (each for each in manifests if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return found


def definitions() -> set[str]:
    """The paths of the chart's custom resource definitions, and of the API services that come of them."""
    paths: set[str] = set()
    for file in (CHART / "crds").glob("*.yaml"):
        crd = yaml.safe_load(file.read_text())
        paths.add(f"{CRDS}/{crd['metadata']['name']}")
        versions = [f"{version['name']}.{crd['spec']['group']}" for version in crd["spec"]["versions"]]
        paths |= {f"{API_SERVICES}/{version}" for version in versions}
    return paths


def pod_specs(manifests: Manifests) -> dict[str, Manifest]:
    """The pod templates' specs by KIND/NAME of what makes the pods."""
    found: dict[str, Manifest] = {}
    for each in manifests:
        spec: Any = each.get("spec", {})
        if each["kind"] == "CronJob":
            spec = spec["jobTemplate"]["spec"]
        if "template" in spec:
            found[f"{each['kind']}/{each['metadata']['name']}"] = spec["template"]["spec"]
    return found


def previous_version(folder: Path, version: str, crds: Mapping[str, Any]) -> Path:
    """A copy of the chart as an older version; ``crds`` has the older definitions by file name."""
    chart = folder / "gpu-scheduler"
    shutil.copytree(CHART, chart)  # follows the link to the definitions
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    (chart / "Chart.yaml").write_text(yaml.safe_dump({**about, "version": version}))
    for name, crd in crds.items():
        (chart / "definitions" / name).write_text(yaml.safe_dump(crd))
    return chart
