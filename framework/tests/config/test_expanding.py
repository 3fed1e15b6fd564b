"""Which plugins run where, and in which order."""

import pytest

from gangline.config import (
    DEFAULT_PLUGINS,
    PluginRef,
    Profile,
    default_plugins,
    expand,
    expand_all,
    load,
    loaded,
)
from gangline.errors import ConfigError

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: "
POINTS = {
    "Sort": frozenset({"queue_sort"}),
    "Bind": frozenset({"bind"}),
    "Taints": frozenset({"filter", "score", "events_to_register"}),
    "Fit": frozenset({"pre_filter", "filter", "score"}),
    "Image": frozenset({"score"}),
    "Custom": frozenset({"filter", "score", "placement_score"}),
    "Other": frozenset({"score"}),
    "OtherSort": frozenset({"queue_sort"}),
    "PlaceA": frozenset({"placement_generate"}),
    "PlaceB": frozenset({"placement_generate"}),
}
DEFAULTS = (
    PluginRef("Sort"),
    PluginRef("Taints", 3),
    PluginRef("Fit", 1),
    PluginRef("Image"),
    PluginRef("Bind"),
)


def profile(text: str) -> Profile:
    return load(f"{HEAD}[{text}]", "f.yaml").profiles[0]


def at(point: str, text: str) -> list[tuple[str, int]]:
    """The names and weights at one point of a profile with these plugins."""
    plugins = expand(profile(f"{{plugins: {text}}}"), POINTS, DEFAULTS)[point]
    return [(plugin.name, plugin.weight) for plugin in plugins]


def message(text: str) -> str:
    with pytest.raises(ConfigError) as error:
        expand(profile(text), POINTS, DEFAULTS)
    return str(error.value)


def test_without_plugins_the_defaults_run_wherever_they_can() -> None:
    expanded = expand(profile("{}"), POINTS, DEFAULTS)

    assert {point: plugins for point, plugins in expanded.items() if plugins} == {
        "queue_sort": (PluginRef("Sort"),),
        "pre_filter": (PluginRef("Fit"),),
        "filter": (PluginRef("Taints"), PluginRef("Fit")),
        "score": (PluginRef("Taints", 3), PluginRef("Fit", 1), PluginRef("Image", 1)),
        "bind": (PluginRef("Bind"),),
    }
    assert len(expanded) == 15


@pytest.mark.parametrize(
    ("plugins", "score"),
    [
        pytest.param(
            "{score: {enabled: [{name: Custom, weight: 7}]}}",
            [("Taints", 3), ("Fit", 1), ("Image", 1), ("Custom", 7)],
            id="another plugin comes after the defaults",
        ),
        pytest.param(
            "{score: {enabled: [{name: Fit, weight: 7}]}}",
            [("Fit", 7), ("Taints", 3), ("Image", 1)],
            id="a default's own entry comes first, with its weight",
        ),
        pytest.param(
            "{score: {enabled: [{name: Taints}]}}",
            [("Taints", 1), ("Fit", 1), ("Image", 1)],
            id="an own entry without weight weighs 1, not the default's 3",
        ),
        pytest.param(
            "{score: {enabled: [{name: Other}, {name: Image, weight: 2}, {name: Taints, weight: 4}]}}",
            [("Image", 2), ("Taints", 4), ("Fit", 1), ("Other", 1)],
            id="overriding entries keep their order among themselves",
        ),
        pytest.param(
            "{score: {disabled: [{name: Taints}]}}",
            [("Fit", 1), ("Image", 1)],
            id="a default disabled by name",
        ),
        pytest.param("{score: {disabled: [{name: '*'}]}}", [], id="all defaults disabled"),
        pytest.param(
            "{score: {disabled: [{name: '*'}], enabled: [{name: Image, weight: 5}, {name: Fit}]}}",
            [("Image", 5), ("Fit", 1)],
            id="all disabled and two enabled again, in the order given",
        ),
        pytest.param(
            "{score: {disabled: [{name: Taints}], enabled: [{name: Taints, weight: 9}]}}",
            [("Fit", 1), ("Image", 1), ("Taints", 9)],
            id="disabled and enabled moves a default to the end",
        ),
        pytest.param(
            "{multiPoint: {enabled: [{name: Custom, weight: 6}]}}",
            [("Taints", 3), ("Fit", 1), ("Image", 1), ("Custom", 6)],
            id="multiPoint appends a plugin",
        ),
        pytest.param(
            "{multiPoint: {enabled: [{name: Custom}, {name: Fit, weight: 8}]}}",
            [("Taints", 3), ("Fit", 8), ("Image", 1), ("Custom", 1)],
            id="multiPoint changes a default's weight in place",
        ),
        pytest.param(
            "{multiPoint: {enabled: [{name: Taints}]}}",
            [("Taints", 1), ("Fit", 1), ("Image", 1)],
            id="multiPoint without weight resets a default's weight to 1",
        ),
        pytest.param(
            "{multiPoint: {disabled: [{name: Taints}], enabled: [{name: Taints, weight: 2}]}}",
            [("Fit", 1), ("Image", 1), ("Taints", 2)],
            id="disabled and enabled in multiPoint moves a default to the end",
        ),
        pytest.param(
            "{multiPoint: {disabled: [{name: '*'}],"
            " enabled: [{name: Sort}, {name: Bind}, {name: Custom}, {name: Fit, weight: 2}]}}",
            [("Custom", 1), ("Fit", 2)],
            id="multiPoint replaces all defaults",
        ),
        pytest.param(
            "{multiPoint: {enabled: [{name: Custom, weight: 6}]}, score: {enabled: [{name: Custom, weight: 2}]}}",
            [("Custom", 2), ("Taints", 3), ("Fit", 1), ("Image", 1)],
            id="a point's own weight beats multiPoint's",
        ),
        pytest.param(
            "{multiPoint: {enabled: [{name: Custom}]}, score: {disabled: [{name: Custom}]}}",
            [("Taints", 3), ("Fit", 1), ("Image", 1)],
            id="a multiPoint plugin disabled at one point",
        ),
        pytest.param(
            "{multiPoint: {disabled: [{name: Taints}, {name: Image}]}}",
            [("Fit", 1)],
            id="defaults disabled everywhere",
        ),
        pytest.param(
            "{score: {disabled: [{name: VolumeBinding}, {name: EBSLimits}]}}",
            [("Taints", 3), ("Fit", 1), ("Image", 1)],
            id="disabling what only kube-scheduler has changes nothing",
        ),
    ],
)
def test_the_order_and_weights_of_score(plugins: str, score: list[tuple[str, int]]) -> None:
    assert at("score", plugins) == score


def test_disabling_at_one_point_leaves_the_others_alone() -> None:
    text = "{score: {disabled: [{name: '*'}]}}"

    assert at("filter", text) == [("Taints", 0), ("Fit", 0)]


def test_weights_count_only_where_plugins_score() -> None:
    text = "{multiPoint: {enabled: [{name: Custom, weight: 6}]}}"

    assert at("filter", text) == [("Taints", 0), ("Fit", 0), ("Custom", 0)]
    assert at("placement_score", text) == [("Custom", 6)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "{plugins: {score: {enabled: [{name: Imag}]}}}",
            'plugins.score.enabled[0].name: unknown plugin "Imag"; did you mean Image?',
        ),
        (
            "{plugins: {multiPoint: {enabled: [{name: Sort}, {name: Tains}]}}}",
            'plugins.multiPoint.enabled[1].name: unknown plugin "Tains"; did you mean Taints?',
        ),
        (
            "{plugins: {filter: {disabled: [{name: Ft}]}}}",
            'plugins.filter.disabled[0].name: unknown plugin "Ft"; did you mean Fit?',
        ),
        (
            "{plugins: {bind: {enabled: [{name: '*'}]}}}",
            'plugins.bind.enabled[0].name: unknown plugin "*"; known are Bind, Custom, Fit, '
            "Image, Other, OtherSort, PlaceA, PlaceB, Sort, Taints; install the package of any other plugin first",
        ),
        (
            "{pluginConfig: [{name: Custm}]}",
            'pluginConfig[0].name: unknown plugin "Custm"; did you mean Custom?',
        ),
        (
            "{plugins: {preFilter: {enabled: [{name: Taints}]}}}",
            "plugins.preFilter.enabled[0].name: plugin Taints does not implement preFilter, only filter, score",
        ),
        (
            "{plugins: {queueSort: {disabled: [{name: Sort}]}}}",
            "plugins.queueSort: expected exactly one plugin, got none",
        ),
        (
            "{plugins: {queueSort: {enabled: [{name: OtherSort}]}}}",
            "plugins.queueSort: expected exactly one plugin, got Sort, OtherSort",
        ),
        (
            "{plugins: {bind: {disabled: [{name: '*'}]}}}",
            "plugins.bind: expected at least one plugin, got none",
        ),
    ],
)
def test_what_cannot_run_is_named_with_its_place(text: str, expected: str) -> None:
    assert message(text) == f"f.yaml: profiles[0].{expected}"


def test_a_plugin_that_is_installed_but_not_enabled_may_be_configured() -> None:
    assert expand(profile("{pluginConfig: [{name: Other, args: {a: 1}}]}"), POINTS, DEFAULTS)


@pytest.mark.parametrize(
    "text",
    [
        "{plugins: {multiPoint: {enabled: [{name: DynamicResources, weight: 2}]}}}",
        "{plugins: {score: {enabled: [{name: DynamicResources, weight: 9}]}}}",
        "{pluginConfig: [{name: DynamicResources, args: {filterTimeout: 10s}}]}",
        "{plugins: {reserve: {enabled: [{name: DynamicResources}]}, preBind: {enabled: [{name: DynamicResources}]}}}",
    ],
    ids=["at every point", "at one point", "configured", "twice"],
)
def test_a_default_of_kube_scheduler_that_is_not_installed_is_left_out_with_one_warning(
    text: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert expand(profile(text), POINTS, DEFAULTS) == expand(profile("{}"), POINTS, DEFAULTS)
    assert caplog.messages == ["f.yaml: profiles[0]: left out, as it is not installed: DynamicResources"]


def test_disabling_what_is_not_installed_needs_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert at("score", "{multiPoint: {disabled: [{name: DynamicResources}]}}")

    assert caplog.messages == []


def test_leaving_out_does_not_hide_that_nothing_binds() -> None:
    text = "{plugins: {bind: {disabled: [{name: '*'}], enabled: [{name: DefaultBinder}]}}}"

    assert message(text) == ("f.yaml: profiles[0].plugins.bind: expected at least one plugin, got none")


def test_all_profiles_are_expanded_by_name() -> None:
    text = "[{schedulerName: a}, {schedulerName: b, plugins: {score: {disabled: [{name: '*'}]}}}]"

    expanded = expand_all(load(HEAD + text, "f.yaml").profiles, POINTS, DEFAULTS)

    assert [len(expanded[name]["score"]) for name in ("a", "b")] == [3, 0]


@pytest.mark.parametrize(
    ("second", "got"),
    [
        (
            "plugins: {multiPoint: {disabled: [{name: Sort}], enabled: [{name: OtherSort}]}}",
            "OtherSort",
        ),
        ("pluginConfig: [{name: Sort, args: {reverse: true}}]", "Sort"),
    ],
    ids=["another plugin", "other arguments"],
)
def test_all_profiles_share_one_queue_order(second: str, got: str) -> None:
    text = f"[{{schedulerName: a}}, {{schedulerName: b, {second}}}]"

    with pytest.raises(ConfigError) as error:
        expand_all(load(HEAD + text, "f.yaml").profiles, POINTS, DEFAULTS)

    assert str(error.value) == (
        f"f.yaml: profiles[1].plugins: queueSort {got} and its args must be the same as in profiles[0] (Sort)"
    )


def test_the_defaults_are_cut_down_to_what_is_installed() -> None:
    chosen = default_plugins({"NodeAffinity", "PrioritySort", "Mine"})

    assert chosen == (PluginRef("PrioritySort"), PluginRef("NodeAffinity", 2))


def test_the_default_weights_are_kube_schedulers() -> None:
    assert {plugin.name: plugin.weight for plugin in DEFAULT_PLUGINS if plugin.weight} == {
        "TaintToleration": 3,
        "NodeAffinity": 2,
        "NodeResourcesFit": 1,
        "PodTopologySpread": 2,
        "InterPodAffinity": 2,
        "DynamicResources": 2,
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
        "PodGroupPodsCount": 1,
    }


class Noting(dict[str, frozenset[str]]):
    """Notes the plugins that are loaded: reading an entry loads the plugin."""

    def __init__(self) -> None:
        super().__init__(POINTS)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> frozenset[str]:
        self.read.add(name)
        return super().__getitem__(name)


@pytest.mark.parametrize(
    "plugins",
    [
        "{}",
        "{multiPoint: {disabled: [{name: Image}]}}",
        "{multiPoint: {enabled: [{name: Custom}]}, score: {enabled: [{name: Other}]}}",
        "{multiPoint: {disabled: [{name: '*'}], enabled: [{name: Sort}, {name: Bind}, {name: NodePorts}]}}",
        "{queueSort: {disabled: [{name: '*'}], enabled: [{name: OtherSort}]}}",
    ],
    ids=["default", "one-disabled", "more", "all-disabled", "replaced"],
)
def test_it_is_known_beforehand_which_plugins_profiles_load(plugins: str) -> None:
    points, profiles = Noting(), [profile(f"{{plugins: {plugins}}}")]

    before = loaded(profiles, points, DEFAULTS)
    assert not points.read
    expand_all(profiles, points, DEFAULTS)

    assert set(before) == points.read and len(before) == len(points.read)
