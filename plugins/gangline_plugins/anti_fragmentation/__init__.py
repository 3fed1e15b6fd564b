"""AntiFragmentation: places pods so that the remaining free GPUs stay useful. See README.md beside this file."""

from gangline_plugins.anti_fragmentation.plugin import AntiFragmentation

__all__ = ["AntiFragmentation"]
