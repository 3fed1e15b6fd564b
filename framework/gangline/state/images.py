"""Which nodes have which container image, updated node by node; an image gets a column when a pod asks for it.

Memory is used only for images that nodes have: an image that no node has costs nothing, however many pods name it.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from gangline.model import ContainerImage
from gangline.status import BoolColumn, read_only

_COLUMN_BYTES = 8 * 1024 * 1024
"""For all columns together: 1,600 images at 5,000 nodes. A dropped column is made again in microseconds."""
_FEWEST = 64
"""Columns that are kept even if there are very many nodes."""
_NO_IMAGES: Sequence[ContainerImage] = []


class _Image:
    """The rows that have an image, four bytes each, in no order."""

    __slots__ = ("rows", "size")

    def __init__(self) -> None:
        self.rows = array("i")
        self.size = 0


class _Column:
    __slots__ = ("has", "shown")

    def __init__(self, capacity: int, rows: array[int]) -> None:
        self.has: BoolColumn = np.zeros(capacity, dtype=np.bool_)
        if rows:
            self.has[np.array(rows, dtype=np.intp)] = True
        self.shown = read_only(self.has)


class Images:
    """The images of all nodes; grows with the rows of its owner."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._of: list[Sequence[ContainerImage]] = []
        """The images of each row."""
        self._images: dict[str, _Image] = {}
        self._columns: OrderedDict[str, _Column] = OrderedDict()
        """The columns that were used last."""
        self._nowhere = read_only(np.zeros(capacity, dtype=np.bool_))

    def column(self, name: str, rows: slice | NDArray[np.intp]) -> tuple[BoolColumn, int]:
        """Which of these rows have the image, and its size in bytes (0 if no node has it)."""
        image = self._images.get(name)
        if image is None:
            return self._nowhere[rows], 0
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = _Column(self._capacity, image.rows)
            while len(self._columns) > max(_FEWEST, _COLUMN_BYTES // self._capacity):
                self._columns.popitem(last=False)
        else:
            self._columns.move_to_end(name)
        return column.shown[rows], image.size

    def update(self, row: int, images: Sequence[ContainerImage]) -> None:
        """The node in the row has these images now."""
        while len(self._of) <= row:
            self._of.append(_NO_IMAGES)
        before, self._of[row] = self._of[row], images
        if before == images:
            return
        had, has = _sizes(before), _sizes(images)
        for name in had.keys() - has.keys():
            image = self._images[name]
            image.rows.remove(row)
            self._tell(name, row, False)
            if not image.rows:
                del self._images[name]
                self._columns.pop(name, None)
        for name, size in has.items():
            if name not in had:
                self._add(name, row)
            image = self._images[name]
            image.size = image.size or size

    def grow(self, capacity: int) -> None:
        """Make room for more rows."""
        self._capacity = capacity
        self._nowhere = read_only(np.zeros(capacity, dtype=np.bool_))
        self._columns = OrderedDict((name, _Column(capacity, self._images[name].rows)) for name in self._columns)

    def _add(self, name: str, row: int) -> None:
        image = self._images.get(name)
        if image is None:
            image = self._images[name] = _Image()
        image.rows.append(row)
        self._tell(name, row, True)

    def _tell(self, name: str, row: int, holds: bool) -> None:
        column = self._columns.get(name)
        if column is not None:
            column.has[row] = holds


def _sizes(images: Iterable[ContainerImage]) -> dict[str, int]:
    """Every name of the images, with the size of the first image that has the name."""
    sizes: dict[str, int] = {}
    for image in images:
        for name in image.names or ():
            sizes.setdefault(name, image.size_bytes)
    return sizes
