"""Somebody who may see one namespace looks at the page of a running scheduler with `gangline ui`, in a real browser."""

from __future__ import annotations

import re
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import aiohttp
import pytest
from playwright.async_api import expect

from gangline_e2e import processes
from gangline_e2e.api import Api
from gangline_e2e.browser import PATIENCE, chromium
from gangline_e2e.harness import ControlPlane
from gangline_e2e.isolation import isolated
from gangline_e2e.scheduler import Gangline, configuration, profile
from gangline_e2e.workloads import gpu_pod, is_bound, kwok_node

OURS, VIEWER = "gangline", "page-viewer"
RBAC = "rbac.authorization.k8s.io"

pytestmark = pytest.mark.timeout(300)
StartGangline = Callable[..., Gangline]


@pytest.fixture
def start_ui(tmp_path: Path) -> Iterator[Callable[[Path, str], Path]]:
    """A function that starts `gangline ui` for the user of a kubeconfig; returns the file with its output."""
    with ExitStack() as stack:

        def start(kubeconfig: Path, scheduler: str) -> Path:
            log = tmp_path / "ui.log"
            words = ["ui", "--no-browser", "--kubeconfig", str(kubeconfig), "--scheduler", scheduler]
            process = processes.start("ui", [sys.executable, "-m", "gangline", *words], log)
            stack.callback(processes.stop, [process], 10.0)
            return log

        yield start


async def test_a_viewer_sees_the_pods_they_may_list_live_and_of_the_others_only_that_they_are_there(
    empty: Api,
    own_control_plane: ControlPlane,
    start_gangline: StartGangline,
    start_ui: Callable[[Path, str], Path],
    chromium_program: str,
) -> None:
    await empty.create_many(kwok_node(f"node-{number}") for number in range(2))
    scheduler = start_gangline(own_control_plane.kubeconfig, configuration(profile(OURS)))
    viewer = own_control_plane.kubeconfig_for(VIEWER)
    await _let_in(empty)
    await empty.until(lambda: _may_see(scheduler, own_control_plane), "the viewer is known")
    async with isolated(own_control_plane) as other, chromium(chromium_program) as browser:
        await empty.create(gpu_pod("mine", gpus=2, scheduler_name=OURS))
        await other.create(gpu_pod("secret", gpus=3, scheduler_name=OURS))
        await empty.wait_for(empty.pods, is_bound, 1)
        await other.wait_for(other.pods, is_bound, 1)
        log = start_ui(viewer, scheduler.secure_url)

        async def printed() -> str | None:
            return _address(log)

        address = await empty.until(printed, "`gangline ui` prints its address")
        async with browser.open(address) as page:
            await page.get_by_role("navigation").get_by_role("link", name="Nodes", exact=True).click()
            nodes = page.locator("#nodes")
            await expect(page.locator("#summary")).to_contain_text("5 of 16 GPUs used", timeout=PATIENCE)
            await expect(nodes).to_contain_text(f"{empty.namespace}/mine")
            await expect(nodes).to_contain_text("another namespace")
            await empty.create(gpu_pod("later", gpus=1, scheduler_name=OURS))
            await expect(nodes).to_contain_text(f"{empty.namespace}/later", timeout=PATIENCE)
            await empty.create(gpu_pod("large", gpus=9, scheduler_name=OURS))
            await page.get_by_role("navigation").get_by_role("link", name="Queue", exact=True).click()
            await page.get_by_role("button", name=f"{empty.namespace}/large").click()
            await page.get_by_role("button", name="Try changes").click()
            tried = page.locator("#details").get_by_role("listitem")
            await expect(tried.first).to_contain_text("nvidia.com/gpu per pod instead of 9.", timeout=PATIENCE)
            assert not {"secret", other.namespace} & set(re.findall(r"[\w-]+", await page.content()))

        assert browser.complaints == []


def _address(log: Path) -> str | None:
    found = re.search(r"http://127\.0\.0\.1:\d+/\?key=\S+", log.read_text() if log.is_file() else "")
    return found[0] if found else None


async def _may_see(scheduler: Gangline, plane: ControlPlane) -> bool:
    """The authority of clients is read a moment after the start, and roles count a moment after they are made."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    pki = plane.folder / "pki"
    context.load_cert_chain(pki / f"{VIEWER}.crt", pki / f"{VIEWER}.key")
    async with aiohttp.request("GET", f"{scheduler.secure_url}/ui", ssl=context) as answer:
        return answer.status == 200


async def _let_in(api: Api) -> None:
    """The viewer may get the page, and list the pods of the namespace."""
    subject = {"kind": "User", "name": VIEWER, "apiGroup": RBAC}
    name = f"{api.namespace}-page"
    page = {"nonResourceURLs": ["/ui", "/ui/*"], "verbs": ["get"]}
    pods = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    for kind, rule in (("ClusterRole", page), ("Role", pods)):
        head = {"apiVersion": f"{RBAC}/v1", "metadata": {"name": name}}
        await api.create({**head, "kind": kind, "rules": [rule]})
        role = {"apiGroup": RBAC, "kind": kind, "name": name}
        await api.create({**head, "kind": f"{kind}Binding", "subjects": [subject], "roleRef": role})
