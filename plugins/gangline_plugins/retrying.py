"""After which failures a write to the API server is worth another try, for all plugins that write."""

from __future__ import annotations

from gangline import Conflict, TooManyRequests, Unavailable

MAY_PASS = (Conflict, TooManyRequests, Unavailable)
"""Somebody else has written the object at the same moment; the API server is busy (429), ill (5xx), or gave no answer.

A write without an answer may have been made. So a write that is tried again has to name the object by its UID.
"""
