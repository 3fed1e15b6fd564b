"""The page of extension points and of the public API, from the hook specifications and the package."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator

import msgspec

import gangline
from gangline import public
from gangline.api import hookspecs
from gangline.api.hookspecs import POINTS, Hooks
from gangline.profile.calling import ASYNC_POINTS
from gangline_docs import members
from gangline_docs.markdown import code, page, prose, table
from gangline_docs.source import constant_doc


def hooks() -> dict[str, types.FunctionType]:
    """Every method that a plugin may implement, in the order of calls."""
    return {name: each for name, each in vars(Hooks).items() if inspect.isfunction(each)}


def render() -> str:
    """The page."""
    return page(
        "Extension points and API",
        "The tutorial is under [writing a plugin](../writing-a-plugin.md). " + prose(_contract()),
        "## Extension points",
        *(_hook(name, each) for name, each in hooks().items()),
        "## What a plugin imports\n\n" + table(("Name", "What it is"), _api()) + "\n\n" + _structs(),
        *members.render(),
    )


def _contract() -> str:
    """What the module says beyond its first sentence."""
    return (inspect.getdoc(hookspecs) or "").partition("\n\n")[2]


def _hook(name: str, function: types.FunctionType) -> str:
    signature = inspect.signature(function)
    parameters = ", ".join(str(each) for each in signature.parameters)
    kind = "async def" if name in ASYNC_POINTS else "def"
    listed = "" if name in POINTS else " Goes with the points of the same plugin; profiles do not list it."
    head = f"{kind} {name}({parameters}) -> {signature.return_annotation}"
    return f"### {name}\n\n```python\n{head}\n```\n\n{prose(inspect.getdoc(function) or '')}{listed}"


def _api() -> Iterator[tuple[str, str]]:
    for name in gangline.__all__:
        thing = getattr(gangline, name)
        documented = inspect.isclass(thing) or inspect.isfunction(thing) or inspect.ismodule(thing)
        doc = (inspect.getdoc(thing) or "") if documented else constant_doc(public, name)
        yield code(name), prose(doc.partition("\n\n")[0])


def _structs() -> str:
    """How to make a changed copy of a value, which differs between structs and dataclasses."""
    exported = {name: getattr(gangline, name) for name in gangline.__all__}
    found = [name for name, each in exported.items() if isinstance(each, type) and issubclass(each, msgspec.Struct)]
    return (
        f"A changed copy of {', '.join(map(code, found))} or an object of `model` is made by "
        "`msgspec.structs.replace`, because these are structs; of a dataclass by `dataclasses.replace`."
    )
