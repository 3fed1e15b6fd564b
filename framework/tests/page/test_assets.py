"""The files of the page: everything is there, nothing comes from elsewhere, and no name can become markup."""

from __future__ import annotations

import re
from importlib import resources

import pytest

from gangline.page.bundling import bundled
from gangline.page.serving import FILES, SCRIPT

ASSETS = resources.files("gangline.page") / "assets"
TEXTS = {each.name: each.read_text(encoding="utf-8") for each in ASSETS.iterdir()}
SCRIPTS = sorted(name for name in TEXTS if name.endswith(".js"))


def test_every_file_is_served() -> None:
    assert {*TEXTS} == {"index.html", *SCRIPTS, *FILES} - {SCRIPT}


def test_the_modules_are_joined_in_the_order_in_which_they_need_each_other() -> None:
    modules = {
        "main": 'import { A, b } from "./part.js";\nconst C = 1;\nb(A + C);',
        "part": "const C = 2;\nexport const A = C;\nexport function b(x) {}\nexport class Unused {}",
    }

    assert bundled(modules).split("\n") == [
        "const $$part = (() => {",
        *("const C = 2;", "const A = C;", "function b(x) {}", "class Unused {}"),
        "return { A, b };",
        "})();",
        "const $$main = (() => {",
        *("const { A, b } = $$part;", "const C = 1;", "b(A + C);"),
        "return {  };",
        "})();",
        "",
    ]


@pytest.mark.parametrize(
    "text", ['import "./part.js";', "export default 1;", 'import * as x from "./part.js";', "export { x };"]
)
def test_what_cannot_be_joined_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"main\.js has an import or an export that cannot be joined"):
        bundled({"main": text, "part": ""})


def test_modules_that_import_each_other_cannot_be_joined() -> None:
    with pytest.raises(ValueError, match="cycle"):
        bundled({"a": 'import { b } from "./b.js";', "b": 'import { a } from "./a.js";'})


def test_an_import_names_what_its_module_exports() -> None:
    for name in SCRIPTS:
        for wanted, module in re.findall(r'import \{ ([^}]+) \} from "\./([^"]+)"', TEXTS[name]):
            exported = re.findall(r"^export (?:class|function|const) (.*)$", TEXTS[module], re.MULTILINE)
            for each in wanted.split(", "):
                assert re.search(rf"\b{each}\b", "\n".join(exported)), f"{name}: {each} of {module}"


def test_the_picture_is_asked_for_together_with_the_scripts() -> None:
    assert '<link rel="preload" href="ui/state" as="fetch" crossorigin>' in TEXTS["index.html"]
    assert 'fetch("ui/state", { signal: loading.signal })' in TEXTS["feed.js"]  # see the test in a browser


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
    assert re.findall(r"<script([^>]*)>(.*?)</script>", html) == [(' type="module" src="ui/page.js"', "")]
