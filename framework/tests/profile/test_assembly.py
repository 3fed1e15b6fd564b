"""From a configuration to profiles at work."""

from __future__ import annotations

import time
from typing import ClassVar

import pytest

from gangline import PodInfo, config, hookimpl
from gangline.errors import ConfigError, PluginError
from gangline.profile.assembly import judging_runtimes
from gangline.profile.registry import Catalog
from gangline.profile.runtime import Runtime
from gangline.state.cache import Cache
from gangline.testing import make_pod
from gangline_plugins.default_binder import DefaultBinder
from gangline_plugins.node_resources_fit import NodeResourcesFit
from gangline_plugins.priority_sort import PrioritySort
from gangline_plugins.taint_toleration import TaintToleration

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n"
ONLY = """\
- schedulerName: {name}
  plugins:
    multiPoint:
      disabled: [{{name: "*"}}]
      enabled: [{{name: PrioritySort}}, {{name: DefaultBinder}}, {{name: NodeResourcesFit, weight: 4}}]
{more}"""


def built(text: str) -> dict[str, Runtime]:
    catalog = Catalog({}).with_classes(PrioritySort, DefaultBinder, NodeResourcesFit, TaintToleration)
    return judging_runtimes(config.load(HEAD + text, "config.yaml"), Cache(), catalog=catalog)


def test_each_profile_runs_its_own_plugins_with_their_weights() -> None:
    runtimes = built(ONLY.format(name="one", more="") + ONLY.format(name="two", more=""))

    assert list(runtimes) == ["one", "two"]
    assert runtimes["one"].evaluator.weights() == {"NodeResourcesFit": 4}
    one, two = (runtime.profile.plugins["NodeResourcesFit"] for runtime in runtimes.values())
    assert one is not two and runtimes["two"].handle.profile == "two"


def test_arguments_reach_the_plugin_and_their_mistakes_name_their_place() -> None:
    args = "  pluginConfig:\n  - name: NodeResourcesFit\n    args: {{ignoredResources: {value}}}\n"

    assert built(ONLY.format(name="one", more=args.format(value="[example.com/x]")))
    with pytest.raises(ConfigError, match=r"^config\.yaml: profiles\[0\]\.pluginConfig\[0\]\.args\.ignoredResources"):
        built(ONLY.format(name="one", more=args.format(value="7")))


def test_arguments_that_make_no_sense_to_the_plugin_name_it() -> None:
    args = (
        "  pluginConfig:\n  - name: NodeResourcesFit\n"
        "    args: {scoringStrategy: {type: RequestedToCapacityRatio, resources: [{name: cpu}]}}\n"
    )

    with pytest.raises((PluginError, ConfigError), match=r"shape"):
        built(ONLY.format(name="one", more=args))


def test_an_unknown_plugin_names_its_place() -> None:
    text = ONLY.format(name="one", more="").replace("NodeResourcesFit", "NodeResourceFit")

    with pytest.raises(ConfigError) as error:
        built(text)

    assert str(error.value).startswith(
        'config.yaml: profiles[0].plugins.multiPoint.enabled[2].name: unknown plugin "NodeResourceFit"'
    )
    assert "NodeResourcesFit" in str(error.value)


def test_a_plugin_with_hooks_alone_that_profiles_do_not_list_is_built_where_it_is_enabled() -> None:
    class Told:
        name = "Told"
        pods: ClassVar[list[str]] = []

        @hookimpl
        def post_enqueue(self, pod: PodInfo) -> None:
            self.pods.append(pod.name)

    profile = "profiles:\n- schedulerName: a\n  plugins: {multiPoint: {enabled: [{name: Told}]}}\n- schedulerName: b\n"
    cluster = Cache()
    catalog = Catalog.discover().with_classes(Told)
    text = f"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n{profile}"
    runtimes = judging_runtimes(config.load(text, "told"), cluster, catalog=catalog)

    for name, runtime in runtimes.items():
        runtime.enqueued(cluster.record(make_pod(f"of-{name}")))

    assert Told.pods == ["of-a"]


def test_a_plugin_without_any_hook_is_a_mistake_where_it_is_enabled() -> None:
    class Idle:
        name = "Idle"

        def fliter(self) -> None:
            """A slip."""

    profile = "profiles:\n- schedulerName: a\n  plugins: {multiPoint: {enabled: [{name: Idle}]}}\n"
    text = f"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n{profile}"

    with pytest.raises(ConfigError, match="Idle: is enabled, but has no hook at which it would be called"):
        judging_runtimes(config.load(text, "idle"), Cache(), catalog=Catalog.discover().with_classes(Idle))


def test_a_command_does_not_warn_that_a_plugin_holds_up_a_loop(caplog: pytest.LogCaptureFixture) -> None:
    class Slow(NodeResourcesFit):
        name = "NodeResourcesFit"

        @hookimpl
        def pre_filter(self, pod: PodInfo) -> None:
            time.sleep(0.06)

    catalog = Catalog({}).with_classes(PrioritySort, DefaultBinder, Slow)
    configuration, cache = config.load(HEAD + ONLY.format(name="one", more=""), "config.yaml"), Cache()
    runtime = judging_runtimes(configuration, cache, catalog=catalog)["one"]

    runtime.filter(cache.record(make_pod("p")))

    assert not caplog.messages
    assert "NodeResourcesFit" in {plugin for plugin, _ in runtime.profile.failures.slow_counts}
