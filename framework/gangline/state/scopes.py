"""How long things last: what is asked for in the name of a configuration ends with it.

Rules:
- What is subscribed or shared belongs to the scope that is current: while plugins are built that of their new
  configuration, at other times that of the configuration in use.
- What a shared object subscribes in its constructor belongs to that object. The object itself belongs to every scope
  that has asked for it, and ends with the last of them.
- A scope ends in reverse order, once: when its configuration is replaced, or refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from gangline.failures import being_built

L = TypeVar("L")


class Scope(ExitStack):
    """What ends together, the last first: `callback` adds to it, `close` ends it."""


class Scopes:
    """To which scope belongs what is asked for now."""

    def __init__(self) -> None:
        self.current = Scope()

    @contextmanager
    def opened(self, scope: Scope) -> Iterator[None]:
        """What is asked for in this block belongs to the scope, which ends where the block raises."""
        before, self.current = self.current, scope
        try:
            yield
        except BaseException:
            scope.close()
            raise
        finally:
            self.current = before


class Listeners(Generic[L]):
    """Who is told, in the order in which they subscribed."""

    def __init__(self, scopes: Scopes) -> None:
        self._scopes = scopes
        self._listeners: tuple[L, ...] = ()

    def __iter__(self) -> Iterator[L]:
        return iter(self._listeners)

    def __len__(self) -> int:
        return len(self._listeners)

    def add(self, listener: L) -> None:
        """One more, who may be there already and is told once more then."""
        self._listeners = (*self._listeners, listener)
        self._scopes.current.callback(self._remove, listener)

    def _remove(self, listener: L) -> None:
        at = next(place for place, each in enumerate(self._listeners) if each is listener)
        self._listeners = self._listeners[:at] + self._listeners[at + 1 :]


Users = dict[Scope, set[str]]
"""The scopes that have asked for an object, and the plugins that did so while they were built."""


@dataclass(slots=True, eq=False)
class Shared:
    """An object that several use."""

    kind: Callable[..., Any]
    args: tuple[Any, ...]
    users: Users
    scope: Scope = field(default_factory=Scope)
    """Of what the object itself has asked for."""
    object: Any = None


class Sharing:
    """One object for all who ask for the same kind with equal arguments."""

    def __init__(self, scopes: Scopes) -> None:
        self._scopes = scopes
        self._known: dict[Callable[..., Any], list[Shared]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._known.values()))

    def get(self, kind: Callable[..., Any], args: tuple[Any, ...]) -> Shared:
        """The object, made as `kind(*args)` where it is not there."""
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
