"""What mkdocs calls: adds the pages and parts that are written from the code to the site."""

from __future__ import annotations

import tomllib
from importlib import metadata
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from gangline_docs.diagrams import NoPicture, drawn
from gangline_docs.site import COPIED, PAGES, filled

_ASKS_GITHUB = ' data-md-component="source"'
"""What lets the theme ask api.github.com, in every browser, for the latest release and the stars of the repository."""
PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The repository, and the version of the pages, at the foot of each page."""
    repository: str = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["urls"]["Repository"]
    config.repo_url, config.repo_name = repository, "/".join(repository.split("/")[-2:])
    config.copyright = f"Gangline {metadata.version('gangline')}, licensed under Apache-2.0"
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The files of the site, with the written ones."""
    for path, render in PAGES.items():
        file = File.generated(config, path, content=render())
        link = f"../{COPIED[path]}" if path in COPIED else None
        file.edit_uri = link  # pyright: ignore[reportAttributeAccessIssue]  # mkdocs lets it be set
        files.append(file)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """A page with its parts filled in, and with pictures in place of its diagrams."""
    try:
        return drawn(filled(markdown), page.file.src_uri)
    except NoPicture as error:
        raise PluginError(str(error)) from error


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """A page that loads nothing from another server. Its link to the repository stays."""
    return output.replace(_ASKS_GITHUB, "")


def on_post_template(output_content: str, template_name: str, config: MkDocsConfig) -> str:
    """The same for 404.html."""
    return output_content.replace(_ASKS_GITHUB, "")
