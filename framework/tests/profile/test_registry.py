"""Plugins are found by entry point, checked at load, and called with the arguments they ask for."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import time
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import gangline_plugins
from gangline import CodeColumn, Cycle, Handle, NodeView, PluginError, Reason, ScoreColumn, codes, hookimpl
from gangline.api.hookspecs import POINTS, UNLISTED, Hooks
from gangline.config.schema import NOT_LISTED
from gangline.profile.declaring import HOOKS
from gangline.profile.hooking import FOR_ALL
from gangline.profile.registry import GROUP, Catalog, Installed, distributions, points_of
from gangline.telemetry.metrics import Metrics
from gangline.testing import FakeHandle, cluster, make_node, make_pod, make_runtime, run_filter, run_score

from ..installing import install

PREFIX = "gangline_plugins."


class Plain:
    """Rejects cordoned nodes."""

    name = "Plain"
    reasons = (Reason("cordoned"),)

    @hookimpl
    def filter(self, nodes: NodeView) -> CodeColumn:
        return codes(nodes.unschedulable)

    @hookimpl
    def score(self, nodes: NodeView) -> ScoreColumn:
        return np.asarray(nodes.rows * 10.0, dtype=np.float64)


def why(name: str) -> str:
    with pytest.raises(PluginError) as error:
        Catalog.discover().load(name)
    return str(error.value)


# Finding


def test_a_plugin_of_another_distribution_is_found_and_says_where_it_is_from(site: Path) -> None:
    source = (
        'from gangline import hookimpl\nclass Third:\n    name = "Third"\n    @hookimpl\n    def reserve(self): ...\n'
    )
    install(site, "third-party", {"Third": "third_party:Third"}, {"third_party": source})
    catalog = Catalog.discover()

    assert catalog.origin("Third") == "third-party 1.0: third_party:Third"
    assert points_of(catalog.load("Third")) == {"reserve"}
    assert Installed("Third", catalog.origin("Third"), frozenset({"reserve"}), "") in list(distributions(catalog))


def test_an_unknown_plugin_is_named() -> None:
    assert why("Nowhere") == "plugin Nowhere: is not installed"


def test_a_class_that_calls_itself_something_else_is_refused(site: Path) -> None:
    install(site, "third-party", {"Third": "third_party:Third"}, {"third_party": 'class Third:\n    name = "Fourth"\n'})

    assert why("Third") == "plugin Third: its class says name = 'Fourth'"


@pytest.mark.parametrize(
    ("value", "source", "message"),
    [
        ("third_party:Third", "import nothing_there\n", "ModuleNotFoundError: No module named 'nothing_there'"),
        ("third_party:Third", "1 / 0\n", "ZeroDivisionError: division by zero"),
        ("third_party:Missing", "", "AttributeError: module 'third_party' has no attribute 'Missing'"),
        ("third_party:Third", "raise SystemExit('needs a GPU')\n", "SystemExit: needs a GPU"),
        ("third_party:Third", "def f(:\n", "SyntaxError: invalid syntax (third_party.py, line 1)"),
    ],
    ids=["import", "raises", "no such class", "exits", "syntax"],
)
def test_a_module_that_cannot_be_imported_is_named_with_the_cause(
    site: Path, value: str, source: str, message: str
) -> None:
    install(site, "third-party", {"Third": value}, {"third_party": source})

    assert why("Third") == f"plugin Third: cannot be loaded from third-party 1.0: {value}: {message}"


def test_two_distributions_cannot_give_the_same_name(site: Path) -> None:
    install(site, "one", {"Third": "module_one:Third"}, {})
    install(site, "two", {"Third": "module_two:Third"}, {})

    assert why("Third") in {
        f"plugin Third: is given by {a} 1.0: module_{a}:Third and {b} 1.0: module_{b}:Third"
        for a, b in (("one", "two"), ("two", "one"))
    }


def test_every_plugin_class_of_ours_is_registered_as_an_entry_point() -> None:
    modules = [importlib.import_module(m.name) for m in pkgutil.walk_packages(gangline_plugins.__path__, PREFIX)]
    found = {
        str(vars(cls)["name"]): cls
        for module in modules
        for cls in vars(module).values()
        if inspect.isclass(cls) and cls.__module__ == module.__name__ and hasattr(cls, "name") and points_of(cls)
    }
    registered = {e.name: e.load() for e in entry_points(group=GROUP) if e.value.startswith(PREFIX)}

    assert registered == found


# Building


def test_a_plugin_is_given_its_arguments_and_the_handle_or_what_it_asks_for() -> None:
    class Args(msgspec.Struct):
        limit: int = 3

    class Nothing(Plain):
        name = "Nothing"

    class Some(Plain):
        name = "Some"
        args_type = Args

        def __init__(self, args: Args) -> None:
            self.given: tuple[Any, ...] = (args.limit,)

    class Both(Some):
        name = "Both"

        def __init__(self, handle: Handle, args: Args, chance: float = 0.5) -> None:
            self.given = (args.limit, handle, chance)

    class Alone(Some):
        name = "Alone"

        def __init__(self, handle: Handle) -> None:
            self.given = (handle,)

    cache = cluster([make_node("a")])
    handle = FakeHandle(cache)
    runtime = make_runtime(cache, Nothing, Some, Both, Alone, args={"Both": Args(limit=9)}, handle=handle)
    plugins = runtime.profile.plugins

    assert plugins["Some"].given == (3,) and plugins["Both"].given == (9, handle, 0.5)
    assert plugins["Alone"].given == (handle,)


@pytest.mark.parametrize(
    ("parameter", "hint"),
    [("handel", "did you mean handle?"), ("arg", "did you mean args?"), ("state", "known are args, handle")],
)
def test_a_constructor_that_asks_for_what_is_not_known_is_refused_at_load(parameter: str, hint: str) -> None:
    source = f"def __init__(self, args, {parameter}): ..."
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    asking = type("Asking", (Plain,), {"name": "Asking", "__init__": namespace["__init__"]})

    with pytest.raises(PluginError) as error:
        Catalog({}).with_classes(asking).load("Asking")

    assert str(error.value) == f"plugin Asking at __init__: has the unknown parameter {parameter}; {hint}"


def test_a_constructor_that_passes_everything_on_gets_arguments_and_handle_by_name() -> None:
    class Args(msgspec.Struct):
        limit: int = 3

    class Base(Plain):
        args_type = Args

        def __init__(self, args: Args, handle: Handle) -> None:
            self.given = (args.limit, handle)

    class PassesOn(Base):
        name = "PassesOn"

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            assert args == ()
            super().__init__(*args, **kwargs)

    handle = FakeHandle(cluster())

    assert make_runtime(cluster(), PassesOn, handle=handle).profile.plugins["PassesOn"].given == (3, handle)


@pytest.mark.parametrize("parameter", ["*args", "*rest", "args, /"])
def test_a_constructor_that_takes_arguments_by_place_is_told_what_to_write(parameter: str) -> None:
    namespace: dict[str, Any] = {}
    exec(f"def __init__(self, {parameter}): ...", namespace)
    placed = type("Placed", (Plain,), {"name": "Placed", "__init__": namespace["__init__"]})
    why = f"takes {parameter.rstrip(', /')}, but gets what it asks for by name; write __init__(self, args, handle)"

    with pytest.raises(PluginError, match=re.escape(f"plugin Placed at __init__: {why}")):
        Catalog({}).with_classes(placed).load("Placed")


def test_every_hook_is_listed_by_profiles_or_known_as_one_that_is_not() -> None:
    assert set(NOT_LISTED) == set(HOOKS) - set(POINTS)
    assert set(UNLISTED) < set(NOT_LISTED)


def test_a_plugin_that_cannot_be_built_is_named() -> None:
    class Fragile(Plain):
        name = "Fragile"

        def __init__(self) -> None:
            raise ValueError("the weight must be 1..100, not 0")

    with pytest.raises(PluginError, match=r"^plugin Fragile: cannot be built: the weight must be 1\.\.100, not 0$"):
        make_runtime(cluster(), Fragile)


def raising(error: Exception) -> type[Any]:
    def __init__(self: Any) -> None:
        raise error

    return type("Fragile", (Plain,), {"name": "Fragile", "__init__": __init__})


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (KeyError("TOKEN"), "KeyError: 'TOKEN'"),
        (AssertionError(), "AssertionError"),
        (ValueError(), "ValueError"),
        (AttributeError("'NoneType' object has no attribute 'rows'"), "AttributeError: 'NoneType' object has no"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_a_plugin_that_fails_while_it_is_built_says_with_which_kind_of_error(error: Exception, why: str) -> None:
    with pytest.raises(PluginError, match=f"^plugin Fragile: cannot be built: {why}"):
        make_runtime(cluster(), raising(error))


def test_a_plugin_that_takes_long_to_be_built_is_named(caplog: pytest.LogCaptureFixture) -> None:
    class Slow(Plain):
        name = "Slow"

        def __init__(self) -> None:
            time.sleep(0.51)

    make_runtime(cluster(), Slow)

    assert "plugin Slow at __init__ held the loop for" in caplog.text


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ("pods", "has the unknown parameter pods; did you mean pod or nodes?"),
        ("pod, node", "has the unknown parameter node; did you mean nodes?"),
        ("pod, handle", "has the unknown parameter handle; known are cycle, nodes, pod"),
        ("pod, nodes=None", "has the parameter nodes with a default; write nodes alone"),
        ("pod, *, nodes", "has the parameter nodes behind a star; write nodes alone"),
    ],
)
def test_a_hook_that_asks_for_what_it_is_not_given_is_refused_at_load(parameters: str, why: str) -> None:
    method = eval(f"lambda self, {parameters}: None")
    wrong = type("Wrong", (), {"name": "Wrong", "reasons": (), "filter": hookimpl(method)})

    with pytest.raises(PluginError) as error:
        make_runtime(cluster(), wrong)

    assert str(error.value) == f"plugin Wrong at filter: {why}"


def test_a_hook_may_have_parameters_of_its_own_with_a_default() -> None:
    right = type("Right", (), {"name": "Right", "reserve": hookimpl(lambda self, pod, share=0.5: None)})

    assert make_runtime(cluster(), right).profile.plugins


@pytest.mark.parametrize(("point", "method"), [("score", "normalize_score"), ("reserve", "unreserve")])
def test_a_companion_method_without_the_mark_is_refused_at_load(point: str, method: str) -> None:
    forgotten = type(
        "Forgotten", (), {"name": "Forgotten", point: hookimpl(lambda self: None), method: lambda self: None}
    )

    with pytest.raises(PluginError) as error:
        make_runtime(cluster(), forgotten)

    assert str(error.value) == f"plugin Forgotten at {method}: is not marked with @hookimpl"


def test_the_points_are_those_of_the_contracts() -> None:
    companions = {"capacity", "events_to_register", "identity", "normalize_score", "skip_key"}
    companions |= {"pod_group_key", "pod_group_can_help", *FOR_ALL.values()}

    assert {name for name in vars(Hooks) if not name.startswith("_")} == {*POINTS, *UNLISTED, *companions}


# Calling


def test_a_method_may_leave_out_arguments_and_take_them_in_any_order() -> None:
    class Odd:
        name = "Odd"
        reasons = Plain.reasons

        @hookimpl
        def filter(self, nodes: NodeView, cycle: Cycle) -> CodeColumn:
            assert isinstance(nodes, NodeView) and isinstance(cycle, Cycle)
            return codes(nodes.unschedulable)

    assert run_filter(Odd, make_pod("p"), cluster([make_node("a", unschedulable=True)])) == {"a": ("cordoned",)}


def test_what_a_plugin_takes_is_measured_by_point() -> None:
    cache, metrics = cluster([make_node("a"), make_node("b")]), Metrics()
    runtime = make_runtime(cache, Plain, metrics=metrics)
    pod = cache.record(make_pod("p"))

    runtime.evaluator.choose(runtime.evaluator.filter(pod))

    measured = {labels: series.count for labels, series in metrics.plugins.items()}
    assert measured == {("Filter", "Plain"): 1, ("Score", "Plain"): 1}


def test_a_wrapper_goes_around_what_every_other_plugin_does() -> None:
    seen: list[list[Any]] = []

    class Around:
        """Doubles scores and watches filters; decides nothing itself."""

        name = "Around"

        @hookimpl(wrapper=True)
        def score(self) -> Any:
            (scores,) = yield
            return [scores * 2]

        @hookimpl(wrapper=True)
        def filter(self) -> Any:
            results = yield
            seen.append(results)
            return results

    cache = cluster([make_node("a"), make_node("b", unschedulable=True), make_node("c")])
    runtime = make_runtime(cache, Around, Plain)
    filtered = runtime.evaluator.filter(cache.record(make_pod("p")))

    assert [impl.name for impl in runtime.profile.points["score"]] == ["Plain"]
    assert filtered.feasible.tolist() == [True, False, True] and len(seen) == 1
    assert runtime.evaluator.scores(filtered)["Plain"].tolist() == [0.0, 40.0]
    assert run_score(Plain, make_pod("p"), cache) == {"a": 0.0, "c": 20.0}


def test_a_wrapper_that_raises_fails_as_the_plugin_it_wraps() -> None:
    class Around:
        name = "Around"

        @hookimpl(wrapper=True)
        def filter(self) -> Any:
            yield
            raise KeyError("x")

    cache = cluster([make_node("a")])

    with pytest.raises(PluginError, match=r"^plugin Plain at filter: KeyError: 'x'$"):
        make_runtime(cache, Around, Plain).evaluator.filter(cache.record(make_pod("p")))
