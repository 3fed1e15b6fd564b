"""A changed configuration is taken without a restart, a broken one is not; a start that cannot work says why."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import yaml

from gangline_e2e.api import Api
from gangline_e2e.harness import ControlPlane
from gangline_e2e.scheduler import Gangline, command, configuration, profile
from gangline_e2e.workloads import Manifest, gpu_pod, is_bound, kwok_node

RELOADED_S = 60.0
"""Changed files are looked for every five seconds."""
WEIGHT = {"plugins": {"score": {"enabled": [{"name": "NodeResourcesFit", "weight": -1}]}}}
NO_PLUGIN = {"plugins": {"filter": {"enabled": [{"name": "Nonesuch"}]}}}

pytestmark = pytest.mark.timeout(300)
StartGangline = Callable[..., Gangline]


async def test_a_new_profile_takes_its_waiting_pods_without_a_restart(
    empty: Api, own_control_plane: ControlPlane, start_gangline: StartGangline
) -> None:
    await empty.create(kwok_node("roomy"))
    scheduler = start_gangline(own_control_plane.kubeconfig, configuration(profile("first")))
    pid = scheduler.process.pid
    await empty.create_many([gpu_pod("early", scheduler_name="first"), gpu_pod("waiting", scheduler_name="second")])
    (early,) = await empty.wait_for(empty.pods, is_bound, 1)

    scheduler.configure(configuration(profile("first"), profile("second")))
    await empty.wait_for(empty.pods, is_bound, 2, RELOADED_S)

    assert early["metadata"]["name"] == "early"
    assert scheduler.alive()
    assert scheduler.process.pid == pid


async def test_a_profile_that_is_taken_away_leaves_its_pods_and_disturbs_no_other(
    empty: Api, own_control_plane: ControlPlane, start_gangline: StartGangline
) -> None:
    scheduler = start_gangline(own_control_plane.kubeconfig, configuration(profile("kept"), profile("dropped")))
    await empty.create(kwok_node("full", gpus=0))
    await empty.create(gpu_pod("orphan", scheduler_name="dropped"))
    await empty.wait_for(empty.pods, _is_told, 1)

    scheduler.configure(configuration(profile("kept")))
    await empty.until(_logged(scheduler, "configuration reloaded"), "the file is taken", RELOADED_S)
    await empty.create(kwok_node("roomy"))
    await empty.create(gpu_pod("after", scheduler_name="kept"))
    (bound,) = await empty.wait_for(empty.pods, is_bound, 1)

    assert bound["metadata"]["name"] == "after"
    assert scheduler.alive()
    assert not is_bound(await empty.get(f"{empty.pods}/orphan"))


async def test_a_broken_file_keeps_the_old_configuration_and_says_so_in_one_line(
    empty: Api, own_control_plane: ControlPlane, start_gangline: StartGangline
) -> None:
    await empty.create(kwok_node("roomy"))
    scheduler = start_gangline(own_control_plane.kubeconfig, configuration(profile("first")))
    pid = scheduler.process.pid

    scheduler.configure(configuration(profile("first"), {"schedulerName": "second", **NO_PLUGIN}))
    await empty.until(_logged(scheduler, "not reloaded"), "the file is refused", RELOADED_S)
    await empty.create_many([gpu_pod("served", scheduler_name="first"), gpu_pod("foreign", scheduler_name="second")])
    (bound,) = await empty.wait_for(empty.pods, is_bound, 1)

    (line,) = [line for line in scheduler.logs().splitlines() if "not reloaded" in line]
    assert f"{scheduler.config_file}: profiles[1].plugins.filter.enabled[0].name: " in line
    assert "Nonesuch" in line
    assert bound["metadata"]["name"] == "served"
    assert scheduler.alive()
    assert scheduler.process.pid == pid


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        pytest.param("profiles: [", ("config.yaml: 1:12: not valid YAML",), id="malformed YAML"),
        pytest.param("- a\n", ("config.yaml",), id="not a mapping"),
        pytest.param(yaml.safe_dump(configuration(NO_PLUGIN)), ("config.yaml", "filter", "Nonesuch"), id="plugin"),
        pytest.param(yaml.safe_dump(configuration(WEIGHT)), ("config.yaml", "weight", "-1"), id="weight"),
        pytest.param(yaml.safe_dump(configuration(profiels=[])), ("config.yaml", "profiels"), id="field"),
        pytest.param(
            yaml.safe_dump(configuration(profile("twice"), profile("twice"))), ("config.yaml", "twice"), id="name"
        ),
    ],
)
def test_a_configuration_that_cannot_be_used_ends_the_start_with_one_line(
    tmp_path: Path, text: str, parts: tuple[str, ...]
) -> None:
    (tmp_path / "config.yaml").write_text(text)
    kubeconfig = _nowhere(tmp_path)

    done = _run(tmp_path / "config.yaml", kubeconfig)

    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    for part in parts:
        assert part in line


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(None, id="missing"),
        pytest.param("{", id="malformed"),
        pytest.param("a: b\n", id="without a cluster"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_ends_the_start_with_one_line(tmp_path: Path, content: str | None) -> None:
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(configuration(profile("any"))))
    if content is not None:
        (tmp_path / "kubeconfig").write_text(content)

    done = _run(tmp_path / "config.yaml", tmp_path / "kubeconfig")

    assert done.returncode == 4
    (line,) = done.stderr.splitlines()
    assert str(tmp_path / "kubeconfig") in line


def test_a_missing_configuration_file_ends_the_start_with_one_line(tmp_path: Path) -> None:
    done = _run(tmp_path / "nowhere.yaml", _nowhere(tmp_path))

    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert str(tmp_path / "nowhere.yaml") in line


def _run(config: Path, kubeconfig: Path) -> subprocess.CompletedProcess[str]:
    """A start that is expected to end by itself."""
    where = ["--listen", "127.0.0.1:0", "--secure-listen", "127.0.0.1:0"]
    words = [*command(config, kubeconfig), "--no-leader-elect", *where]
    return subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=60, env={**os.environ, "HOME": ""}
    )


def _nowhere(folder: Path) -> Path:
    """A kubeconfig in good order, for a cluster that is not there."""
    file = folder / "kubeconfig"
    file.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "none", "cluster": {"server": "http://127.0.0.1:1"}}],
                "users": [{"name": "nobody", "user": {}}],
                "contexts": [{"name": "none", "context": {"cluster": "none", "user": "nobody"}}],
                "current-context": "none",
            }
        )
    )
    return file


def _logged(scheduler: Gangline, text: str) -> Callable[[], Awaitable[bool]]:
    async def is_there() -> bool:
        return text in scheduler.logs()

    return is_there


def _is_told(pod: Manifest) -> bool:
    """Whether a pod was told that it does not fit."""
    return any(each["type"] == "PodScheduled" for each in pod["status"].get("conditions", []))
