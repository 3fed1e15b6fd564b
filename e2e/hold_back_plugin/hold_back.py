"""HoldBack: holds every binding back until a file is there, for tests of what happens meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from gangline import PodInfo, hookimpl

POLL_S = 0.02


class Args(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments of the plugin."""

    folder: str
    """Where a file with the name of each pod that is held says that it is, and the file `go` lets all of them go."""


class HoldBack:
    """Waits in `pre_bind`."""

    name = "HoldBack"
    args_type = Args

    def __init__(self, args: Args) -> None:
        self._folder = Path(args.folder)

    @hookimpl
    async def pre_bind(self, pod: PodInfo) -> None:
        """Say that the pod is held, and wait."""
        (self._folder / pod.name).touch()
        while True:
            if (self._folder / "go").exists():
                return
            await asyncio.sleep(POLL_S)  # between two looks at the file
