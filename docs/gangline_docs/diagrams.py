"""The diagrams of the pages as pictures, so that a site without internet shows them: Mermaid's own program draws them.

After a change of a diagram, or of its first lines in the page, make the pictures again:

    npm pack mermaid@11 && tar xzf mermaid-11*.tgz package/dist/mermaid.min.js
    .venv/bin/python -m gangline_docs.diagrams package/dist/mermaid.min.js
"""

from __future__ import annotations

import asyncio
import hashlib
import html
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).parents[1]
PICTURES = DOCS / "pictures" / "diagrams"
_FENCE = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r"^\s*accTitle:(.*)$", re.MULTILINE)
_SIZE = re.compile(r'width="100%"(.*?viewBox="[-\d.]+ [-\d.]+ ([\d.]+) ([\d.]+)")', re.DOTALL)
_DRAW = """async ([source, id]) => {
  mermaid.initialize({
    startOnLoad: false, theme: "neutral", fontFamily: "sans-serif", htmlLabels: false, flowchart: { htmlLabels: false },
    deterministicIds: true,
  });
  return (await mermaid.render(id, source)).svg;
}"""


class NoPicture(Exception):
    """A diagram that is not drawn yet."""


def name_of(source: str) -> str:
    """The file of a diagram, by its source."""
    return f"{hashlib.sha256(source.encode()).hexdigest()[:12]}.svg"


def sources(markdown: str) -> list[str]:
    """The diagrams of a page."""
    return _FENCE.findall(markdown)


def all_sources() -> Iterator[str]:
    """The diagrams of all pages written by hand."""
    for path in sorted(DOCS.rglob("*.md")):
        yield from sources(path.read_text(encoding="utf-8"))


def drawn(markdown: str, path: str) -> str:
    """A page with pictures in place of its diagrams; `path` is that of the page in the site. Raises NoPicture."""
    up = "../" * path.count("/")

    def picture(found: re.Match[str]) -> str:
        name = name_of(found[1])
        if not (PICTURES / name).is_file():
            raise NoPicture(f"{path}: a diagram has no picture: run `python -m gangline_docs.diagrams`, which says how")
        file, title = f"{up}pictures/diagrams/{name}", html.escape(title_of(found[1]))
        return f'<a href="{file}"><img class="diagram" src="{file}" alt="{title}"></a>'

    return _FENCE.sub(picture, markdown)


def title_of(source: str) -> str:
    """What a diagram shows, for those who do not see it; "" if it does not say so."""
    found = _TITLE.search(source)
    return found[1].strip() if found is not None else ""


async def draw(program: Path) -> None:
    """Draw all diagrams by Mermaid's program in a browser, and remove the pictures that no page has."""
    from playwright.async_api import async_playwright

    wanted = {name_of(source): source for source in all_sources()}
    PICTURES.mkdir(exist_ok=True)
    for path in PICTURES.glob("*.svg"):
        if path.name not in wanted:
            path.unlink()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = await browser.new_page()
        await page.add_script_tag(path=program)
        for name, source in wanted.items():
            svg = await page.evaluate(_DRAW, [source, f"d{name[:8]}"])
            sized = _SIZE.sub(r'width="\2" height="\3"\1', svg, count=1)
            (PICTURES / name).write_text(f"{sized}\n", encoding="utf-8")
            print(f"docs/pictures/diagrams/{name}")
        await browser.close()


if __name__ == "__main__":
    asyncio.run(draw(Path(sys.argv[1])))
