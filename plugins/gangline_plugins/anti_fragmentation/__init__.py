"""AntiFragmentation: place pods so that what stays free can still be used. See README.md beside this file."""

from gangline_plugins.anti_fragmentation.plugin import AntiFragmentation

__all__ = ["AntiFragmentation"]
