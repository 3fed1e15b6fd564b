"""The page on what-if shows what the command that stands there prints of a cluster that has been scheduled."""

from __future__ import annotations

from pathlib import Path

from gangline_docs import differences
from gangline_docs.site import filled

PAGE = (Path(__file__).parents[1] / "operating" / "remedies.md").read_text(encoding="utf-8")


def test_the_command_stands_on_the_page_with_its_output() -> None:
    assert f"    {differences.COMMAND}\n" in PAGE and "{{ difference_output }}" in PAGE
    assert "GPUs in use                        240     264    +24" in filled("{{ difference_output }}\n")


def test_the_gang_that_waited_starts_on_the_new_nodes_and_the_drained_pod_waits() -> None:
    found = differences.difference()

    assert {each.after for each in found.pods if "align" in each.pod} == {f"node-31-new-{n}" for n in (1, 2, 3, 4)}
    assert [each.before for each in found.pods if not each.after] == ["node-00"]
