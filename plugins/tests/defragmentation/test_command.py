"""`gangline defrag`: what it plans for, and what it shows."""

from __future__ import annotations

import dataclasses
import io

import pytest
from click.testing import CliRunner
from rich.console import Console

from gangline import ConfigError, main
from gangline_plugins.defragmentation import Move, MovePlan, MoveStep, Protected
from gangline_plugins.defragmentation.command import show

from .stories import WISH, Story


def shown(plan: MovePlan) -> str:
    screen = Console(file=io.StringIO(), width=160)
    show(plan, screen)
    text = screen.file
    assert isinstance(text, io.StringIO)
    return text.getvalue()


def test_a_gang_is_found_by_its_name() -> None:
    story = Story()

    async def play() -> MovePlan:
        await story.fragment()
        return (await story.plan(dataclasses.replace(WISH, group="default/big"))).plan

    plan = story.play(play)

    assert plan.goal == "gang default/big" and len(plan.moves) == 4


def test_a_gang_that_is_not_there_is_named() -> None:
    story = Story()

    async def play() -> None:
        await story.fragment()
        await story.plan(dataclasses.replace(WISH, group="default/none"))

    with pytest.raises(ConfigError, match=r"^the cluster of the story: there is no gang default/none"):
        story.play(play)


def test_a_gang_that_has_its_nodes_needs_no_move() -> None:
    story = Story()

    async def play() -> MovePlan:
        await story.fragment(pods=0)
        await story.until(lambda: len(story.bound("big")) == 4)
        return (await story.plan(dataclasses.replace(WISH, group="default/big"))).plan

    plan = story.play(play)

    assert plan.is_met and shown(plan) == "gang default/big: no move is needed: it runs\n"


def test_leaves_are_freed_and_at_most_so_many_pods_move_at_once() -> None:
    story = Story()

    async def play() -> MovePlan:
        await story.fragment()
        return (await story.plan(dataclasses.replace(WISH, free_leaves=1, most_moves=2))).plan

    plan = story.play(play)

    assert plan.goal == "complete domains of level leaf: 1"
    assert [len(batch) for batch in plan.batches] == [2, 2]


def test_the_arguments_of_the_profile_count() -> None:
    story = Story(mostMoves=1)

    async def play() -> MovePlan:
        await story.fragment()
        return (await story.plan()).plan

    assert len(story.play(play).batches) == 4


def test_a_plan_is_shown_with_its_cost_what_it_frees_and_what_stays() -> None:
    step = MoveStep("default", "a", "uid", "owner", "n1", "n2", {})
    plan = MovePlan(
        "gang default/big",
        moves=[Move("pod default/a", [step], 1234.0, 0)],
        cost=1234.0,
        worth=9999.0,
        frees=["n1"],
        protected=[Protected("default/b", "it is so")] * 2,
    )

    text = shown(plan)

    assert "pod default/a  n1    n2  1,234" in text
    assert "1 move of 1 pod for 1,234 GPU-seconds would free 1 node for gang default/big, worth 9,999" in text
    assert "not moved: 2 it is so" in text


def test_why_nothing_is_moved_is_shown() -> None:
    assert shown(MovePlan("gang default/big", message="no room")) == "gang default/big: no room\n"


def test_a_gang_and_leaves_exclude_each_other() -> None:
    words = ["defrag", "plan", "--group", "default/a", "--free-leaves", "1"]

    result = CliRunner().invoke(main.cli, words)

    assert result.exit_code == 2 and "exclude each other" in result.output
