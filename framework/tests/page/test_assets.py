"""The files of the page: everything is there, nothing comes from elsewhere, and no name can become markup."""

from __future__ import annotations

import re
from importlib import resources

import pytest

from gangline.page.serving import FILES

ASSETS = resources.files("gangline.page") / "assets"
TEXTS = {name: (ASSETS / name).read_text(encoding="utf-8") for name in ("index.html", *FILES)}
SCRIPTS = [name for name in FILES if name.endswith(".js")]


def test_every_file_is_served() -> None:
    assert {each.name for each in ASSETS.iterdir()} == TEXTS.keys()


@pytest.mark.parametrize("name", SCRIPTS)
def test_imports_name_files_that_are_served(name: str) -> None:
    assert set(re.findall(r'from "\./([^"]+)"', TEXTS[name])) <= FILES.keys()


def test_all_scripts_are_asked_for_at_once() -> None:
    preloaded = re.findall(r'rel="modulepreload" href="ui/([^"]+)"', TEXTS["index.html"])

    assert {*preloaded, "main.js"} == {*SCRIPTS}


def test_the_picture_is_asked_for_together_with_the_scripts() -> None:
    assert '<link rel="preload" href="ui/state" as="fetch" crossorigin>' in TEXTS["index.html"]
    assert 'fetch("ui/state")' in TEXTS["feed.js"]  # with other options the browser would ask again


def test_a_refusal_without_a_text_is_no_answer() -> None:
    assert "|| `the server answers with status ${answer.status}`" in TEXTS["remedies.js"]


@pytest.mark.parametrize("name", TEXTS)
def test_nothing_comes_from_elsewhere(name: str) -> None:
    text = TEXTS[name].replace("http://www.w3.org/2000/svg", "")

    assert not re.search(r"https?:|//cdn|@import|url\(", text)


@pytest.mark.parametrize("name", SCRIPTS)
def test_texts_are_never_markup(name: str) -> None:
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|Function\(|srcdoc", TEXTS[name]
    )


def test_the_page_has_no_script_or_style_of_its_own() -> None:
    html = TEXTS["index.html"]

    assert not re.search(r"<style|style=|\son\w+=|javascript:", html)
    assert re.findall(r"<script([^>]*)>(.*?)</script>", html) == [(' type="module" src="ui/main.js"', "")]
