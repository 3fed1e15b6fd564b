"""`gangline plugins new` names the module of a plugin after its class."""

from __future__ import annotations

import keyword
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline import main
from gangline.commands.plugins import package_of

WORD = st.from_regex(r"[a-z]{2,8}[0-9]{0,2}", fullmatch=True)


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("PreferRack", "prefer_rack"),
        ("GPUFit", "gpu_fit"),
        ("NVLinkAware2", "nv_link_aware2"),
        ("FitGPU", "fit_gpu"),
        ("FitGPU2", "fit_gpu2"),
        ("HTTP2Proxy", "http2_proxy"),
        ("GPU", "gpu"),
        ("AFit", "a_fit"),
        ("X", "x"),
        ("Prefer_Rack", "prefer_rack"),
        ("Rack_", "rack"),
        ("Class", "class_plugin"),
        ("Json", "json_plugin"),
        ("Numpy", "numpy_plugin"),
    ],
)
def test_words_and_acronyms_are_parted(name: str, package: str) -> None:
    assert package_of(name) == package


@given(st.lists(st.tuples(WORD, st.booleans()), min_size=1, max_size=5))
def test_the_words_of_a_name_are_found_again(words: list[tuple[str, bool]]) -> None:
    parts = []
    for (word, is_acronym), after in zip(words, [*words[1:], ("", False)], strict=True):
        # Of two acronyms beside each other nobody can tell where one ends.
        parts.append(word.upper() if is_acronym and not after[1] else word.capitalize())

    assert package_of("".join(parts)).removesuffix("_plugin") == "_".join(word for word, _ in words)


@given(st.from_regex(r"[A-Z][A-Za-z0-9_]{0,30}", fullmatch=True))
def test_every_name_has_a_module_that_can_be_imported_and_hides_no_other(name: str) -> None:
    package = package_of(name)

    assert package.isidentifier() and not keyword.iskeyword(package) and package not in sys.stdlib_module_names
    assert package == package.lower() and "__" not in package and package.strip("_") == package
    assert package.removesuffix("_plugin").replace("_", "") == name.replace("_", "").lower().removesuffix("plugin") or (
        package.replace("_", "") == name.replace("_", "").lower()
    )


def test_a_name_with_an_acronym_is_written_to_files_of_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    main.cli(["plugins", "new", "GPUFit"], standalone_mode=False)

    assert sorted(each.name for each in Path("gpu-fit").glob("*.py")) == ["gpu_fit.py", "test_gpu_fit.py"]
    assert 'GPUFit = "gpu_fit:GPUFit"' in Path("gpu-fit/pyproject.toml").read_text()
