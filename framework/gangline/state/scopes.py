"""Scopes: a subscription, or an object that plugins share, ends with the configuration that asked for it.

The configuration can be replaced while the scheduler runs. The plugins of the old configuration must then hear of
nothing any more, and what only they used must be freed. So each configuration has a scope. Whatever a plugin subscribes
to or shares is added to the scope; closing the scope ends all of it.

Rules:
- A subscription or shared object belongs to the current scope. While plugins are built, that is the scope of their new
  configuration; at other times, that of the configuration in use.
- What a shared object subscribes to in its constructor belongs to that object. The object itself belongs to every
  scope that has asked for it, and ends with the last of them.
- A scope ends once, in reverse order: when its configuration is replaced or refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from gangline.failures import being_built, name_of, shown

L = TypeVar("L")


class Scope(ExitStack):
    """Subscriptions and objects that end together, the last first: `callback` adds one, `close` ends all."""


class Scopes:
    """Knows the current scope."""

    def __init__(self) -> None:
        self.current = Scope()

    @contextmanager
    def opened(self, scope: Scope) -> Iterator[None]:
        """In this block the given scope is current; it is closed if the block raises."""
        before, self.current = self.current, scope
        try:
            yield
        except BaseException:
            scope.close()
            raise
        finally:
            self.current = before


class Subscription(NamedTuple, Generic[L]):
    """A listener, and the plugin that subscribed it while it was built."""

    plugin: str
    listener: L


class Listeners(Generic[L]):
    """The subscribed listeners, in the order in which they subscribed."""

    def __init__(self, scopes: Scopes) -> None:
        self._scopes = scopes
        self._subscriptions: tuple[Subscription[L], ...] = ()

    def __iter__(self) -> Iterator[Subscription[L]]:
        return iter(self._subscriptions)

    def __len__(self) -> int:
        return len(self._subscriptions)

    def add(self, listener: L) -> None:
        """Subscribe a listener; one that subscribes twice is told twice."""
        added = Subscription(being_built.get(), listener)
        self._subscriptions = (*self._subscriptions, added)
        self._scopes.current.callback(self._remove, added)

    def _remove(self, added: Subscription[L]) -> None:
        at = next(place for place, each in enumerate(self._subscriptions) if each is added)
        self._subscriptions = self._subscriptions[:at] + self._subscriptions[at + 1 :]


Users = dict[Scope, set[str]]
"""The scopes that have asked for an object, and the plugins that did so while they were built."""


@dataclass(slots=True, eq=False)
class Shared:
    """An object that several plugins or configurations share."""

    kind: Callable[..., Any]
    args: tuple[Any, ...]
    users: Users
    scope: Scope = field(default_factory=Scope)
    """The scope of what the object itself has subscribed to."""
    object: Any = None


class Sharing:
    """The shared objects: one for all callers that ask for the same kind with equal arguments."""

    def __init__(self, scopes: Scopes) -> None:
        self._scopes = scopes
        self._known: dict[Callable[..., Any], list[Shared]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._known.values()))

    def get(self, kind: Callable[..., Any], args: tuple[Any, ...]) -> Shared:
        """The shared object, made as `kind(*args)` if there is none yet. Raises TypeError for unhashable arguments."""
        for arg in args:
            _check_hashable(kind, arg)
        found = next((each for each in self._known.get(kind, ()) if each.args == args), None)
        if found is None:
            found = Shared(kind, args, {})
            with self._scopes.opened(found.scope):
                found.object = kind(*args)
            self._known.setdefault(kind, []).append(found)
        scope = self._scopes.current
        if scope not in found.users:
            found.users[scope] = set()
            scope.callback(self._leave, found, scope)
        if plugin := being_built.get():
            found.users[scope].add(plugin)
        return found

    def _leave(self, shared: Shared, scope: Scope) -> None:
        del shared.users[scope]
        if not shared.users:
            alike = self._known[shared.kind]
            alike.remove(shared)
            if not alike:
                del self._known[shared.kind]
            shared.scope.close()


def _check_hashable(kind: Callable[..., Any], arg: object) -> None:
    """Raise TypeError for an unhashable argument.

    Arrays cannot be compared as one value, and lists may change after they were compared.
    """
    try:
        hash(arg)
    except TypeError:
        what = f"{name_of(kind)} is shared by its arguments, and {shown(arg)} is not hashable"
        raise TypeError(f"{what}; give a tuple, a frozenset, a frozen struct or bytes") from None
