"""The picture of the cluster as tables of rows, and the changes of the tables.

A table belongs to a namespace, or to `EVERYBODY`. So a viewer sees the tables of some namespaces, and each change is
written as JSON once for all viewers. Rows are plain tuples, which never change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

EVERYBODY = ""
"""In place of a namespace: the tables that everybody sees who may see the page."""

Row = tuple[Any, ...]
Rows = Mapping[str, Mapping[str, Row]]
"""By table and key."""
Changed = Mapping[str, Mapping[str, Row | None]]
"""By table and key: the changed rows; None for a row that was removed."""


class PictureTables:
    """All tables as they are now, and the changes since `changes` was last called."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, dict[str, Row]]] = {}
        self._changed: dict[str, dict[str, dict[str, Row | None]]] = {}

    @property
    def namespaces(self) -> frozenset[str]:
        """The namespaces that have rows, without `EVERYBODY`."""
        return frozenset(self._rows) - {EVERYBODY}

    def put(self, namespace: str, table: str, key: str, row: Row) -> None:
        """Add or replace a row."""
        try:
            rows = self._rows[namespace][table]
        except KeyError:
            rows = self._rows.setdefault(namespace, {}).setdefault(table, {})
        if rows.get(key) != row:
            rows[key] = row
            self._note(namespace, table, key, row)

    def drop(self, namespace: str, table: str, key: str) -> None:
        """Remove a row, if it is there."""
        tables = self._rows.get(namespace, {})
        rows = tables.get(table, {})
        if rows.pop(key, None) is None:
            return
        self._note(namespace, table, key, None)
        if not rows:
            del tables[table]
        if not tables:
            del self._rows[namespace]

    def _note(self, namespace: str, table: str, key: str, row: Row | None) -> None:
        try:
            changed = self._changed[namespace][table]
        except KeyError:
            changed = self._changed.setdefault(namespace, {}).setdefault(table, {})
        changed[key] = row

    def keys(self, namespace: str, table: str) -> list[str]:
        """The keys of a table."""
        return list(self._rows.get(namespace, {}).get(table, {}))

    def rows(self, namespace: str) -> Rows:
        """The tables of a namespace; read-only."""
        return self._rows.get(namespace, {})

    @property
    def has_changes(self) -> bool:
        """Whether something has changed since `changes` was last called."""
        return bool(self._changed)

    def changes(self) -> dict[str, dict[str, dict[str, Row | None]]]:
        """By namespace, table and key: the rows that have changed since the last call."""
        changed, self._changed = self._changed, {}
        return changed


def applied(rows: Rows, changed: Changed) -> dict[str, dict[str, Row]]:
    """The tables of a namespace after a change, as viewers work them out; tables without rows are left out."""
    result = {table: dict(found) for table, found in rows.items()}
    for table, news in changed.items():
        mine = result.setdefault(table, {})
        for key, row in news.items():
            if row is None:
                mine.pop(key, None)
            else:
                mine[key] = row
    return {table: found for table, found in result.items() if found}


def written(value: Rows | Changed) -> bytes:
    """Rows or changes as JSON, on one line."""
    return msgspec.json.encode(value)


def joined(id: str, parts: Mapping[str, bytes]) -> bytes:
    """One message with the parts that a viewer may see: ``{"id": ..., "all": ..., "of": {NAMESPACE: ...}}``."""
    mine = b",".join(msgspec.json.encode(name) + b":" + part for name, part in parts.items() if name != EVERYBODY)
    return b'{"id":%s,"all":%s,"of":{%s}}' % (msgspec.json.encode(id), parts.get(EVERYBODY, b"{}"), mine)
