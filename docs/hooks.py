"""What mkdocs calls: adds the pages and parts that are written from the code to the site."""

from __future__ import annotations

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from gangline_docs.site import PAGES, filled


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The files of the site, with the written ones."""
    for path, render in PAGES.items():
        files.append(File.generated(config, path, content=render()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """A page with its parts filled in."""
    return filled(markdown)
