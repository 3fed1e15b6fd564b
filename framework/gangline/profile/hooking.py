"""The hooks of the plugins of a profile, as pluggy finds them.

pluggy looks at every method of a plugin to learn its parameters, and holds them against the specification. The methods
are those of the class, so pluggy is asked once for a class. Most hooks of most profiles have no wrapper; the framework
calls those directly. Where a plugin wraps a hook, pluggy makes the calls, and then it gets to know all plugins.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache, partial
from typing import Any, cast

import msgspec
import pluggy

from gangline.api.hookspecs import PROJECT, Hooks
from gangline.config.explaining import did_you_mean
from gangline.errors import PluginError
from gangline.profile.declaring import HOOKS, marked, specified

Names = tuple[str, ...]
FOR_ALL = {
    "identity": "identity_all",
    "pre_cycle": "pre_cycle_all",
    "reserve": "reserve_all",
    "permit": "permit_all",
}
"""The hooks of which a plugin may have a variant for many pods."""


class _PluginManager(pluggy.PluginManager):
    """Knows the marked methods of a class; pluggy itself would look at each attribute of each plugin, each time."""

    def parse_hookspec_opts(self, module_or_class: Any, name: str) -> pluggy.HookspecOpts | None:
        options = specified(module_or_class).get(name)
        return None if options is None else cast(pluggy.HookspecOpts, {**options})

    def parse_hookimpl_opts(self, plugin: Any, name: str) -> pluggy.HookimplOpts | None:
        return cast(pluggy.HookimplOpts, {**plugin.marks[name]})


class _Marked:
    """The marked methods of a plugin or of a class, and nothing else that pluggy would look at."""

    def __init__(self, marks: Mapping[str, Mapping[str, Any]], method: Callable[[str], Any]) -> None:
        self.marks = marks
        for name in marks:
            setattr(self, name, method(name))

    def __dir__(self) -> Iterable[str]:
        return self.marks


class Hook(msgspec.Struct, frozen=True):
    """What a class has for a hook: the name of the method and of its parameters."""

    method: str
    parameters: Names
    is_wrapper: bool


class PluginHooks:
    """The hooks of the plugins that were added, by the names of the plugins."""

    def __init__(self) -> None:
        self._plugins: dict[str, Any] = {}
        self._hooks: dict[str, Mapping[str, Hook]] = {}
        self._wrapped: set[str] = set()
        self._manager: pluggy.PluginManager | None = None
        """pluggy's manager of all plugins; made when a wrapped hook is first asked for."""

    def add(self, name: str, plugin: Any) -> None:
        """Add a plugin. Raises PluginError for a method that asks for something unknown."""
        cls: Any = type(plugin)
        hooks = _hooks_of(name, cls)
        self._plugins[name], self._hooks[name], self._manager = plugin, hooks, None
        self._wrapped.update(hook for hook, each in hooks.items() if each.is_wrapper)

    def wraps(self, name: str, hook: str) -> bool:
        """Whether a plugin has the hook only to wrap the other plugins there."""
        found = self._hooks[name].get(hook)
        return found is not None and found.is_wrapper

    def is_wrapped(self, hook: str) -> bool:
        """Whether a plugin wraps the hook."""
        return hook in self._wrapped

    def own(self, name: str, hook: str) -> tuple[Callable[..., Any], Names] | None:
        """The plugin's own method and its parameters; None if a plugin wraps the hook: then pluggy makes the calls.

        Raises PluginError if the plugin has no method for the hook.
        """
        if hook in self._wrapped:
            return None
        found = self._hooks[name].get(hook)
        if found is None:
            raise PluginError(name, hook, "there is no method marked with @hookimpl")
        return getattr(self._plugins[name], found.method), found.parameters

    def stands_for(self, name: str, variant: str, hook: str) -> bool:
        """Whether the plugin's variant of a hook does what the hook does.

        It does not if a plugin wraps the hook, or if a subclass has another method for the hook than its base class,
        and inherits the variant.
        """
        found, other = self._hooks[name].get(variant), self._hooks[name].get(hook)
        if found is None or found.is_wrapper or other is None or hook in self._wrapped:
            return False
        cls: Any = type(self._plugins[name])
        return _stands_for(cls, found.method, other.method)

    def through_pluggy(self, name: str, hook: str) -> Callable[..., Any]:
        """A call of the plugin's method within the wrappers of all plugins, by the parameters of the hook."""
        manager = self._manager = self._manager or self._of_all()
        impls = getattr(manager.hook, hook).get_hookimpls()
        others = [each.plugin for each in impls if each.plugin_name != name and not _is_wrapper(each)]
        wanted, subset = parameters_of(hook), manager.subset_hook_caller(hook, others)

        def call(*args: Any) -> Any:
            results = subset(**dict(zip(wanted, args, strict=True)))
            return results[0] if results else None

        return call

    def _of_all(self) -> pluggy.PluginManager:
        manager = _manager()
        for name, plugin in self._plugins.items():
            cls: Any = type(plugin)
            manager.register(_Marked(marked(cls), partial(getattr, plugin)), name)
        return manager


def parameters_of(hook: str) -> Names:
    """The parameters of a hook, as the specification has them."""
    return _parameters()[hook]


@cache
def _parameters() -> Mapping[str, Names]:
    hooks = _manager().hook
    return {hook: tuple(getattr(hooks, hook).spec.argnames) for hook in HOOKS}


@lru_cache(maxsize=1024)
def _hooks_of(name: str, cls: Any) -> Mapping[str, Hook]:
    """For each hook the method by which a class implements it. Raises PluginError."""
    manager, methods = _manager(), _Marked(marked(cls), partial(_unbound, cls))
    for method, options in methods.marks.items():
        _check_parameters(name, method, parameters_of(options.get("specname") or method), getattr(methods, method))
    try:
        manager.register(methods, name)
    except pluggy.PluginValidationError as error:
        raise PluginError(name, "", str(error).replace("\n", " ")) from error
    names = {id(getattr(methods, method)): method for method in methods.marks}
    found = {}
    for caller in manager.get_hookcallers(methods) or ():
        impl = caller.get_hookimpls()[0]
        found[caller.name] = Hook(names[id(impl.function)], tuple(impl.argnames), _is_wrapper(impl))
    return found


def _check_parameters(name: str, method: str, known: Names, function: Callable[..., Any]) -> None:
    """Raise PluginError for a parameter that is no argument of the hook, or that would never be given it."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return  # pluggy tells of what is no function
    for each in parameters:
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            continue  # the method asks for nothing by that
        if each.name in known and (each.default is not each.empty or each.kind is each.KEYWORD_ONLY):
            how = "with a default" if each.default is not each.empty else "behind a star"
            raise PluginError(name, method, f"has the parameter {each.name} {how}; write {each.name} alone")
        if each.name not in known and each.default is each.empty:
            raise PluginError(name, method, f"has the unknown parameter {each.name}; {did_you_mean(each.name, known)}")


def _manager() -> pluggy.PluginManager:
    manager = _PluginManager(PROJECT)
    manager.add_hookspecs(Hooks)
    return manager


def _is_wrapper(impl: pluggy.HookImpl) -> bool:
    return impl.wrapper or impl.hookwrapper


@lru_cache(maxsize=1024)
def _stands_for(cls: type[Any], variant: str, method: str) -> bool:
    """Whether a class has no newer method than the variant that stands for the method."""
    return _first_with(variant, cls.__mro__) <= _first_with(method, cls.__mro__)


def _first_with(method: str, line: Sequence[type[Any]]) -> int:
    """The index in `line`, a class's method resolution order, of the class that a method comes from."""
    return next(place for place, cls in enumerate(line) if method in vars(cls))


def _unbound(cls: type[Any], name: str) -> Any:
    """A method of a class, bound to a mere object, so that it has the same parameters as the method of a plugin."""
    found = inspect.getattr_static(cls, name)
    return found.__get__(object(), cls) if hasattr(found, "__get__") else found
