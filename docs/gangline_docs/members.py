"""Every public member of what plugins are given, and of what they are tested with: name, type, meaning."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

import gangline
from gangline import simulate, testing
from gangline.testing import configured, deciding, gang_stories, gangs
from gangline_docs.markdown import code, prose, table
from gangline_docs.source import constant_doc, field_docs

CLASSES: tuple[type[Any], ...] = (
    gangline.NodeView,
    gangline.LabelColumn,
    gangline.PodInfo,
    gangline.PodClass,
    gangline.Cycle,
    gangline.Status,
    gangline.Handle,
    gangline.State,
    gangline.Changes,
    gangline.KeptColumns,
    simulate.SimulatedCluster,
)
MODULES: tuple[types.ModuleType, ...] = (testing, deciding, gangs, gang_stories, configured, simulate)


@dataclass(frozen=True, slots=True)
class Member:
    """One member."""

    name: str
    how: str
    """As it is written: with parameters and what it gives."""
    meaning: str


def render() -> list[str]:
    """The sections of the page."""
    text = [
        "## Members\n\nA *column* is a numpy array with one value per node of the view. CPU is in milli-CPU, memory "
        "and storage in bytes, devices are counted; times are seconds."
    ]
    for cls in CLASSES:
        first = prose((inspect.getdoc(cls) or "").partition("\n\n")[0])
        rows = [(code(each.how), prose(each.meaning)) for each in of_class(cls)]
        text.append(f"### {cls.__name__}\n\n{first}\n\n" + table(("Member", "What it is"), rows))
    for module in MODULES:
        rows = [(code(each.how), prose(each.meaning)) for each in of_module(module)]
        first = prose((inspect.getdoc(module) or "").partition("\n\n")[0])
        text.append(f"### {module.__name__}\n\n{first}\n\n" + table(("Name", "What it is"), rows))
    return text


def of_class(cls: type[Any]) -> list[Member]:
    """Attributes, properties and methods, in the order of the source, inherited ones left out."""
    found = [*_attributes(cls)]
    for name, member in vars(cls).items():
        if name.startswith("_") or isinstance(member, types.MemberDescriptorType):
            continue
        if isinstance(member, property) and member.fget is not None:
            found.append(Member(name, f"{name}: {_returns(member.fget)}", _first(member.fget)))
        elif inspect.isfunction(member):
            found.append(Member(name, _called(name, member), _first(member)))
    return found


def of_module(module: types.ModuleType) -> list[Member]:
    """What a module defines or exports."""
    names = getattr(module, "__all__", None) or [
        name for name, each in vars(module).items() if getattr(each, "__module__", "") == module.__name__
    ]
    found = []
    for name in names:
        if name.startswith("_"):
            continue
        thing = getattr(module, name)
        if inspect.isfunction(thing):
            found.append(Member(name, _called(name, thing), _first(thing)))
        elif inspect.isclass(thing):
            found.append(Member(name, name, _first(thing)))
        else:
            found.append(Member(name, name, constant_doc(module, name)))
    return found


def _attributes(cls: type[Any]) -> Iterator[Member]:
    """Fields of a dataclass or struct, and what `__init__` sets, each with the docstring below it."""
    if dataclasses.is_dataclass(cls) or issubclass(cls, msgspec.Struct):
        docs = field_docs(cls)
        public = {name: each for name, each in inspect.get_annotations(cls).items() if not name.startswith("_")}
        for name, type_ in public.items():
            yield Member(name, f"{name}: {type_}", docs.get(name, ""))
        return
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    made = next((n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
    body = made.body if made is not None else []
    for statement, below in zip(body, [*body[1:], None], strict=False):
        target = _target(statement)
        if target and not target[0].startswith("_"):
            name, type_ = target
            yield Member(name, f"{name}: {type_}" if type_ else name, _text(below))


def _target(statement: ast.stmt) -> tuple[str, str] | None:
    """The attribute of self that a statement sets, and its type where that is written."""
    target: ast.expr
    if isinstance(statement, ast.AnnAssign):
        target, type_ = statement.target, ast.unparse(statement.annotation)
    elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target, type_ = statement.targets[0], ""
    else:
        return None
    is_own = isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
    return (target.attr, type_) if is_own and isinstance(target, ast.Attribute) else None


def _text(statement: ast.stmt | None) -> str:
    is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    value = statement.value.value if is_text and isinstance(statement, ast.Expr) else ""  # type: ignore[attr-defined]  # a Constant
    return inspect.cleandoc(value) if isinstance(value, str) else ""


def _called(name: str, function: Callable[..., Any]) -> str:
    signature = inspect.signature(function)
    parameters = [each for each in signature.parameters.values() if each.name != "self"]
    return f"{name}({', '.join(_written(each) for each in parameters)}) -> {_returns(function)}"


def _written(parameter: inspect.Parameter) -> str:
    """A parameter as the source has it."""
    return str(parameter).replace("'", "")


def _returns(function: Callable[..., Any]) -> str:
    found = inspect.signature(function).return_annotation
    return found if isinstance(found, str) else getattr(found, "__name__", str(found))


def _first(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").partition("\n\n")[0]
