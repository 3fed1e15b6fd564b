"""Every recipe does what the page says of it, on a cluster in memory where that takes one."""

from __future__ import annotations

import asyncio
import re
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

from gangline import PodInfo, config, hookimpl, model
from gangline.errors import ConfigError
from gangline.kube.resources import CONFIG_MAPS, NODES, PODS, SCHEDULER_PLUGINS_POD_GROUPS
from gangline.profile.registry import Catalog
from gangline.simulate import SimulatedClient, SimulatedCluster
from gangline.testing import GPU, FakeHandle, cluster, make_node, make_pod, make_runtime, run_filter, run_score
from gangline.testing.gangs import GROUP

PAGE = (Path(__file__).parents[1] / "recipes.md").read_text(encoding="utf-8")
BLOCKS = {name: text for _, name, text in re.findall(r'^```(\w+) title="([^"]+)"\n(.*?)^```$', PAGE, re.DOTALL | re.M)}
RECIPES = {
    "free_memory": "FreeMemory",
    "purpose": "Purpose",
    "approval": "Approval",
    "team_weights": "TeamWeights",
    "short_first": "ShortFirst",
    "slots": "Slots",
    "local_images": "LocalImages",
    "power": "Power",
    "cheap_at_night": "CheapAtNight",
    "asked": "Asked",
    "too_large": "TooLarge",
    "free_gpus": "free_gpus",
}
WANTS_SLOT = {"example.com/wants-slot": ""}


def module(name: str) -> ModuleType:
    """A block of the page as a module."""
    made = ModuleType(name)
    code = compile(BLOCKS[f"{name}.py"], f"recipes.md:{name}.py", "exec", dont_inherit=True)
    exec(code, vars(made))
    return made


def plugin(name: str) -> type[Any]:
    found: type[Any] = getattr(module(name), RECIPES[name])
    return found


def enabling(name: str) -> str:
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        f"profiles: [{{plugins: {{multiPoint: {{enabled: [{{name: {RECIPES[name]}}}]}}}}}}]\n"
    )


def test_every_block_of_the_page_is_tried_here() -> None:
    assert {name.removesuffix(".py") for name in BLOCKS if name.endswith(".py")} == set(RECIPES)


def test_free_memory_is_preferred() -> None:
    cache = cluster(
        [make_node("a", memory="100Gi"), make_node("b", memory="100Gi")], [make_pod("p", memory="25Gi", node="a")]
    )

    assert run_score(plugin("free_memory"), make_pod("q"), cache) == {"a": 75.0, "b": 100.0}


def test_pods_go_to_nodes_of_their_purpose() -> None:
    cache = cluster([make_node("a", annotations={"example.com/purpose": "training"}), make_node("b")])
    pod = make_pod("p", annotations={"example.com/purpose": "training"})

    assert run_filter(plugin("purpose"), pod, cache) == {"a": (), "b": ("node(s) served another purpose",)}
    assert run_filter(plugin("purpose"), make_pod("q"), cache) == {"a": (), "b": ()}


def test_a_pod_waits_for_its_approval() -> None:
    plain = SimulatedCluster()
    plain.create(NODES, make_node("a"))
    plain.create(PODS, make_pod("p", annotations={"example.com/needs-approval": ""}), make_pod("q"))
    meta = model.ObjectMeta(name="p", namespace="default", labels={"example.com/approves": ""})

    async def story() -> float:
        async with plain.scheduling(enabling("approval"), plugins=[plugin("approval")]) as scheduler:
            await plain.until(lambda: plain.bound() == {"q": "a"} and len(scheduler.waiting) == 1)
            plain.create(CONFIG_MAPS, model.ConfigMap(meta))
            return await plain.until(lambda: plain.bound() == {"p": "a", "q": "a"})

    assert plain.play(story) < 60.0


def test_arguments_are_typed() -> None:
    found = module("team_weights")
    loaded = config.load(BLOCKS["team_weights.yaml"], "team_weights.yaml")
    args = config.plugin_args(loaded.profiles[0], "TeamWeights", found.Args)
    teams = {"a": "vision", "b": "shared", "c": "other"}
    cache = cluster([make_node(name, labels={"example.com/team": team}) for name, team in teams.items()])

    assert run_score(found.TeamWeights, make_pod("p"), cache, args) == {"a": 100.0, "b": 30.0, "c": 0.0}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [("weight: 30", "weight: 300", "must be <= 100"), ("otherwise:", "otherwize:", "did you mean otherwise")],
    ids=["range", "name"],
)
def test_wrong_arguments_name_the_field(old: str, new: str, said: str) -> None:
    found = module("team_weights")
    loaded = config.load(BLOCKS["team_weights.yaml"].replace(old, new), "team_weights.yaml")

    with pytest.raises(ConfigError) as caught:
        config.plugin_args(loaded.profiles[0], "TeamWeights", found.Args)

    assert said in str(caught.value)


def test_short_jobs_go_first() -> None:
    plain = SimulatedCluster()
    plain.create(NODES, make_node("a", gpus=1))
    plain.create(PODS, make_pod("long", gpus=1, active_deadline_seconds=3600))
    plain.create(PODS, make_pod("short", gpus=1, active_deadline_seconds=60))

    async def story() -> dict[str, str]:
        async with plain.scheduling(BLOCKS["short_first.yaml"], plugins=[plugin("short_first")]):
            await plain.until(lambda: bool(plain.bound()) and bool(plain.message("long")))
            return plain.bound()

    assert plain.play(story) == {"short": "a"}


def slots_of(plain: SimulatedCluster) -> list[str]:
    return sorted((pod.metadata.annotations or {}).get("example.com/slot", "-") for pod in plain.list(PODS))


def test_slots_survive_a_restart() -> None:
    plain = SimulatedCluster()
    plain.create(NODES, make_node("a"))

    async def story() -> None:
        plain.create(PODS, *(make_pod(f"p-{n}", annotations=WANTS_SLOT) for n in range(2)))
        async with plain.scheduling(enabling("slots"), plugins=[plugin("slots")]):
            await plain.until(lambda: len(plain.bound()) == 2)
        plain.create(PODS, *(make_pod(f"q-{n}", annotations=WANTS_SLOT) for n in range(3)))
        async with plain.scheduling(enabling("slots"), plugins=[plugin("slots")]):
            await plain.until(lambda: len(plain.bound()) == 4 and "no free slot" in plain.message("q-2"))

    plain.play(story)

    assert slots_of(plain) == ["-", "0", "1", "2", "3"]


def test_a_slot_stays_taken_while_a_preemption_is_tried_out() -> None:
    class Slow:
        name = "Slow"

        @hookimpl
        async def pre_bind(self, pod: PodInfo) -> None:
            if pod.name == "low":
                await asyncio.sleep(30)

    def with_port(gpus: int) -> list[model.Container]:
        amounts: dict[str, model.Quantity] = {GPU: gpus} if gpus else {}
        wanted = model.ResourceRequirements(requests=amounts, limits=amounts)
        ports = [model.ContainerPort(container_port=80, host_port=80)]
        return [model.Container(name="main", image="main:1", resources=wanted, ports=ports)]

    plain = SimulatedCluster()
    plain.create(NODES, make_node("a", gpus=8))

    async def story() -> None:
        config = enabling("slots").replace("{name: Slots}", "{name: Slots}, {name: Slow}")
        async with plain.scheduling(config, plugins=[plugin("slots"), Slow]):
            plain.create(PODS, make_pod("top", priority=1000, containers=with_port(0)))
            await plain.until(lambda: "top" in plain.bound())
            plain.create(PODS, make_pod("low", gpus=8, annotations=WANTS_SLOT))
            await asyncio.sleep(1)
            plain.create(
                PODS, make_pod("high", priority=100, containers=with_port(8))
            )  # lifts low, which does not help
            await plain.until(lambda: "preemption" in plain.message("high"))
            plain.create(PODS, make_pod("other", annotations=WANTS_SLOT))
            await plain.until(lambda: {"low", "other"} <= plain.bound().keys())

    plain.play(story)

    assert slots_of(plain) == ["-", "-", "0", "1"]


def test_a_gang_spreads_over_the_nodes_that_have_slots() -> None:
    plain = SimulatedCluster()
    plain.create(NODES, *(make_node(name) for name in "ab"))
    plain.create(
        SCHEDULER_PLUGINS_POD_GROUPS,
        model.PodGroup(model.ObjectMeta(name="team", namespace="default"), model.PodGroupSpec(min_member=6)),
    )
    plain.create(PODS, *(make_pod(f"p-{n}", labels={GROUP: "team"}, annotations=WANTS_SLOT) for n in range(6)))

    async def story() -> None:
        gangs = "{name: Slots}, {name: GangPermit}, {name: TopologyPlacement}"
        config = enabling("slots").replace("{name: Slots}", gangs)
        async with plain.scheduling(config, plugins=[plugin("slots")]):
            await plain.until(lambda: len(plain.bound()) == 6)

    plain.play(story)

    assert slots_of(plain) == ["0", "0", "1", "1", "2", "3"]


@pytest.mark.parametrize("text", ["1" * 5000, "4", "01", "\u0661", "", "-1"])
def test_an_annotation_that_is_no_slot_takes_none(text: str) -> None:
    made = module("slots")
    bound = make_pod("p", node="a", annotations={"example.com/slot": text})
    taken = made.Taken()
    taken.add(cluster([make_node("a")]).record(bound), 0)

    assert taken.free(0) == [0, 1, 2, 3]


def test_a_built_in_is_overridden_in_the_profile() -> None:
    found = plugin("local_images")
    catalog = Catalog.discover().with_classes(found)
    profile = config.load(BLOCKS["local_images.yaml"], "local_images.yaml").profiles[0]
    names = {
        ref.name for ref in config.expand(profile, catalog.points(), config.default_plugins(catalog.points()))["score"]
    }
    images = {"main:1": 500 << 20}
    cache = cluster([make_node("a", images=images), make_node("b")])

    assert "LocalImages" in names and "ImageLocality" not in names
    assert run_score(found, make_pod("p"), cache) == {"a": 100.0, "b": 0.0}


def test_pods_go_where_power_is_to_spare() -> None:
    plain = SimulatedCluster()
    plain.create(NODES, make_node("a"), make_node("b"))
    power = model.ConfigMap(model.ObjectMeta(name="power", namespace="kube-system"), {"a": "300", "b": "much"})
    plain.create(PODS, make_pod("p", annotations={"example.com/watts": "400"}))
    why = "2 node(s) had too little power to spare"

    async def story() -> dict[str, str]:
        async with plain.scheduling(enabling("power"), plugins=[plugin("power")]):
            await plain.until(lambda: why in plain.message("p"))
            plain.create(CONFIG_MAPS, power)
            plain.create(PODS, make_pod("q", annotations={"example.com/watts": "300"}), make_pod("r"))
            await plain.until(lambda: {"q", "r"} <= plain.bound().keys())
            assert "p" not in plain.bound()
            plain.server.delete(CONFIG_MAPS, "power", namespace="kube-system")
            more = {"b": "400"}
            plain.create(CONFIG_MAPS, model.ConfigMap(model.ObjectMeta(name="power", namespace="kube-system"), more))
            await plain.until(lambda: "p" in plain.bound())
            return plain.bound()

    found = plain.play(story)

    assert (found["p"], found["q"]) == ("b", "a")


def test_cheap_nodes_are_preferred_at_night_and_the_turn_is_noticed() -> None:
    cache = cluster([make_node("a", labels={"example.com/cheap-at-night": ""}), make_node("b")])
    handle = FakeHandle(cache)
    evaluator = make_runtime(cache, plugin("cheap_at_night"), handle=handle).evaluator
    pod, seen = cache.record(make_pod("p")), []

    for hours in (0, 7, 12, 6):
        handle.fake_clock.advance(hours * 3600.0)
        seen.append(evaluator.scores(evaluator.filter(pod))["CheapAtNight"].tolist())

    assert seen == [[100.0, 0.0], [0.0, 0.0], [0.0, 0.0], [100.0, 0.0]]


def test_gpus_are_counted_once_for_each_pod_that_asks() -> None:
    cache = cluster([make_node("a")])
    handle = FakeHandle(cache)
    runtime = make_runtime(cache, plugin("asked"), handle=handle)
    for pod in (make_pod("p", gpus=2), make_pod("p", gpus=2, labels={"changed": ""}), make_pod("q", gpus=1)):
        runtime.enqueued(cache.record(pod))

    found = handle.fake_metrics.registry.get_sample_value("example_gpus_asked_total", {"namespace": "default"})

    assert found == 3


def test_the_owner_of_a_pod_that_fits_no_node_is_told_and_a_large_node_wakes_it() -> None:
    plain = SimulatedCluster()
    plain.create(NODES, make_node("a", gpus=4))
    plain.create(PODS, make_pod("p", gpus=8))

    async def story() -> None:
        async with plain.scheduling(enabling("too_large"), plugins=[plugin("too_large")]):
            await plain.until(lambda: any("no node has more than 4" in note for note in plain.notes()))
            plain.create(NODES, make_node("b", gpus=8))
            await plain.until(lambda: plain.bound() == {"p": "b"})

    plain.play(story)


def test_a_command_shows_the_nodes_with_free_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = SimulatedCluster()
    plain.create(NODES, make_node("full", gpus=2), make_node("half", gpus=4))
    plain.create(PODS, make_pod("p", gpus=2, node="full"), make_pod("q", gpus=2, node="half"))
    found = module("free_gpus")

    @asynccontextmanager
    async def simulated(kubeconfig: str | None) -> AsyncIterator[SimulatedClient]:
        yield SimulatedClient(plain.server)

    monkeypatch.setattr(found, "connected", simulated)
    result = CliRunner().invoke(found.free_gpus, [], catch_exceptions=False)

    assert [line.split() for line in result.stdout.splitlines()] == [["NODE", "FREE", "GPUS"], ["half", "2"]]
    assert tomllib.loads(BLOCKS["pyproject.toml"])["project"]["entry-points"]["gangline.commands"] == {
        "free-gpus": "free_gpus:free_gpus"
    }
