"""Writes a file of a command as a whole or not at all: when the disk is full, what was there before stays."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_whole(file: Path, data: bytes, is_private: bool = False) -> None:
    """Write a file, `is_private` for its owner alone. Raises OSError.

    A pipe or device is written to, and stays; of a symbolic link the file is written that the link leads to.
    """
    if is_special(file):
        file.write_bytes(data)
        return
    place = Path(os.path.realpath(file))
    descriptor, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(data)
        if not is_private:
            os.chmod(name, place.stat().st_mode if place.exists() else 0o666 & ~_umask())
        os.replace(name, place)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def is_special(file: Path) -> bool:
    """Whether there is something under this name that is no regular file: /dev/stdout, a pipe, a device."""
    return file.exists() and not file.is_file()


def _umask() -> int:
    """The umask of this process, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
