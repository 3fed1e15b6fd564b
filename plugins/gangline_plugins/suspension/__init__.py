"""Suspends workloads whose gangs are taken off their nodes as a whole, and resumes them when there is room again."""

from gangline_plugins.suspension.plugin import Suspension

__all__ = ["Suspension"]
