"""Prints the node of this pod and the GPUs that it may see, again and again, until it is told to stop.

It needs nothing but Python. LOG_INTERVAL says how many seconds lie between two lines.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping

STOP = (signal.SIGTERM, signal.SIGINT)
DEFAULT = "10"
LONGEST = 10**9
"""The longest interval in seconds, some thirty years: not every system can wait longer."""


def interval(environ: Mapping[str, str]) -> int:
    """Seconds between two lines. Raises ValueError unless LOG_INTERVAL is a whole number of at least 1."""
    text = environ.get("LOG_INTERVAL", DEFAULT)
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise ValueError(f"LOG_INTERVAL must be a whole number of seconds, at least 1, not {text[:40]!r}")
    return min(int(text), LONGEST)


def line(environ: Mapping[str, str]) -> str:
    """The line to print. It tells a missing CUDA_VISIBLE_DEVICES (not-set) from an empty one, which hides every GPU."""
    devices = environ.get("CUDA_VISIBLE_DEVICES", "not-set") or "empty"
    return f"Node: {environ.get('NODE_NAME', 'unknown')}, CUDA_VISIBLE_DEVICES: {devices}"


def main(environ: Mapping[str, str]) -> None:
    """Print until SIGTERM or SIGINT, then end with 0; end with 1 and one line if the environment cannot be used."""
    try:
        seconds = interval(environ)
    except ValueError as error:
        pod = "/".join(environ[name] for name in ("POD_NAMESPACE", "POD_NAME") if environ.get(name))
        sys.exit(f"{pod or 'gpu-scheduler-check'}: {error}")
    # Blocked signals stay pending until sigtimedwait takes them, so process 1 loses none.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP)
    while True:
        print(line(environ), flush=True)
        if signal.sigtimedwait(STOP, seconds) is not None:
            return


if __name__ == "__main__":
    main(os.environ)
