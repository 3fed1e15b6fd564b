"""Pages of the site that stand elsewhere in the repository, with their links turned to the site's own pages."""

from __future__ import annotations

import re
from pathlib import Path

from gangline_docs.markdown import page, table

ROOT = Path(__file__).parents[2]
PLACES = {
    "plugins/README.md": "reference/plugins.md",
    "docs/design.md": "design.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "benchmarks.md",
}
"""Files of the repository that are pages of the site."""
TRACES = ROOT / "plugins" / "gangline_plugins" / "anti_fragmentation" / "README.md"
_COLUMNS = ("variant", "FirstFit", "BestFit", "FGD", "FGD, random ties", "balanced")
_LINK = re.compile(r"\[([^\]]+)\]\((?!http|#)([^)#]+)(#[^)]*)?\)")


def benchmarks() -> str:
    """What each benchmark measures and how to repeat it."""
    return with_links(ROOT / "benchmarks" / "README.md")


def changelog() -> str:
    """What has changed from version to version."""
    return with_links(ROOT / "CHANGELOG.md")


def security() -> str:
    """How to report a vulnerability, and who may do what."""
    return with_links(ROOT / "SECURITY.md")


def chart_values() -> str:
    """The page of the chart's values: the file itself, which explains each of them."""
    summary = (
        "What `helm install --set` and `-f` can change, with the defaults. `values.schema.json` in the chart refuses "
        "what is not here."
    )
    values = (ROOT / "charts" / "gpu-scheduler" / "values.yaml").read_text(encoding="utf-8")
    return page("Values of the chart", summary, f"```yaml\n{values}```")


def fragmentation_table() -> str:
    """The main figures of AntiFragmentation, from the README of the plugin."""
    lines = TRACES.read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    head = next(number for number, row in enumerate(rows) if row[0] == _COLUMNS[0])
    places = [rows[head].index(column) for column in _COLUMNS]
    body = [[row[place] for place in places] for row in rows[head + 2 :] if len(row) == len(rows[head])]
    return table(["Variant of the trace", *_COLUMNS[1:]], body)


def packing_figures() -> str:
    """How well Gangline packs GPUs, from README.md."""
    text = with_links(ROOT / "README.md")
    found = re.search(r"^How well Gangline packs GPUs: .*?(?=\n\n)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, "README.md has no figures"
    return found[0]


def plugin_rules() -> str:
    """What a plugin may declare and use, from plugins/README.md."""
    text = with_links(ROOT / "plugins" / "README.md")
    section = text.partition("\n## Writing one\n")[2].partition("\n## ")[0]
    return "\n".join(re.findall(r"^- \*\*.*\n(?:  .*\n)*", section, re.MULTILINE)).replace("\n\n", "\n")


def with_links(file: Path) -> str:
    """A file whose links to pages lead there; of links to other files only the text stays."""
    return _LINK.sub(lambda link: _turned(file.parent, link), file.read_text(encoding="utf-8"))


def _turned(folder: Path, link: re.Match[str]) -> str:
    target = (folder / link[2]).resolve()
    place = PLACES.get(target.relative_to(ROOT).as_posix()) if target.is_relative_to(ROOT) else None
    return f"[{link[1]}]({place})" if place else link[1]
