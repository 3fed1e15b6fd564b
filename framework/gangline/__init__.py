"""Gangline: a GPU scheduler for Kubernetes that sees the cluster as columns, with plugins in Python.

This module is the public API for plugin authors: everything that a plugin needs is imported from here. The names are in
`public`, which is imported when the first of them is asked for: agent, webhook and most commands need none.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gangline.public import *  # noqa: F403  # the names are listed there
    from gangline.public import __all__ as __all__
else:

    def __getattr__(name: str) -> Any:
        """A module or package of this package, or a name of the public API."""
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            return import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
        from gangline import public

        globals().update({each: getattr(public, each) for each in (*public.__all__, "__all__")})
        try:
            return globals()[name]
        except KeyError:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
