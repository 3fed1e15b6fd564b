"""Writes a file as a whole or not at all: when the disk is full, what was there before stays.

`-` stands for standard output, as in other programs; a file of this name is `./-`.
"""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path

STANDARD_OUTPUT = "-"


def write_to(file: str, data: bytes, is_private: bool = False) -> None:
    """Write a file that a user has named: `write_whole`, or standard output for `-`. Raises OSError."""
    if file != STANDARD_OUTPUT:
        write_whole(Path(file), data, is_private)
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def write_whole(file: Path, data: bytes, is_private: bool = False) -> None:
    """Write a file, `is_private` for its owner alone. Raises OSError.

    A pipe or device is written to, and stays; of a symbolic link the file is written that the link leads to.
    """
    if is_special(file):
        file.write_bytes(data)
        return
    place = Path(os.path.realpath(file))
    new = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if is_private else 0o666)
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(data)
        if place.exists() and not is_private:
            new.chmod(place.stat().st_mode)
        new.replace(place)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def is_special(file: Path) -> bool:
    """Whether there is something under this name that is no regular file: /dev/stdout, a pipe, a device."""
    return file.exists() and not file.is_file()
