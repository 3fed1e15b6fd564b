"""Which names `gangline run` serves without a file, and what `profiles list`, `config show` and `status` say of it."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Console

from gangline import config, main
from gangline.commands import profiles, run
from gangline.commands.config import effective
from gangline.commands.status import show
from gangline.overview.summary import overview
from gangline.profile.assembly import judging_runtimes
from gangline.profile.registry import Catalog
from gangline.state.cache import Cache
from gangline.state.topology import Topology
from gangline.testing import cluster, make_node, make_pod


def invoked(*words: str) -> str:
    result = CliRunner().invoke(main.cli, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def names(configuration: config.SchedulerConfiguration) -> list[str]:
    return [profile.scheduler_name for profile in configuration.profiles]


def test_a_first_try_serves_the_packaged_names_and_never_the_clusters_own() -> None:
    assert names(run.load([])) == ["gangline", "gpu-scheduler", "topology-aware-scheduler"]


def test_a_file_serves_what_it_says(tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    file.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n")

    assert names(run.load([str(file)])) == ["default-scheduler"]


@pytest.mark.parametrize("name", ["default-scheduler", "topology-aware-scheduler", "mine"])
def test_the_environment_names_the_one_that_is_served(name: str) -> None:
    found = profiles.served({"SCHEDULER_NAME": name})

    assert names(found) == [name]
    like = {"mine": "gpu-scheduler", "default-scheduler": "default"}.get(name, name)
    assert found.profiles[0].plugins == config.load(profiles.installed()[like], like).profiles[0].plugins


@pytest.mark.parametrize(
    ("option", "answer"),
    [
        ("--scheduler-name=mine", "set SCHEDULER_NAME=mine, or schedulerName: mine in a profile of --config"),
        ("--master=https://10.0.0.1", "as clusters[].cluster.server: https://10.0.0.1, and give it with --kubeconfig"),
        ("--v=4", "there is no --v: use --log-level: debug for 4 and more"),
        ("-v=2", "there is no --v: use --log-level"),
    ],
)
def test_options_of_other_schedulers_are_answered_with_what_to_do(option: str, answer: str) -> None:
    result = CliRunner().invoke(main.cli, ["run", option])

    assert result.exit_code == 2
    assert answer in result.output


def test_the_lease_is_named_by_the_options_that_schedulers_had_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[config.LeaderElection] = []

    class Seen(Exception):
        pass

    def program(configuration: object, files: object, election: config.LeaderElection, *rest: object) -> None:
        made.append(election)
        raise Seen

    monkeypatch.setattr(run, "RunProgram", program)
    for words in (["--lock-object-name", "mine", "--lock-object-namespace", "team", "--master", ""], []):
        with pytest.raises(Seen):
            CliRunner().invoke(main.cli, ["run", *words], catch_exceptions=False)

    assert [(each.resource_name, each.resource_namespace) for each in made] == [
        ("mine", "team"),
        ("gangline", "kube-system"),
    ]


def test_profiles_are_listed_with_the_names_that_they_serve() -> None:
    rows = {row["profile"]: row for row in msgspec.json.decode(invoked("profiles", "list", "-o", "json"))}

    assert rows.keys() == profiles.installed().keys()
    assert (rows["default"]["schedulerName"], rows["default"]["served"]) == ("default-scheduler", False)
    assert rows["gpu-scheduler"]["served"] and "GpuClaim" in rows["gpu-scheduler"]["adds"]
    assert all(name in invoked("profiles", "list") for name in rows)


def test_each_profile_is_one_line_where_no_terminal_folds_it() -> None:
    lines = invoked("profiles", "list").splitlines()

    assert [line.split()[0] for line in lines[1:]] == sorted(profiles.installed())
    assert all(line == line.rstrip() for line in lines)


# What is at work


def test_without_a_file_the_whole_configuration_is_shown() -> None:
    shown = config.load(invoked("config", "show"), "shown")

    assert names(shown) == names(run.load([]))
    assert config.PluginRef("NodeResourcesFit", 10) in shown.profiles[1].plugins.score.enabled


def test_every_point_and_every_argument_is_spelled_out() -> None:
    loaded = config.load(profiles.installed()["gpu-scheduler"], "gpu-scheduler")

    (profile,) = effective(loaded, Catalog.discover()).profiles

    assert config.PluginRef("PrioritySort", 0) in profile.plugins.queue_sort.enabled
    assert config.PluginRef("TaintToleration", 3_000_000) in profile.plugins.score.enabled
    args = {entry.name: entry.args or {} for entry in profile.plugin_config}
    assert args["GpuClaim"]["staleAfterSeconds"] == 300.0
    assert args["NodeResourcesFit"]["scoringStrategy"]["type"] == "MostAllocated"


@pytest.mark.parametrize("name", sorted(profiles.installed()))
def test_what_is_shown_is_the_same_profile(name: str) -> None:
    catalog = Catalog.discover()
    loaded = config.load(profiles.installed()[name], name)
    shown = config.load(invoked("config", "show", "--profile", name), "shown")

    def compiled(configuration: config.SchedulerConfiguration) -> dict[str, list[tuple[str, int]]]:
        (runtime,) = judging_runtimes(configuration, Cache(), catalog=catalog).values()
        return {point: [(impl.name, impl.weight) for impl in impls] for point, impls in runtime.profile.points.items()}

    assert compiled(shown) == compiled(loaded)
    assert effective(shown, catalog) == effective(loaded, catalog)


def test_plugins_are_listed_whole_where_nobody_looks(tmp_path: Path) -> None:
    lines = {line.split()[0]: line for line in invoked("plugins", "list").splitlines()}

    assert set(Catalog.discover().names) <= lines.keys()
    assert "gangline_plugins.node_resources_fit:NodeResourcesFit" in lines["NodeResourcesFit"]


def test_plugins_are_listed_as_json() -> None:
    rows = {row["plugin"]: row for row in msgspec.json.decode(invoked("plugins", "list", "-o", "json"))}

    assert set(Catalog.discover().names) == rows.keys()
    assert "filter" in rows["NodeResourcesFit"]["points"] and not rows["NodeResourcesFit"]["unusable"]


# Status


def words(serves: list[str] | None, *schedulers: str) -> str:
    cache = cluster([make_node("a")])
    pending = [cache.record(make_pod(f"p-{name}", scheduler_name=name)) for name in schedulers]
    screen = Console(file=io.StringIO(), width=200)
    show(overview(cache, pending, Topology(cache.nodes), serves), screen)
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def test_status_says_that_nobody_serves_a_name() -> None:
    text = words(["gpu-scheduler"], "gpu-schedular", "gpu-scheduler", "default-scheduler")

    assert "no running Gangline serves the schedulerName gpu-schedular: it serves gpu-scheduler" in text
    assert "left to the cluster's own scheduler" in text and "not yet tried" in text


def test_status_says_that_no_scheduler_was_found() -> None:
    assert "no running scheduler of Gangline was found" in words(None, "gpu-scheduler")
    assert "no running scheduler" not in words(["gpu-scheduler"], "gpu-scheduler")
