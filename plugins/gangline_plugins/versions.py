"""Compares versions of objects: resourceVersions of one kind are numbers that grow."""

from __future__ import annotations

from gangline import model


def version_of(metadata: model.ObjectMeta) -> int:
    """The resourceVersion of an object as a number; 0 if it is none."""
    text = metadata.resource_version
    return int(text) if text.isdecimal() else 0
