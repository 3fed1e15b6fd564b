"""One thing has no s."""

from __future__ import annotations

import pytest

from gangline.plurals import many


@pytest.mark.parametrize(("number", "words"), [(0, "0 pods"), (1, "1 pod"), (2, "2 pods"), (-1, "-1 pods")])
def test_a_number_of_things(number: int, words: str) -> None:
    assert many(number, "pod") == words
