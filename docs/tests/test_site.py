"""The site: its search works without a server, pages lead to their source, and the front page opens with what to do."""

from __future__ import annotations

import importlib.util
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from mkdocs.config import load_config
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files

from gangline_docs import diagrams
from gangline_docs.site import COPIED, PAGES, filled

ROOT = Path(__file__).parents[2]
SITE = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
FRONT = filled((ROOT / "docs" / "index.md").read_text(encoding="utf-8"))
README = (ROOT / "README.md").read_text(encoding="utf-8")
SHIM = (ROOT / "docs" / "assets" / "iframe-worker.js").read_text(encoding="utf-8")


def setting(name: str) -> Any:
    """A setting of mkdocs.yml that stands on one line."""
    (line,) = (line for line in SITE.splitlines() if line.startswith(f"{name}:"))
    return yaml.safe_load(line)[name]


def hooks() -> Any:
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "hooks.py")
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def test_the_search_works_in_a_site_that_is_opened_as_a_file() -> None:
    assert setting("plugins") == ["search", "offline"]
    assert setting("use_directory_urls") is False
    assert "polyfills: [assets/iframe-worker.js]" in SITE  # else it is loaded from a server
    assert "window.IFrameWorker=" in SHIM and "Permission is hereby granted" in SHIM


def test_the_repository_is_the_one_that_the_alerts_lead_to() -> None:
    values = yaml.safe_load((ROOT / "charts" / "gpu-scheduler" / "values.yaml").read_text(encoding="utf-8"))

    repository = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]["Repository"]

    config = hooks().on_config(load_config(str(ROOT / "mkdocs.yml")))

    assert (config.repo_url, config.repo_name) == (repository, "gangline/gangline")
    assert values["metrics"]["prometheusRule"]["runbooks"].startswith(f"{repository}/blob/main/docs/")


def test_no_page_asks_github_for_the_stars_of_the_repository() -> None:
    link = next(
        Path(str(file.locate())).read_text(encoding="utf-8")
        for file in metadata.files("mkdocs-material") or ()
        if file.match("material/templates/partials/source.html")
    )

    assert "data-md-component" in link
    for left in (
        hooks().on_post_page(link, None, MkDocsConfig()),
        hooks().on_post_template(link, "404.html", MkDocsConfig()),
    ):
        assert 'class="md-source"' in left and "data-md-component" not in left


def test_every_page_shows_the_version() -> None:
    assert metadata.version("gangline") in hooks().on_config(MkDocsConfig()).copyright


def test_a_page_that_is_written_from_the_code_has_a_link_to_edit_its_source_or_none() -> None:
    config = load_config(str(ROOT / "mkdocs.yml"))
    config.plugins._current_plugin = "hooks"

    files = hooks().on_files(Files([]), config)

    links = {file.src_uri: file.edit_uri for file in files}
    assert links == {path: f"../{COPIED[path]}" if path in COPIED else None for path in PAGES}
    assert all((ROOT / source).is_file() for source in COPIED.values())


def test_the_front_page_opens_with_the_install_line_and_a_picture_and_the_figures_of_the_readme() -> None:
    opening = FRONT.partition("\n## ")[0]
    figures = README.partition("How well Gangline packs GPUs: ")[2].partition("\n(")[0].split("([")[0].strip()
    line = "    helm install gpu-scheduler charts/gpu-scheduler -n gpu-scheduler --create-namespace\n"

    assert line in opening and line in README
    assert opening.index(line) < opening.index("![") < opening.index("95.9 %")
    assert figures and figures in opening


def test_every_diagram_is_a_picture_of_the_site_with_words_and_no_picture_is_left_over() -> None:
    found = list(diagrams.all_sources())

    assert len(found) > 5
    assert {diagrams.name_of(source) for source in found} == {path.name for path in diagrams.PICTURES.iterdir()}
    assert all(map(diagrams.title_of, found))


def test_nothing_of_a_diagram_is_left_for_a_program_from_another_server() -> None:
    page = (ROOT / "docs" / "concepts" / "units.md").read_text(encoding="utf-8")

    drawn = diagrams.drawn(page, "concepts/units.md")
    assert "mermaid" not in drawn and "mermaid" not in SITE
    assert drawn.count('<img class="diagram" src="../pictures/diagrams/') == page.count("```mermaid")


def test_a_diagram_without_a_picture_is_named() -> None:
    with pytest.raises(diagrams.NoPicture, match=r"concepts/new\.md"):
        diagrams.drawn("```mermaid\nflowchart LR\n  A --> B\n```\n", "concepts/new.md")
