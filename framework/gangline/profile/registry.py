"""From entry points to plugin classes: which plugins are installed, by name, and what hooks they have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple, cast

from gangline.api.hookspecs import POINTS, UNLISTED
from gangline.errors import PluginError
from gangline.failures import described
from gangline.profile.declaring import check_class, marked

GROUP = "gangline.plugins"


class Catalog:
    """Plugin classes by name. A class is imported only when it is used, so that a broken one harms no other profile."""

    def __init__(
        self, classes: Mapping[str, type[Any]], entries: Mapping[str, Sequence[EntryPoint]] | None = None
    ) -> None:
        self._classes = dict(classes)
        self._entries = dict(entries or {})

    @classmethod
    def discover(cls) -> Catalog:
        """All plugins installed under the entry-point group `gangline.plugins`; nothing is imported."""
        entries: dict[str, list[EntryPoint]] = {}
        for entry in entry_points(group=GROUP):
            entries.setdefault(entry.name, []).append(entry)
        return cls({}, entries)

    def with_classes(self, *classes: type[Any]) -> Catalog:
        """The same catalog with more plugins, for tests and programs with their own plugins."""
        return Catalog({**self._classes, **{c.name: c for c in classes}}, self._entries)

    @property
    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted({*self._classes, *self._entries})

    def origin(self, name: str) -> str:
        """The distribution and the object that a plugin comes from."""
        entries = self._entries.get(name)
        if entries is None:
            return self._classes[name].__module__
        return " and ".join(f"{e.dist.name} {e.dist.version}: {e.value}" if e.dist else e.value for e in entries)

    def load(self, name: str) -> type[Any]:
        """The class. Raises PluginError if it cannot be imported, is no plugin, or has a name that is given twice."""
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
            except BaseException as error:
                raise PluginError(name, "", f"cannot be loaded from {self.origin(name)}: {described(error)}") from error
            self._classes[name] = found
        check_class(name, found)
        return cast("type[Any]", found)

    def points(self) -> Mapping[str, frozenset[str]]:
        """For each plugin its extension points; reading an entry imports the plugin, as `load` does."""
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


def points_of(cls: Any) -> frozenset[str]:
    """The extension points for which a class has a method marked with `@hookimpl`."""
    return frozenset(marked(cls)) & frozenset(POINTS)


def is_only_told(cls: Any) -> bool:
    """Whether all hooks of a class are hooks that profiles do not list."""
    return not points_of(cls) and not marked(cls).keys().isdisjoint(UNLISTED)


class Installed(NamedTuple):
    """A plugin of an installed distribution."""

    name: str
    origin: str
    points: frozenset[str]
    fault: str
    """Why the plugin cannot be used; empty if it can."""


def distributions(catalog: Catalog) -> Iterator[Installed]:
    """Every plugin, including unusable ones; for `gangline plugins list`."""
    for name in catalog.names:
        points, fault = frozenset[str](), ""
        try:
            points = points_of(catalog.load(name))
        except PluginError as error:
            fault = error.why
        yield Installed(name, catalog.origin(name), points, fault)
