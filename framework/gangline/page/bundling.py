"""Joins the modules of the page into one script, so that a browser asks for one file.

A module becomes a function that is called once, and returns the names that other modules import. So names of one
module never meet those of another one, as in a browser that loads the modules themselves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from graphlib import TopologicalSorter

_IMPORT = re.compile(r'^import \{ ([^}]+) \} from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=class |function|const )", re.MULTILINE)


def bundled(modules: Mapping[str, str]) -> str:
    """One script of all modules, which are given by their names without ``.js``. Raises ValueError for an import or an
    export of another kind, and for modules that import each other.
    """
    imports = {name: {found[2]: found[1].split(", ") for found in _IMPORT.finditer(modules[name])} for name in modules}
    order = TopologicalSorter({name: found.keys() for name, found in imports.items()}).static_order()
    return "".join(_function(name, modules[name], imports) for name in order)


def _function(name: str, text: str, imports: Mapping[str, Mapping[str, list[str]]]) -> str:
    body = _EXPORT.sub("", _IMPORT.sub(lambda found: f"const {{ {found[1]} }} = $${found[2]};", text))
    if re.search(r"^(?:import|export)\b", body, re.MULTILINE):
        raise ValueError(f"{name}.js has an import or an export that cannot be joined")
    wanted = sorted({each for found in imports.values() for each in found.get(name, ())})
    return f"const $${name} = (() => {{\n{body}\nreturn {{ {', '.join(wanted)} }};\n}})();\n"
