"""What is counted is the same each time, and the bars are judged as CI needs it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from checking import bars
from checking.bars import Bars
from checking.counting import Instructions, memory, peak
from gangline.durations import parse_duration
from gangline.simulate import gpu_nodes


def counted(times: int) -> int:
    instructions = Instructions()
    with instructions.counting():
        for _ in range(times):
            parse_duration("1h30m")
    return instructions.count


def test_twice_the_work_is_twice_the_instructions() -> None:
    counted(1)  # what the first call makes is there

    assert counted(10) == 10 * counted(1) > 0


def test_the_simulated_api_server_and_the_tests_do_not_count() -> None:
    instructions = Instructions()
    with instructions.counting():
        gpu_nodes(3)
        sum(number for number in range(100))

    assert instructions.count == 0


def test_memory_is_what_an_array_takes_while_it_is_there() -> None:
    with memory():
        most = peak(lambda: np.zeros(1_000_000).sum())

    assert 8_000_000 <= most < 8_500_000


@pytest.mark.parametrize(
    ("name", "now", "python", "is_worse", "says"),
    [
        ("a: instructions", 109, "3.11", False, ""),
        ("a: instructions", 111, "3.11", True, "WORSE: at most 1.1 is allowed"),
        ("a: instructions", 111, "3.13", False, ""),
        ("a: instructions", 141, "3.13", True, "WORSE: at most 1.4 is allowed"),
        ("a: time", 129, "3.11", False, ""),
        ("a: time", 131, "3.11", True, "WORSE: at most 1.3 is allowed"),
        ("a: instructions", 80, "3.11", False, "better: make bench-bars"),
    ],
)
def test_a_figure_is_judged_by_its_bar(name: str, now: float, python: str, is_worse: bool, says: str) -> None:
    (verdict,) = bars.judged({name: now}, Bars("3.11", {name: 100.0}), python)

    assert (verdict.is_worse, verdict.says()) == (is_worse, says)


@pytest.mark.parametrize(
    "figures", [{}, {"a": 1.0, "b": 1.0}], ids=["a bar without a figure", "a figure without a bar"]
)
def test_figures_and_bars_are_of_the_same_things(figures: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="make bench-bars"):
        bars.judged(figures, Bars("3.11", {"a": 1.0}), "3.11")


def test_new_bars_can_be_read_and_are_met() -> None:
    figures = {"a: instructions": 123.456789, "b: time": 0.41239}

    made = bars.read(json.dumps(bars.made(figures, "3.11")))

    assert not any(each.is_worse for each in bars.judged(figures, made, "3.11"))


def test_the_stored_bars_can_be_read() -> None:
    assert all(bars.read((Path(__file__).parents[1] / "bars.json").read_text()).figures.values())
