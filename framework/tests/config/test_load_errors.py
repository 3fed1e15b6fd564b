"""What is wrong with a file is said in one line: the file, the place in it, the value and why."""

# ruff: noqa: E501 - tables of whole messages, one case on a line

from itertools import pairwise

import pytest

from gangline.config import load
from gangline.errors import ConfigError

V1 = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
SUPPORTED = "kubescheduler.config.k8s.io/v1, kubescheduler.config.k8s.io/v1beta3"
EXTENDER = "extenders: [{urlPrefix: 'http://a', "


def message(text: str | bytes) -> str:
    with pytest.raises(ConfigError) as error:
        load(text, "f.yaml")
    return str(error.value)


MULTIPLIED = "a: &a [x]\n" + "".join(f"{b}: &{b} [{','.join(9 * [f'*{a}'])}]\n" for a, b in pairwise("abcdefgh"))
"""Short, and some millions of values long once every alias stands for what it means."""
TOO_LONG = (
    "Exceeds the limit (4300 digits) for integer string conversion: value has 5000 digits; "
    "use sys.set_int_max_str_digits() to increase the limit"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [1\nb: 2", "2:2: not valid YAML: while parsing a flow sequence, did not find expected ',' or ']'"),
        ("a: 1\n b: x", "2:3: not valid YAML: mapping values are not allowed in this context"),
        ("a: [", "1:5: not valid YAML: while parsing a flow node, did not find expected node content"),
        ("a: [\n", "2:1: not valid YAML: while parsing a flow node, did not find expected node content"),
        ("a: *x", "1:4: not valid YAML: found undefined alias 'x'"),
        ("a: 1\na: 2", '2:1: not valid YAML: key "a" is there twice'),
        ("a: 1\nyes: 2", "2:1: not valid YAML: a key has to be a string"),
        ("a: 1\n---\nb: 2", "2:1: there is more than one document"),
        ("a: &a [*a]", "nested deeper than 64 levels"),
        ("a: &a {b: *a}", "nested deeper than 64 levels"),
        ("a: " + "[" * 100 + "]" * 100, "nested deeper than 64 levels"),
        ("a: " + "[" * 2000, "nested deeper than 64 levels"),
        pytest.param("a: " + "[" * 1_000_000, "nested deeper than 64 levels", id="brackets"),
        pytest.param("- " * 100_000, "nested deeper than 64 levels", id="dashes"),
        pytest.param("a: " + "9" * 5000, f"not valid YAML: {TOO_LONG}", id="a long number"),
        ("a: 2026-13-45", "kind: required field is missing; supported: KubeSchedulerConfiguration"),  # a text, no date
        (MULTIPLIED, "holds more than 200000 values"),
        ("é: 1\né: \x00", "2:4: not valid YAML: control characters are not allowed"),
        (b"a: \xff", "not UTF-8 at byte 3"),
        ("", "expected a mapping, got nothing"),
        ("- a", "expected a mapping, got a list"),
        ("a", 'expected a mapping, got "a"'),
    ],
)  # fmt: skip
def test_malformed_yaml_names_line_and_column(text: str | bytes, expected: str) -> None:
    assert message(text) == f"f.yaml: {expected}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kind: Deployment", 'kind: "Deployment" is not supported; supported: KubeSchedulerConfiguration'),
        ("apiVersion: v1", "kind: required field is missing; supported: KubeSchedulerConfiguration"),
        ("kind: KubeSchedulerConfiguration", f"apiVersion: required field is missing; supported: {SUPPORTED}"),
        (
            "kind: KubeSchedulerConfiguration\napiVersion: kubescheduler.config.k8s.io/v1beta2",
            f'apiVersion: "kubescheduler.config.k8s.io/v1beta2" is not supported; supported: {SUPPORTED}',
        ),
    ],
)  # fmt: skip
def test_an_unsupported_version_names_what_is_supported(text: str, expected: str) -> None:
    assert message(text) == f"f.yaml: {expected}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", "data: the ConfigMap holds no configuration"),
        ("{a: x, b: y}", "data: expected the key config.yaml or a single key, got a, b"),
        ("{config.yaml: {a: b}}", "data.config.yaml: expected a string, got a mapping"),
    ],
)
def test_a_config_map_has_to_hold_one_configuration(text: str, expected: str) -> None:
    assert message(f"kind: ConfigMap\ndata: {text}") == f"f.yaml: {expected}"


def test_an_error_inside_a_config_map_names_its_key() -> None:
    text = "kind: ConfigMap\ndata:\n  config.yaml: 'kind: X'"

    assert message(text) == ('f.yaml#config.yaml: kind: "X" is not supported; supported: KubeSchedulerConfiguration')


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("paralelism: 3", "paralelism: unknown field; did you mean parallelism?"),
        ("leaderElection: {leaderElection: true}", "leaderElection.leaderElection: unknown field; did you mean leaderElect or leaseDuration?"),
        ("profiles: [{plugins: {scoring: {}}}]", "profiles[0].plugins.scoring: unknown field; did you mean score?"),
        *(
            (f"profiles: [{{plugins: {{{point}: {{}}}}}}]", f"profiles[0].plugins.{point}: unknown field; a profile does not list plugins here: each enabled plugin that has the method is called")
            for point in ("preCycle", "post_enqueue", "unreserve", "normalizeScore", "eventsToRegister")
        ),
        ("profiles: [{plugins: {score: {enable: []}}}]", "profiles[0].plugins.score.enable: unknown field; did you mean enabled?"),
        ("profiles: [{plugins: {score: {xyz: []}}}]", "profiles[0].plugins.score.xyz: unknown field; known are disabled, enabled"),
        ("profiles: [{plugins: {score: {enabled: [{}]}}}]", "profiles[0].plugins.score.enabled[0].name: required field is missing"),
        ("profiles: [{plugins: {score: {enabled: [NodeName]}}}]", 'profiles[0].plugins.score.enabled[0]: expected a mapping, got "NodeName"'),
        ("profiles: [{plugins: {score: {enabled: [{name: ''}]}}}]", 'profiles[0].plugins.score.enabled[0].name: must be of length >= 1, got ""'),
        ("extenders: [{}]", "extenders[0].urlPrefix: required field is missing"),
        ("extenders: [{urlPrefix: a, tlsConfig: {caFil: x}}]", "extenders[0].tlsConfig.caFil: unknown field; did you mean caFile or certFile?"),
    ],
)  # fmt: skip
def test_a_field_that_does_not_fit_is_named_with_a_hint(text: str, expected: str) -> None:
    assert message(V1 + text) == f"f.yaml: {expected}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("parallelism: many", 'parallelism: expected an integer, got "many"'),
        ("parallelism: 2.5", "parallelism: expected an integer, got 2.5"),
        ("parallelism: true", "parallelism: expected an integer, got true"),
        ("enableProfiling: 1", "enableProfiling: expected true or false, got 1"),
        ("profiles: {}", "profiles: expected a list, got a mapping"),
        ("profiles: [null]", "profiles[0]: expected a mapping, got null"),
        ("clientConnection: []", "clientConnection: expected a mapping, got a list"),
        ("clientConnection: {qps: fast}", 'clientConnection.qps: expected a number, got "fast"'),
        ("profiles: [{schedulerName: 1}]", "profiles[0].schedulerName: expected a string, got 1"),
        ("leaderElection: {leaseDuration: 15}", 'leaderElection.leaseDuration: expected a duration such as "15s", "1m30s" or "100ms", got 15'),
        ("leaderElection: {retryPeriod: 2 s}", 'leaderElection.retryPeriod: expected a duration such as "15s", "1m30s" or "100ms", got "2 s"'),
        ("leaderElection: {leaseDuration: -5s}", 'leaderElection.leaseDuration: expected a duration such as "15s", "1m30s" or "100ms", got "-5s"'),
        ("profiles: [{schedulerName: [" + "x" * 100 + "]}]", "profiles[0].schedulerName: expected a string, got a list"),
        ("parallelism: " + "x" * 100, f'parallelism: expected an integer, got "{"x" * 76}...'),
        ('parallelism: "a\\nb"', 'parallelism: expected an integer, got "a\\nb"'),
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_type_is_shown(text: str, expected: str) -> None:
    assert message(V1 + text) == f"f.yaml: {expected}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("parallelism: 0", "parallelism: must be >= 1, got 0"),
        ("percentageOfNodesToScore: 101", "percentageOfNodesToScore: must be <= 100, got 101"),
        ("percentageOfNodesToScore: -1", "percentageOfNodesToScore: must be >= 0, got -1"),
        ("profiles: [{percentageOfNodesToScore: 101}]", "profiles[0].percentageOfNodesToScore: must be <= 100, got 101"),
        ("podInitialBackoffSeconds: 0", "podInitialBackoffSeconds: must be >= 1, got 0"),
        ("podInitialBackoffSeconds: 11", "podMaxBackoffSeconds: must be at least podInitialBackoffSeconds (11), got 10"),
        ("podMaxBackoffSeconds: 4\npodInitialBackoffSeconds: 5", "podMaxBackoffSeconds: must be at least podInitialBackoffSeconds (5), got 4"),
        ("clientConnection: {burst: -1}", "clientConnection.burst: must be >= 0, got -1"),
        (
            "profiles: [{plugins: {score: {enabled: [{name: A}, {name: B, weight: -5}]}}}]",
            "profiles[0].plugins.score.enabled[1].weight: must be >= 0, got -5",
        ),
        (
            "profiles: [{plugins: {multiPoint: {enabled: [{name: B, weight: 2147483648}]}}}]",
            "profiles[0].plugins.multiPoint.enabled[0].weight: must be <= 2147483647, got 2147483648",
        ),
        ("leaderElection: {resourceLock: endpoints}", 'leaderElection.resourceLock: must be leases, got "endpoints"'),
        ("leaderElection: {leaseDuration: 10s}", "leaderElection.leaseDuration: must be greater than renewDeadline (10s), got 10s"),
        ("leaderElection: {retryPeriod: 9s}", "leaderElection.renewDeadline: must be greater than 1.2 x retryPeriod (9s), got 10s"),
    ],
)  # fmt: skip
def test_a_value_out_of_range_is_shown_with_the_limit(text: str, expected: str) -> None:
    assert message(V1 + text) == f"f.yaml: {expected}"


def test_leader_election_that_is_off_is_not_checked() -> None:
    text = V1 + "leaderElection: {leaderElect: false, leaseDuration: 1s, resourceLock: endpoints}"

    assert load(text, "f.yaml").leader_election.resource_lock == "endpoints"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[{schedulerName: ''}]", "[0].schedulerName: must not be empty: a profile is selected by its schedulerName"),
        ("[{schedulerName: a}, {}]", "[1].schedulerName: must not be empty: a profile is selected by its schedulerName"),
        ("[{schedulerName: a}, {schedulerName: b}, {schedulerName: a}]", '[2].schedulerName: "a" is taken by profiles[0]'),
        (
            "[{schedulerName: a}, {schedulerName: b, plugins: {queueSort: {enabled: [{name: Q}]}}}]",
            "[1].plugins.queueSort: must be the same in all profiles, and differs from profiles[0]",
        ),
        (
            "[{plugins: {filter: {enabled: [{name: A}, {name: B}, {name: A}]}}}]",
            "[0].plugins.filter.enabled[2].name: A is enabled already, at enabled[0]",
        ),
        (
            "[{plugins: {multiPoint: {enabled: [{name: A}, {name: A}]}}}]",
            "[0].plugins.multiPoint.enabled[1].name: A is enabled already, at enabled[0]",
        ),
        ("[{pluginConfig: [{name: A}, {name: A}]}]", "[0].pluginConfig[1].name: A is configured already, at pluginConfig[0]"),
        (
            "[{pluginConfig: [{name: NodeAffinity, args: {kind: NodeAffinity}}]}]",
            '[0].pluginConfig[0].args.kind: must be NodeAffinityArgs, got "NodeAffinity"',
        ),
        ("[{pluginConfig: [{name: A, args: 3}]}]", "[0].pluginConfig[0].args: expected a mapping, got 3"),
    ],
)  # fmt: skip
def test_profiles_that_contradict_themselves_or_each_other(text: str, expected: str) -> None:
    assert message(f"{V1}profiles: {text}") == f"f.yaml: profiles{expected}"


@pytest.mark.parametrize("version", ["v1", "v1beta3"])
def test_a_plugin_that_is_gone_names_its_successor(version: str) -> None:
    head = V1.replace("v1\n", f"{version}\n")
    text = head + "profiles: [{plugins: {score: {enabled: [{name: SelectorSpread}]}}}]"

    assert message(text) == (
        "f.yaml: profiles[0].plugins.score.enabled[0].name: "
        "plugin SelectorSpread was removed from Kubernetes; use PodTopologySpread"
    )


def test_arguments_for_a_plugin_that_is_gone_name_its_successor() -> None:
    assert message(V1 + "profiles: [{pluginConfig: [{name: EBSLimits}]}]") == (
        "f.yaml: profiles[0].pluginConfig[0].name: plugin EBSLimits was removed from Kubernetes; use NodeVolumeLimits"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("prioritizeVerb: p}]", "extenders[0].weight: must be positive where there is a prioritizeVerb, got 0"),
        ("prioritizeVerb: p, weight: -1}]", "extenders[0].weight: must be positive where there is a prioritizeVerb, got -1"),
        ("bindVerb: b}, {urlPrefix: c}, {urlPrefix: b, bindVerb: b}]", "extenders[2].bindVerb: only one extender can bind, and extenders[0] does already"),
        (
            "managedResources: [{name: example.com/a}, {name: example.com/a}]}]",
            'extenders[0].managedResources[1].name: "example.com/a" is managed already',
        ),
        (
            "managedResources: [{name: example.com/a}]}, {urlPrefix: b, managedResources: [{name: example.com/a}]}]",
            'extenders[1].managedResources[0].name: "example.com/a" is managed already',
        ),
        ("httpTimeout: soon}]", 'extenders[0].httpTimeout: expected a duration such as "15s", "1m30s" or "100ms", got "soon"'),
    ],
)  # fmt: skip
def test_extenders_that_cannot_work(text: str, expected: str) -> None:
    assert message(V1 + EXTENDER + text) == f"f.yaml: {expected}"


@pytest.mark.parametrize(
    "name",
    [
        "cpu",
        "kubernetes.io/gpu",
        "node.kubernetes.io/gpu",
        "requests.example.com/gpu",
        "Example.com/gpu",
        "example.com/",
        "example.com/a/b",
        "example.com/" + "a" * 64,
        "a" * 245 + "/gpu",
    ],
)
def test_only_extended_resources_can_be_managed(name: str) -> None:
    why = f'"{name}" is not an extended resource, such as example.com/gpu'
    if len(name) > 78:
        why = f'"{name[:76]}... is not an extended resource, such as example.com/gpu'

    assert message(f"{V1}{EXTENDER}managedResources: [{{name: {name}}}]}}]") == (
        f"f.yaml: extenders[0].managedResources[0].name: {why}"
    )
