"""An installed plugin that cannot be used stops those who use it, with one line, and nobody else."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gangline import Handle, PluginError, State, config, hookimpl, resources
from gangline.commands import profiles
from gangline.errors import ConfigError
from gangline.profile.assembly import judging_runtimes
from gangline.profile.runtime import Runtime
from gangline.state.cache import Cache
from gangline.testing import cluster, make_node, make_runtime

from ..installing import install
from ..invoking import invoked

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
BROKEN = "raise OSError('no driver [/dev/x]')\n"
WORKING = """\
from gangline import hookimpl

class Third:
    name = "Third"

    @hookimpl
    def reserve(self): ...
"""
CAUSE = "cannot be loaded from third-party 1.0: third_party:Third: OSError: no driver [/dev/x]"


def built(profile: str) -> Runtime:
    """The runtime of one profile, with the plugins that are installed."""
    loaded = config.load(f"{HEAD}profiles: [{{schedulerName: one, {profile}}}]\n", "config.yaml")
    return judging_runtimes(loaded, Cache())["one"]


def why(profile: str) -> str:
    with pytest.raises(ConfigError) as error:
        built(profile)
    return str(error.value)


@pytest.mark.parametrize(
    "profile",
    [
        "plugins: {}",
        "plugins: {multiPoint: {disabled: [{name: Third}]}}",
        "plugins: {reserve: {disabled: [{name: Third}]}}",
        "pluginConfig: [{name: Third, args: {limit: 1}}]",
    ],
    ids=["not named", "disabled", "disabled at a point", "configured only"],
)
@pytest.mark.parametrize("source", [WORKING, BROKEN], ids=["working", "broken"])
def test_a_plugin_that_no_profile_enables_is_not_imported(site: Path, source: str, profile: str) -> None:
    install(site, "third-party", {"Third": "third_party:Third"}, {"third_party": source})

    assert "Third" not in built(profile).profile.plugins
    assert "third_party" not in sys.modules


@pytest.mark.parametrize("point", ["multiPoint", "reserve"])
def test_a_broken_plugin_that_a_profile_enables_is_named_with_its_place_and_the_cause(site: Path, point: str) -> None:
    install(site, "third-party", {"Third": "third_party:Third"}, {"third_party": BROKEN})

    where = f"config.yaml: profiles[0].plugins.{point}.enabled[0].name"
    assert why(f"plugins: {{{point}: {{enabled: [{{name: Third}}]}}}}") == f"{where}: plugin Third: {CAUSE}"


@pytest.mark.parametrize(
    "attribute", ["reads", "reads_own", "watches", "errors_from", "ignores_requests", "reasons", "explain", "other"]
)
def test_a_plugin_whose_attribute_cannot_be_read_is_named(site: Path, attribute: str) -> None:
    asked = f"""
        if name == "{attribute}" or "{attribute}" == "other":
            raise KeyError("no " + name)
        raise AttributeError(name)
    """
    point = "filter" if attribute in ("reasons", "explain") else "permit"
    source = f"{WORKING}\n    @hookimpl\n    def {point}(self): ...\n\n    def __getattr__(self, name):{asked}"
    install(site, "third-party", {"Third": "third_party:Third"}, {"third_party": source})

    where = "config.yaml: profiles[0].plugins.multiPoint.enabled[0].name: plugin Third: "
    told = why("plugins: {multiPoint: {enabled: [{name: Third}]}}")
    assert told.startswith(f"{where}what it declares cannot be read: KeyError: 'no ")


def test_a_broken_default_plugin_stops_the_profiles_that_have_it(site: Path) -> None:
    install(site, "claims", {"GangScheduling": "claims:GangScheduling"}, {"claims": BROKEN})

    assert why("plugins: {}").startswith(
        "config.yaml: profiles[0]: plugin GangScheduling: cannot be loaded from claims"
    )
    assert built("plugins: {multiPoint: {disabled: [{name: GangScheduling}]}}").profile.plugins


def test_a_name_that_two_distributions_give_stops_only_who_uses_it(site: Path) -> None:
    install(site, "one", {"Third": "module_one:Third"}, {})
    install(site, "two", {"Third": "module_two:Third"}, {})

    assert built("plugins: {}").profile.plugins
    assert "plugin Third: is given by" in why("plugins: {multiPoint: {enabled: [{name: Third}]}}")


def test_commands_work_beside_a_broken_plugin(site: Path) -> None:
    install(site, "third-party", {"Third": "third_party:Third"}, {"third_party": BROKEN})
    (file := site / "config.yaml").write_text(HEAD)
    (node := site / "node.yaml").write_text("apiVersion: v1\nkind: Node\nmetadata: {name: a}\n")

    assert invoked("config", "validate", file).startswith("default-scheduler: ")
    assert "0 pending" in invoked("simulate", "--config", file, node)


def test_the_list_of_plugins_says_why_one_cannot_be_used(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    install(site, "third-party", {"Third": "third_party:Third"}, {"third_party": BROKEN})

    lines = {line.split()[0]: line for line in invoked("plugins", "list").splitlines()}

    assert f"unusable: {CAUSE}" in lines["Third"]
    assert "queue_sort" in lines["PrioritySort"]


def test_profiles_that_cannot_be_read_are_left_out(site: Path, caplog: pytest.LogCaptureFixture) -> None:
    install(site, "third-party", {"theirs": "third_profiles"}, {"third_profiles": BROKEN}, group=profiles.GROUP)

    assert "gpu-scheduler" in profiles.installed()

    cause = "third_profiles: OSError('no driver [/dev/x]')"
    assert caplog.messages == [f"the profiles of third-party 1.0 are left out: {cause}"]


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("raise SystemExit(3)", "SystemExit(3)"),
        ("def names(): raise SystemExit(3)", "SystemExit(3)"),
        ("def names(): return ['third']\ndef read(name): return b''", "TypeError('a profile is text, not bytes')"),
    ],
    ids=["ends the process", "ends it later", "no text"],
)
def test_profiles_that_would_end_the_process_are_left_out(
    site: Path, caplog: pytest.LogCaptureFixture, source: str, cause: str
) -> None:
    install(site, "third-party", {"theirs": "third_profiles"}, {"third_profiles": source}, group=profiles.GROUP)

    assert {"gangline", "gpu-scheduler"} <= profiles.installed().keys()
    assert "third" not in profiles.installed()
    assert caplog.messages == 2 * [f"the profiles of third-party 1.0 are left out: third_profiles: {cause}"]


@pytest.mark.parametrize("entry", ["a", "zz"])
def test_no_distribution_replaces_a_profile_that_comes_with_gangline(
    site: Path, caplog: pytest.LogCaptureFixture, entry: str
) -> None:
    source = "def names(): return ['gpu-scheduler', 'mine']\ndef read(name): return 'theirs'"
    install(site, "third-party", {entry: "third_profiles"}, {"third_profiles": source}, group=profiles.GROUP)

    assert {name for name, text in profiles.installed().items() if text == "theirs"} == {"mine"}
    assert caplog.messages == ["the profile gpu-scheduler of third-party 1.0 is left out: another one has this name"]


@pytest.mark.parametrize(
    ("ask", "why"),
    [
        (lambda state: state.tracker(dict), "is no tracker: it has no method add"),
        (lambda state: state.follow_nodes(object()), "is no listener: it has no method node_upserted"),
        (lambda state: state.store(resources.LEASES).subscribe(object()), "is no listener: it has no method on_upsert"),
    ],
    ids=["tracker", "nodes", "store"],
)
def test_what_could_never_be_called_is_refused_at_load(ask: Callable[[State], Any], why: str) -> None:
    class Odd:
        name = "Odd"

        def __init__(self, handle: Handle) -> None:
            ask(handle.state)

        @hookimpl
        def pre_enqueue(self) -> None:
            """Every pod may enter."""

    with pytest.raises(PluginError, match=f"Odd: cannot be built: .*{why}"):
        make_runtime(cluster([make_node("a")]), Odd)


@pytest.mark.parametrize("arg", [["a"], {"a": 1}, {"a"}, np.zeros(3), (1, [2])], ids=lambda arg: type(arg).__name__)
@pytest.mark.parametrize("ask", ["shared", "tracker"])
def test_what_is_shared_by_arguments_that_cannot_be_compared_is_refused_at_the_first_call(ask: str, arg: Any) -> None:
    class Counts:
        def __init__(self, arg: Any) -> None:
            """Whatever it is."""

        def add(self, pod: Any, row: int) -> None:
            """Nothing."""

        def remove(self, pod: Any, row: int) -> None:
            """Nothing."""

    why = r"Counts is shared by its arguments, and .* is not hashable; give a tuple, a frozenset, a frozen struct"

    with pytest.raises(TypeError, match=why):
        getattr(cluster([]), ask)(Counts, arg)


def test_a_listener_that_fails_on_a_node_keeps_it_from_nobody() -> None:
    class Deaf:
        name = "Deaf"

        def __init__(self, handle: Handle) -> None:
            handle.state.follow_nodes(self)

        def node_upserted(self, node: Any, row: int) -> None:
            raise KeyError("rack")

        def node_removed(self, name: str, row: int) -> None:
            """Nothing."""

        @hookimpl
        def pre_enqueue(self) -> None:
            """Every pod may enter."""

    cache = cluster([])
    make_runtime(cache, Deaf)

    cache.upsert_node(make_node("a"))

    assert cache.nodes.row_of("a") is not None
    assert cache.failures.counts["Deaf", "Listener"] == 1
