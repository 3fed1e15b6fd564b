"""Checks, at load, what a plugin declares: its hooks, `reads`, arguments, reasons and events."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import SequenceMatcher, get_close_matches
from functools import lru_cache
from typing import Any

import msgspec

from gangline.api.hints import EventHint
from gangline.api.hookspecs import PROJECT, Hooks
from gangline.config.explaining import did_you_mean
from gangline.errors import PluginError
from gangline.failures import described, shown, text_of
from gangline.kube import resources
from gangline.kube.resources import Resource
from gangline.profile.calling import ASYNC_POINTS
from gangline.state.changes import NODE, PODS, SPECS, Changes
from gangline.status import Reason

HOOKS = tuple(name for name in vars(Hooks) if not name.startswith("_"))
"""Every method of a plugin that the framework may call."""
GIVEN = ("args", "handle")
"""The names of the parameters that the framework can pass to a constructor."""
ATTRIBUTES = ("reads", "reads_own", "ignores_requests", "reasons", "errors_from", "args_type", "watches")
"""The attributes of a plugin, besides `name`, that the framework reads."""
_READS = (0, NODE, PODS, NODE | PODS, SPECS, NODE | SPECS)
KINDS = frozenset(each.key for each in vars(resources).values() if isinstance(each, Resource)) | {"*"}
"""The kinds of objects of which every plugin may register events."""
_LONG_HOOKS = tuple(hook for hook in HOOKS if "_" in hook)
_NEARLY = 0.9
"""How similar, 0..1, a method name must be to a hook's name to count as a misspelling of it."""
_MOST_EVENTS = 256


def check_class(name: str, cls: Any) -> None:
    """Raise PluginError if the class cannot be a plugin."""
    if not isinstance(cls, type):
        raise PluginError(name, "", f"is not a class, but {shown(cls)}")
    _check_type(name, cls)


@lru_cache(maxsize=1024)
def _check_type(name: str, cls: Any) -> None:
    if getattr(cls, "name", None) != name:
        raise PluginError(name, "", f"its class says name = {shown(getattr(cls, 'name', None))}")
    for method, options in marked(cls).items():
        hook = options.get("specname") or method
        if hook not in HOOKS:
            raise PluginError(name, method, f"is no hook; {did_you_mean(hook, HOOKS)}")
    for hook in HOOKS:
        _check_method(name, hook, getattr(cls, hook, None))
    asked_by(name, cls)
    _check_names(name, cls)
    reads = getattr(cls, "reads", None)
    if reads is not None and (type(reads) is not int or reads not in _READS):
        raise PluginError(name, "", f"reads is NODE, PODS, SPECS or NODE with one of the others, not {shown(reads)}")
    ignores = getattr(cls, "ignores_requests", False)
    if type(ignores) is not bool:
        raise PluginError(name, "", f"ignores_requests is True or False, not {shown(ignores)}")
    for gone in ("reads_pod_labels", "reads_pod_annotations"):
        if hasattr(cls, gone):
            raise PluginError(
                name, "", f"{gone} is no more: the hook identity says what is read of labels and annotations"
            )
    type_ = getattr(cls, "args_type", None)
    if type_ is not None and not (isinstance(type_, type) and issubclass(type_, msgspec.Struct)):
        raise PluginError(name, "", f"args_type is a class derived from msgspec.Struct, not {shown(type_)}")


@lru_cache(maxsize=1024)
def asked_by(name: str, cls: type[Any]) -> Sequence[str]:
    """The constructor parameters that the framework passes, by name; unknown ones with a default are left alone.

    Raises PluginError for any other parameter.
    """
    try:
        parameters = inspect.signature(cls).parameters.values()
    except (TypeError, ValueError) as error:
        raise PluginError(name, "__init__", f"its parameters cannot be told: {text_of(error)}") from error
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters)
    asked = []
    for each in parameters:
        if each.kind is each.VAR_KEYWORD or (each.kind is each.VAR_POSITIONAL and takes_any):
            continue
        if each.kind in (each.VAR_POSITIONAL, each.POSITIONAL_ONLY):
            why = f"takes {each}, but gets what it asks for by name; write __init__(self, args, handle)"
            raise PluginError(name, "__init__", why)
        if each.name in GIVEN:
            asked.append(each.name)
        elif each.default is each.empty:
            why = f"has the unknown parameter {each.name}; {did_you_mean(each.name, GIVEN)}"
            raise PluginError(name, "__init__", why)
    return GIVEN if takes_any else asked


@lru_cache(maxsize=16)
def specified(cls: type[Any]) -> Mapping[str, Mapping[str, Any]]:
    """The methods of a class that are marked with `@hookspec`, with the options of the mark."""
    return _with_mark(cls, f"{PROJECT}_spec")


@lru_cache(maxsize=1024)
def marked(cls: type[Any]) -> Mapping[str, Mapping[str, Any]]:
    """The methods of a class that are marked with `@hookimpl`, with the options of the mark."""
    return _with_mark(cls, f"{PROJECT}_impl")


def _with_mark(cls: type[Any], mark: str) -> Mapping[str, Mapping[str, Any]]:
    found = {name: getattr(inspect.getattr_static(cls, name), mark, None) for name in dir(cls)}
    return {name: options for name, options in found.items() if isinstance(options, Mapping)}


def _check_method(name: str, hook: str, method: Any) -> None:
    if method is None:
        return
    if not callable(method):
        raise PluginError(name, hook, f"is a method marked with @hookimpl, not {shown(method)}")
    if not getattr(method, f"{PROJECT}_impl", None):
        raise PluginError(name, hook, "is not marked with @hookimpl")
    if hook not in ASYNC_POINTS and inspect.iscoroutinefunction(method):
        raise PluginError(name, hook, "must not be async: it is called within a decision")


def _check_names(name: str, cls: Any) -> None:
    """Raise PluginError for a public method whose name is nearly that of a hook: the method would never be called."""
    squashed = {hook.replace("_", ""): hook for hook in HOOKS}
    for method in dir(cls):
        if method.startswith("_") or method in HOOKS or method in marked(cls):
            continue
        if not inspect.isfunction(inspect.getattr_static(cls, method)):
            continue
        meant = squashed.get(method.replace("_", "").lower())
        # Short names are often similar to a hook's name and mean something else: `scores`, `reserved`.
        close = [meant] if meant else get_close_matches(method, _LONG_HOOKS, n=1, cutoff=_NEARLY)
        if close:
            raise PluginError(name, method, f"is no hook; did you mean {close[0]}? Otherwise begin it with _")


def check_attributes(name: str, plugin: Any) -> None:
    """Raise PluginError for a value of a built plugin whose name is nearly that of one that the framework reads.

    A plugin that has both names means something else by the other one.
    """
    cls: Any = type(plugin)
    own: Mapping[str, Any] = getattr(plugin, "__dict__", {})
    of_class = [attribute for attribute in _values_of(cls) if attribute not in own and _meant_by(attribute)]
    of_plugin = [attribute for attribute in own if _meant_by(attribute) and _is_value(attribute, own[attribute])]
    for attribute in sorted((*of_class, *of_plugin)):
        for meant in _meant_by(attribute):
            if getattr(plugin, meant, None) is None:
                why = f"is read by nobody; did you mean {meant}? Otherwise begin it with _"
                raise PluginError(name, attribute, why)


@lru_cache(maxsize=1024)
def _values_of(cls: type[Any]) -> Sequence[str]:
    return tuple(each for each in dir(cls) if _is_value(each, inspect.getattr_static(cls, each)))


def _is_value(name: str, value: object) -> bool:
    """Whether an attribute is a value of the plugin's own; nested classes, methods and properties are not."""
    if name.startswith("_") or name in ATTRIBUTES or name in HOOKS:
        return False
    return value.__name__ != name if isinstance(value, type) else not (callable(value) or hasattr(value, "__get__"))


@lru_cache(maxsize=4096)
def _meant_by(name: str) -> Sequence[str]:
    """The names that the framework reads and that an attribute of this name may be a misspelling of: mostly none."""
    return tuple(each for each in (*ATTRIBUTES, "identity") if _is_near(name, each))


def _is_near(name: str, known: str) -> bool:
    """Whether a name is probably a misspelling or another number of a known one; `matches` is neither of `watches`."""
    one, other = _stem(name), _stem(known)
    if one == other or (sorted(one) == sorted(other) and one[0] == other[0]):
        return True
    matcher = SequenceMatcher(None, name, known)
    bounds = (matcher.real_quick_ratio, matcher.quick_ratio)  # upper bounds of the ratio, which takes ten times as long
    return all(bound() >= _NEARLY for bound in bounds) and matcher.ratio() >= _NEARLY


@lru_cache(maxsize=4096)
def _stem(name: str) -> str:
    """A name without underscores, capitals and plurals."""
    words = (re.sub(r"ies$", "y", word) for word in name.lower().split("_"))
    return "".join(re.sub(r"(?<=ch)es$|s$", "", word) for word in words)


def check_reasons(name: str, plugin: Any) -> None:
    """Raise PluginError unless a plugin that filters has texts for its reasons."""
    reasons = getattr(plugin, "reasons", None)
    if reasons is None:
        if not callable(getattr(plugin, "explain", None)) and not getattr(plugin.filter, "is_lifted", False):
            raise PluginError(name, "filter", "needs `reasons`, a tuple of what its numbers mean")
        return
    if not isinstance(reasons, Sequence) or isinstance(reasons, str):
        raise PluginError(name, "", f"reasons is a tuple of Reasons, not {shown(reasons)}")
    for number, reason in enumerate(reasons):
        if not isinstance(reason, Reason):
            hint = f"; write Reason({reason!r})" if isinstance(reason, str) else ""
            raise PluginError(name, "", f"reasons[{number}] is {shown(reason)}, and not a Reason{hint}")


def check_own(name: str, plugin: Any) -> None:
    """Raise PluginError if an entry of the plugin's `reads_own` is no log, or its `errors_from` no code.

    Raises what the plugin raises when it is asked for one of its attributes.
    """
    for attribute in ("reads", "watches", "ignores_requests"):  # those that are read later, too
        getattr(plugin, attribute, None)
    first = getattr(plugin, "errors_from", None)
    if first is not None and (type(first) is not int or first < 1):
        raise PluginError(name, "", f"errors_from is a code of filter, a whole number from 1 on, not {shown(first)}")
    own = getattr(plugin, "reads_own", ())
    if not isinstance(own, tuple) or not all(isinstance(log, Changes) for log in own):
        raise PluginError(name, "", f"reads_own is a tuple of Changes, not {shown(own)}")
    if own and getattr(plugin, "reads", None) is None:
        raise PluginError(name, "", "declares reads_own without reads")


def _listed(watches: Any) -> Sequence[Any]:
    """The `watches` of a plugin; empty if the value is no list, which is reported elsewhere."""
    return watches if isinstance(watches, tuple | list) else ()


def events_of(name: str, plugin: Any) -> Sequence[EventHint] | None:
    """The events that a plugin registers; None if it registers nothing. Raises PluginError."""
    register: Callable[[], Any] | None = getattr(plugin, "events_to_register", None)
    if register is None:
        return None
    point = "events_to_register"
    try:
        events = tuple(itertools.islice(register(), _MOST_EVENTS + 1))
    except BaseException as error:  # a plugin may raise anything, and must not stop the scheduler
        raise PluginError(name, point, described(error)) from error
    if len(events) > _MOST_EVENTS:
        raise PluginError(name, point, f"must register no more than {_MOST_EVENTS} events")
    watched = [getattr(each, "resource", each) for each in _listed(getattr(plugin, "watches", ()))]
    own = {each.key for each in watched if isinstance(each, Resource)}
    for number, event in enumerate(events):
        if not isinstance(event, EventHint):
            raise PluginError(name, point, f'event {number} is {shown(event)}; write on("nodes", Action.ADD)')
        kind = event.event.resource
        if kind not in KINDS and kind not in own and "/" not in kind:
            rest = "besides, those in `watches`, and with a slash those that plugins announce"
            raise PluginError(
                name, point, f"event {number} is of no kind {kind!r}; {did_you_mean(kind, KINDS | own)}; {rest}"
            )
    return events
