"""The page on remedies lists every kind, in the order in which explain shows them, with the values that there are."""

from __future__ import annotations

import re
from pathlib import Path

from framework.tests.remedies.test_remedies import CASES

from gangline.remedies import RemedyKind

PAGE = (Path(__file__).parents[1] / "operating" / "remedies.md").read_text(encoding="utf-8")
ROWS = {kind: values for kind, values in re.findall(r"^\| `(\w+)` \| .* \| (.*) \|$", PAGE, re.MULTILINE)}


def test_the_page_lists_all_kinds_in_order() -> None:
    assert list(ROWS) == [kind.value for kind in RemedyKind]


def test_the_page_names_the_values_of_each_kind() -> None:
    for _, _, kind, _, values, _ in CASES:
        assert [key for key in values if f"`{key}`" not in ROWS[kind]] == []
