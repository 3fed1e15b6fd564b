"""`gangline simulate --ui`: pictures of a simulation, which the page plays."""

from __future__ import annotations

import json
from pathlib import Path

import aiohttp
import pytest

from gangline.commands import profiles
from gangline.page.drawing import Drawer
from gangline.page.tables import EVERYBODY
from gangline.simulate.filming import MOST_PICTURES, Film, play
from gangline.simulate.session import simulate

NODE = """\
apiVersion: v1
kind: Node
metadata: {name: n, labels: {kubernetes.io/hostname: n}}
status: {allocatable: {nvidia.com/gpu: "8", cpu: "64", memory: 1Ti, pods: "110"}}
---
apiVersion: v1
kind: Pod
metadata: {name: first}
spec:
  schedulerName: gangline
  containers: [{name: main, image: x, resources: {limits: {nvidia.com/gpu: 2}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: late, annotations: {gangline.dev/arrive-seconds: "20"}}
spec:
  schedulerName: gangline
  containers: [{name: main, image: x, resources: {limits: {nvidia.com/gpu: 9}}}]
"""


@pytest.fixture
def film(tmp_path: Path) -> Film:
    """A simulation of 30 s with a pod that is placed, and one that comes after 20 s and waits."""
    (tmp_path / "cluster.yaml").write_text(NODE)
    made = Film(30.0)
    simulate([tmp_path], profiles.served({}), 30.0, film=made)
    return made


def test_there_is_a_picture_for_each_second_and_each_goes_on_from_the_one_before(film: Film) -> None:
    drawer, waiting = Drawer(), []
    for picture in film.pictures:
        drawer.draw(picture)
        waiting.append(len(drawer.tables.rows("default").get("units", {})))

    assert 30 <= len(film.pictures) <= 32
    assert waiting[10] == 0 and waiting[-1] == 1
    assert drawer.tables.rows("default")["pods"]["first"][0] == "n"
    assert sum(owner != 0 for owner in drawer.tables.rows(EVERYBODY)["nodes"]["n"][1]) == 2


def test_a_long_simulation_has_so_many_pictures_at_most(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(NODE)
    film = Film(1200.0)
    simulate([tmp_path], profiles.served({}), 1200.0, film=film)

    assert len(film.pictures) <= MOST_PICTURES + 2


def test_the_first_picture_has_the_cluster(film: Film) -> None:
    drawer = Drawer()
    drawer.draw(film.pictures[0])

    assert set(drawer.tables.rows(EVERYBODY)["nodes"]) == {"n"}


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:80", 200),
        ("localhost", 200),
        ("[::1]:80", 200),
        ("rebound.example.com", 403),
        ("127.0.0.1.example.com", 403),
        ("10.0.0.1", 403),
        ("[::1", 403),
        ("", 403),
    ],
)
async def test_the_page_answers_to_the_names_of_this_machine_alone(film: Film, host: str, status: int) -> None:
    listener = await play(film)
    try:
        address = f"http://127.0.0.1:{listener.port}/ui"
        async with aiohttp.request("GET", address, headers={"Host": host}) as answer:
            assert answer.status == status
    finally:
        await listener.stop()


async def test_the_page_plays_the_pictures(film: Film) -> None:
    listener = await play(film)
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{listener.port}") as browser:
            async with browser.get("/") as answer:
                assert answer.url.path == "/ui" and answer.status == 200
            async with browser.get("/ui/state") as answer:
                assert "about" in json.loads(await answer.read())["all"]
    finally:
        await listener.stop()


def _waits(film: Film) -> str:
    """The identity of the one unit that waits at the end."""
    drawer = Drawer()
    for picture in film.pictures:
        drawer.draw(picture)
    (unit,) = drawer.tables.rows("default")["units"]
    return unit


async def test_changes_are_tried_on_the_cluster_at_the_end(film: Film) -> None:
    shown = await film.remedies_of(_waits(film), "")

    assert shown is not None and b"Request 6 nvidia.com/gpu per pod instead of 9." in shown.told(["default"])
    assert await film.remedies_of("other", "") is None


@pytest.fixture
def cordoned(tmp_path: Path) -> Film:
    """A simulation of 5 s with a pod that waits for a cordoned node."""
    (tmp_path / "cluster.yaml").write_text(NODE.replace("status:", "spec: {unschedulable: true}\nstatus:", 1))
    made = Film(5.0)
    simulate([tmp_path], profiles.served({}), 5.0, film=made)
    return made


async def test_a_node_can_be_repaired_on_trial_when_the_simulation_has_ended(cordoned: Film) -> None:
    for _ in range(2):
        shown = await cordoned.remedies_of(_waits(cordoned), "")
        assert shown is not None and b"Repair or uncordon node n (cordoned)." in shown.told(["default"])
