"""Arguments of plugins."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any, Literal

import msgspec
import pytest

from gangline.config import Profile, Seconds, decode_args, load, plugin_args
from gangline.errors import ConfigError

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: "


class Mode(Enum):
    FAST = "Fast"
    EXACT = "Exact"


class Resource(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    name: str
    weight: Annotated[int, msgspec.Meta(ge=1, le=100)] = 1


class Strategy(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    type: Literal["LeastAllocated", "MostAllocated"] = "LeastAllocated"
    resources: list[Resource] = []


class FitArgs(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    scoring_strategy: Strategy | None = None
    ignored_resources: list[str] = []
    bind_timeout: Seconds = Seconds(600)
    mode: Mode = Mode.FAST
    low: int = 0
    high: int = 10
    timeout: float = 1.0

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low must not be above high")


class NeedyArgs(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    server: str


def profile(config: str) -> Profile:
    return load(f"{HEAD}[{{pluginConfig: [{config}]}}]", "f.yaml").profiles[0]


def test_no_arguments_are_the_plugins_defaults() -> None:
    assert decode_args("f.yaml", "args", None, FitArgs) == FitArgs()


def test_arguments_become_the_plugins_struct() -> None:
    args = {
        "scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "gpu", "weight": 5}]},
        "bindTimeout": "1m",
        "mode": "Exact",
    }

    assert decode_args("f.yaml", "args", args, FitArgs) == FitArgs(
        Strategy("MostAllocated", [Resource("gpu", 5)]), bind_timeout=Seconds(60), mode=Mode.EXACT
    )


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (
            {"scoringStrategi": {}},
            "a.scoringStrategi: unknown field; did you mean scoringStrategy?",
        ),
        (
            {"scoringStrategy": {"resources": [{"name": "a"}, {"name": "b", "wait": 1}]}},
            "a.scoringStrategy.resources[1].wait: unknown field; did you mean weight?",
        ),
        (
            {"scoringStrategy": {"resources": [{"name": "a", "weight": 101}]}},
            "a.scoringStrategy.resources[0].weight: must be <= 100, got 101",
        ),
        (
            {"scoringStrategy": {"resources": [{}]}},
            "a.scoringStrategy.resources[0].name: required field is missing",
        ),
        (
            {"scoringStrategy": {"type": "Best"}},
            'a.scoringStrategy.type: must be one of LeastAllocated, MostAllocated, got "Best"',
        ),
        ({"scoringStrategy": []}, "a.scoringStrategy: expected a mapping, got a list"),
        ({"mode": "Slow"}, 'a.mode: must be one of Fast, Exact, got "Slow"'),
        ({"ignoredResources": ["a", 1]}, "a.ignoredResources[1]: expected a string, got 1"),
        (
            {"bindTimeout": 9},
            'a.bindTimeout: expected a duration such as "15s", "1m30s" or "100ms", got 9',
        ),
        ({"timeout": float("inf")}, "a.timeout: must be a finite number"),
        ({"timeout": float("nan")}, "a.timeout: must be a finite number"),
        ({"low": 11}, "a: low must not be above high"),
    ],
)
def test_what_does_not_fit_is_named_with_what_is_allowed(args: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError) as error:
        decode_args("f.yaml", "a", args, FitArgs)

    assert str(error.value) == f"f.yaml: {expected}"


def test_a_profile_gives_each_plugin_its_own_arguments() -> None:
    chosen = profile("{name: A}, {name: Fit, args: {kind: FitArgs, low: 3}}")

    assert plugin_args(chosen, "Fit", FitArgs) == FitArgs(low=3)
    assert plugin_args(chosen, "A", FitArgs) == FitArgs()
    assert plugin_args(chosen, "B", FitArgs) == FitArgs()


def test_wrong_arguments_of_a_profile_are_named_with_their_place() -> None:
    with pytest.raises(ConfigError) as error:
        plugin_args(profile("{name: A}, {name: Fit, args: {low: x}}"), "Fit", FitArgs)

    assert str(error.value) == ('f.yaml: profiles[0].pluginConfig[1].args.low: expected an integer, got "x"')


def test_a_plugin_that_needs_arguments_says_which() -> None:
    with pytest.raises(ConfigError) as error:
        plugin_args(profile("{name: A}"), "Needy", NeedyArgs)

    assert str(error.value) == ("f.yaml: profiles[0].pluginConfig[Needy].args.server: required field is missing")
