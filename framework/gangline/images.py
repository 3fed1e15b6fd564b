"""Which nodes hold which image: one column per image name, made when a pod first asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from gangline.model import ContainerImage
from gangline.status import BoolColumn


class _Image:
    __slots__ = ("has", "size")

    def __init__(self, capacity: int) -> None:
        self.has: BoolColumn = np.zeros(capacity, dtype=np.bool_)
        self.size = 0


class Images:
    """The images of all nodes; grows with the rows of its owner."""

    def __init__(self, capacity: int, images_of_rows: Callable[[], Iterable[list[ContainerImage]]]) -> None:
        self._capacity = capacity
        self._images_of_rows = images_of_rows
        self._names: dict[str, _Image] = {}

    def column(self, name: str, rows: slice | NDArray[np.intp]) -> tuple[BoolColumn, int]:
        """Which of rows hold the image, and its size in bytes (0 when no node has it)."""
        image = self._names.get(name)
        if image is None:
            image = self._names[name] = _Image(self._capacity)
            # Once per image that a pod asks for; kept up to date cell by cell afterwards.
            for row, images in enumerate(self._images_of_rows()):
                _set(image, name, row, images)
        return image.has[rows], image.size if image.has.any() else 0

    def update(self, row: int, images: list[ContainerImage]) -> None:
        """The node in row has these images now."""
        for name, image in self._names.items():
            _set(image, name, row, images)

    def grow(self, capacity: int) -> None:
        """Make room for more rows."""
        self._capacity = capacity
        for image in self._names.values():
            has = np.zeros(capacity, dtype=np.bool_)
            has[: len(image.has)] = image.has
            image.has = has


def _set(image: _Image, name: str, row: int, images: list[ContainerImage]) -> None:
    found = next((each for each in images if name in (each.names or ())), None)
    image.has[row] = found is not None
    if found is not None:
        image.size = image.size or found.size_bytes
