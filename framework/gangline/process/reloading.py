"""Reads configuration files again when they change, checks the new configuration and uses it from the next cycle on.

If the new configuration is invalid, the old one stays."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from gangline import config
from gangline.errors import GanglineError

log = logging.getLogger(__name__)

INTERVAL = 5.0
"""Seconds between two looks at the files; a mounted ConfigMap changes at most every minute."""


class Reloader:
    """Looks at files and passes a changed configuration on."""

    def __init__(self, files: Sequence[Path], use: Callable[[config.SchedulerConfiguration], None]) -> None:
        self._files = files
        self._use = use
        self._seen = config.fingerprint(files) if files else b""

    async def run(self) -> None:
        """Look at the files until cancelled."""
        while self._files:
            await asyncio.sleep(INTERVAL)
            self.look()

    def look(self) -> bool:
        """Read the files if they have changed; True if a new configuration is in use."""
        try:
            now = config.fingerprint(self._files)
            if now == self._seen:
                return False
            self._seen = now
            self._use(config.load_files(self._files))
        except (GanglineError, OSError) as error:
            log.error("configuration not reloaded, the old one stays: %s", error)
            return False
        except Exception:  # a fault of ours, or of a plugin, must not end the process
            log.exception("configuration not reloaded")
            return False
        log.info("configuration reloaded from %s", ", ".join(str(file) for file in self._files))
        return True
