"""From entry points to a compiled profile: finds plugin classes, builds them, lists who implements what."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple

import msgspec
import pluggy

from gangline.errors import PluginError
from gangline.hookspecs import POINTS, PROJECT, Hooks
from gangline.metrics import Metrics, Series, point_label
from gangline.plugin import Handle
from gangline.proposal import Proposal
from gangline.status import Narrow, Status

GROUP = "gangline.plugins"
ASYNC_POINTS = frozenset({"pre_bind", "bind", "post_bind"})
_ANSWERS: dict[str, tuple[type[Any], ...]] = {
    "pre_enqueue": (Status,),
    "queue_sort": (tuple,),
    "pre_filter": (Status, Narrow),
    "post_filter": (Status, str, Proposal),
    "pre_score": (Status,),
    "reserve": (Status,),
    "permit": (Status,),
    "pre_bind": (Status,),
    "bind": (Status,),
}
"""What may be answered besides None; columns are checked where they are used."""


class Catalog:
    """Plugin classes by name. One is imported when it is asked for, so that none harms who does not use it."""

    def __init__(
        self, classes: Mapping[str, type[Any]], entries: Mapping[str, Sequence[EntryPoint]] | None = None
    ) -> None:
        self._classes = dict(classes)
        self._entries = dict(entries or {})

    @classmethod
    def discover(cls) -> Catalog:
        """Everything installed under the entry-point group `gangline.plugins`; nothing is imported."""
        entries: dict[str, list[EntryPoint]] = {}
        for entry in entry_points(group=GROUP):
            entries.setdefault(entry.name, []).append(entry)
        return cls({}, entries)

    def with_classes(self, *classes: type[Any]) -> Catalog:
        """The same catalog with more plugins, for tests and programs that bring their own."""
        return Catalog({**self._classes, **{c.name: c for c in classes}}, self._entries)

    @property
    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted({*self._classes, *self._entries})

    def origin(self, name: str) -> str:
        """Where a plugin comes from: the distribution and the object."""
        entries = self._entries.get(name)
        if entries is None:
            return self._classes[name].__module__
        return " and ".join(f"{e.dist.name} {e.dist.version}: {e.value}" if e.dist else e.value for e in entries)

    def load(self, name: str) -> type[Any]:
        """The class. Raises PluginError when it cannot be imported, is no plugin or is given by two distributions."""
        found = self._classes.get(name)
        if found is None:
            entries = self._entries.get(name, ())
            if not entries:
                raise PluginError(name, "", "is not installed")
            if len({entry.value for entry in entries}) > 1:
                raise PluginError(name, "", f"is given by {self.origin(name)}")
            try:
                found = entries[0].load()
            # A module that calls sys.exit must not end the scheduler without a word.
            except (Exception, SystemExit) as error:
                raise PluginError(name, "", f"cannot be loaded from {self.origin(name)}: {error!r}") from error
            self._classes[name] = found
        if getattr(found, "name", None) != name:
            raise PluginError(name, "", f"its class says name = {getattr(found, 'name', None)!r}")
        return found

    def points(self) -> Mapping[str, frozenset[str]]:
        """For each plugin the extension points that it implements; looking one up imports it, as `load` does."""
        return _Points(self)


class _Points(Mapping[str, frozenset[str]]):
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._names = catalog.names

    def __getitem__(self, name: str) -> frozenset[str]:
        if name not in self:
            raise KeyError(name)
        return points_of(self._catalog.load(name))

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def points_of(cls: type[Any]) -> frozenset[str]:
    """The extension points for which a class has a method marked with `@hookimpl`."""
    return frozenset(point for point in POINTS if getattr(getattr(cls, point, None), f"{PROJECT}_impl", None))


@dataclass(frozen=True, slots=True, eq=False)
class Implementation:
    """One plugin at one point, ready to be called with the hookspec's arguments, in its order."""

    plugin: Any
    name: str
    call: Callable[..., Any]
    weight: int = 1
    normalize: Callable[..., Any] | None = None
    capacity: Callable[..., Any] | None = None
    """Of a filter: how many like pods fit, beside what requests tell."""
    quick: Callable[..., Any] = lambda *args: None
    """The same neither timed nor checked, for one of many pods; whatever it raises is passed on."""
    reads: int | None = None
    """Change kinds (NODE | PODS) on which its verdict on a node depends besides the pod class; None: anything."""


@dataclass(eq=False)
class CompiledProfile:
    """A profile with its plugins built and one plain list per extension point."""

    name: str
    plugins: dict[str, Any]
    points: dict[str, tuple[Implementation, ...]]
    unreserve: dict[str, Callable[..., Any]] = field(default_factory=dict)

    @cached_property
    def events(self) -> dict[str, Sequence[Any] | None]:
        """For each plugin the events that it registers; None for one that registers nothing."""
        return {
            name: plugin.events_to_register() if hasattr(plugin, "events_to_register") else None
            for name, plugin in self.plugins.items()
        }


def compile_profile(
    name: str,
    points: Mapping[str, Sequence[tuple[str, int]]],
    catalog: Catalog,
    args: Callable[[str, type[msgspec.Struct] | None], msgspec.Struct | None],
    handle: Handle,
    metrics: Metrics,
) -> CompiledProfile:
    """Build the plugins of a profile and list what is called at each point.

    `points` holds names and weights per extension point, in order; `args(name, type)` gives a plugin's validated
    arguments. Raises PluginError for a plugin that cannot be built or has a hook with wrong arguments.
    """
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(Hooks)
    plugins: dict[str, Any] = {}
    for plugin_name in dict.fromkeys(n for listed in points.values() for n, _ in listed):
        cls = catalog.load(plugin_name)
        plugins[plugin_name] = _build(plugin_name, cls, args, handle)
        try:
            manager.register(plugins[plugin_name], plugin_name)
        except pluggy.PluginValidationError as error:
            raise PluginError(plugin_name, "", str(error).replace("\n", " ")) from error
    compiled = {
        point: tuple(
            _implementation(manager, plugins, plugin_name, point, weight, metrics)
            for plugin_name, weight in listed
            if not _wraps(plugins[plugin_name], point)
        )
        for point, listed in points.items()
    }
    unreserve = {
        n: _bound(manager, plugins, n, "unreserve", metrics)
        for n, plugin in plugins.items()
        if hasattr(plugin, "unreserve")
    }
    return CompiledProfile(name, plugins, compiled, unreserve)


def _build(
    name: str,
    cls: type[Any],
    args: Callable[[str, type[msgspec.Struct] | None], msgspec.Struct | None],
    handle: Handle,
) -> Any:
    given = args(name, getattr(cls, "args_type", None))
    try:
        parameters = inspect.signature(cls).parameters
        return cls(*(given, handle)[: len(parameters)]) if parameters else cls()
    except PluginError:
        raise
    except Exception as error:
        raise PluginError(name, "", f"cannot be built: {error}") from error


def _wraps(plugin: Any, point: str) -> bool:
    """Whether a plugin is at a point only to wrap what the others do there."""
    options: Mapping[str, Any] = getattr(getattr(plugin, point, None), f"{PROJECT}_impl", None) or {}
    return bool(options.get("wrapper") or options.get("hookwrapper"))


def _implementation(
    manager: pluggy.PluginManager,
    plugins: Mapping[str, Any],
    name: str,
    point: str,
    weight: int,
    metrics: Metrics,
) -> Implementation:
    plugin = plugins[name]
    normalize = None
    if point == "score" and hasattr(plugin, "normalize_score"):
        normalize = _bound(manager, plugins, name, "normalize_score", metrics)
    capacity = None
    if point == "filter" and hasattr(plugin, "capacity"):
        capacity = _bound(manager, plugins, name, "capacity", metrics)
    call = _bound(manager, plugins, name, point, metrics)
    return Implementation(
        plugin=plugin,
        name=name,
        call=call,
        quick=getattr(call, "__wrapped__", call),
        weight=weight,
        normalize=normalize,
        capacity=capacity,
        reads=getattr(plugin, "reads", None),
    )


def _bound(
    manager: pluggy.PluginManager,
    plugins: Mapping[str, Any],
    name: str,
    point: str,
    metrics: Metrics,
) -> Callable[..., Any]:
    """The plugin's method with the full arguments of the hook, timed, faults translated.

    Where a hook wrapper is registered for the point the call goes through pluggy.
    """
    caller = getattr(manager.hook, point)
    wanted = tuple(caller.spec.argnames)
    series = metrics.plugins.series(point_label(point), name)
    if any(impl.wrapper or impl.hookwrapper for impl in caller.get_hookimpls()):
        function = _through_pluggy(manager, plugins, name, point, wanted)
    else:
        impl = next((i for i in caller.get_hookimpls() if i.plugin_name == name), None)
        if impl is None:
            raise PluginError(name, point, "there is no method marked with @hookimpl")
        function = _with_arguments(impl.function, tuple(impl.argnames), wanted)
    return (
        _timed_async(function, name, point, series) if point in ASYNC_POINTS else _timed(function, name, point, series)
    )


def _through_pluggy(
    manager: pluggy.PluginManager,
    plugins: Mapping[str, Any],
    name: str,
    point: str,
    wanted: tuple[str, ...],
) -> Callable[..., Any]:
    hook = getattr(manager.hook, point)
    others = [i.plugin for i in hook.get_hookimpls() if i.plugin_name != name and not (i.wrapper or i.hookwrapper)]
    subset = manager.subset_hook_caller(point, others)

    def call(*args: Any) -> Any:
        results = subset(**dict(zip(wanted, args, strict=True)))
        return results[0] if results else None

    return call


def _with_arguments(function: Callable[..., Any], has: tuple[str, ...], wanted: tuple[str, ...]) -> Callable[..., Any]:
    if has == wanted:
        return function
    # Names are those of a hook's parameters; a call by position costs half of one that picks from *args.
    call: Callable[..., Any] = eval(f"lambda {', '.join(wanted)}: function({', '.join(has)})", {"function": function})
    return call


def _timed(function: Callable[..., Any], name: str, point: str, series: Series) -> Callable[..., Any]:
    clock, observe = time.perf_counter, series.observe
    answers = _ANSWERS.get(point)

    def call(*args: Any) -> Any:
        start = clock()
        try:
            answer = function(*args)
            if answers is not None and answer is not None:
                _check_answer(name, point, answer, answers)
            return answer
        except PluginError:
            raise
        except Exception as error:
            raise PluginError(name, point, f"{type(error).__name__}: {error}") from error
        finally:
            observe(clock() - start)

    call.__wrapped__ = function  # type: ignore[attr-defined]  # functions take attributes
    return call


def _timed_async(function: Callable[..., Any], name: str, point: str, series: Series) -> Callable[..., Any]:
    clock, observe = time.perf_counter, series.observe
    answers = _ANSWERS.get(point)

    async def call(*args: Any) -> Any:
        start = clock()
        try:
            answer = await function(*args)
        finally:
            observe(clock() - start)
        if answers is None:
            return None
        if answer is not None:
            _check_answer(name, point, answer, answers)
        return answer

    return call


def _check_answer(name: str, point: str, answer: object, answers: tuple[type[Any], ...]) -> None:
    if not isinstance(answer, answers):
        wanted = " or ".join(each.__name__ for each in answers)
        raise PluginError(name, point, f"must return {wanted} or None, not {answer!r}")


class Installed(NamedTuple):
    """A plugin that some distribution brings."""

    name: str
    origin: str
    points: frozenset[str]
    fault: str
    """Why it cannot be used; empty where it can."""


def distributions(catalog: Catalog) -> Iterator[Installed]:
    """Every plugin, those included that cannot be used; for `gangline plugins list`."""
    for name in catalog.names:
        points, fault = frozenset[str](), ""
        try:
            points = points_of(catalog.load(name))
        except PluginError as error:
            fault = error.why
        yield Installed(name, catalog.origin(name), points, fault)
