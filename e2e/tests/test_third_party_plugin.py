"""A plugin from another distribution is found by its entry point and takes part in placement."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gangline_e2e.api import Api
from gangline_e2e.harness import ControlPlane
from gangline_e2e.installing import installed
from gangline_e2e.placements import nodes_of
from gangline_e2e.scheduler import Gangline, configuration, profile
from gangline_e2e.workloads import gpu_pod, is_bound, kwok_node

SAMPLE = Path(__file__).parents[1] / "sample_plugin"
PLUGIN = {"name": "PreferredLabel", "weight": 100}
ANNOTATIONS = {"example.com/likes": "example.com/fast"}

pytestmark = pytest.mark.timeout(300)
StartGangline = Callable[..., Gangline]


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed the sample plugin; only PYTHONPATH leads there."""
    return installed(SAMPLE, tmp_path_factory.mktemp("site"))


async def test_an_installed_plugin_prefers_nodes_where_its_profile_enables_it(
    empty: Api, own_control_plane: ControlPlane, start_gangline: StartGangline, sample: Path
) -> None:
    liking = profile("liking", enabled=[PLUGIN], args={"PreferredLabel": {"annotation": "example.com/likes"}})
    config = configuration(liking, profile("plain"))
    await empty.create_many(kwok_node(f"node-{i}", labels={"example.com/fast": ""} if i == 3 else {}) for i in range(8))
    start_gangline(own_control_plane.kubeconfig, config, python_path=sample)

    await empty.create_many(
        gpu_pod(f"{name}-{i}", gpus=0, cpu="8", scheduler_name=name, annotations=ANNOTATIONS)  # a node has room for all
        for i in range(8)
        for name in ("liking", "plain")
    )
    pods = await empty.wait_for(empty.pods, is_bound, 16)

    by_profile = {
        name: nodes_of(pod for pod in pods if pod["spec"]["schedulerName"] == name) for name in ("liking", "plain")
    }
    assert by_profile["liking"] == {"node-3"}
    assert len(by_profile["plain"]) >= 7
