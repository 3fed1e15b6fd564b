"""Questions of the page that take long, that nobody waits for any longer, or that are asked again and again."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import msgspec
import pytest

from gangline import config
from gangline.commands.trying_apart import TryingFailed
from gangline.commands.trying_budget import OF_ONE
from gangline.commands.trying_lines import TryingRequest
from gangline.errors import AskLater
from gangline.kube.resources import NODES, PODS
from gangline.testing import make_node
from gangline.testing.gang_stories import PROFILE

from ..eventually import until
from .cluster_over_http import ClusterOverHttp
from .processes_apart import GONE, LONG, ME, WAITS, apart, commanded, is_there, pid_in, pids_in


def remedy(sentence: str, interrupted: int = 0) -> dict[str, Any]:
    cost = {"interrupted": interrupted, "givenUp": 0.0, "changed": 1}
    return {"kind": "FreeRoom", "sentence": sentence, "values": {}, "cost": cost}


def says(*lines: Any) -> str:
    """Prints these lines at once; a text is printed as it is, without an end."""
    texts = [each if isinstance(each, str) else json.dumps(each) + "\n" for each in lines]
    return f"sys.stdout.write({''.join(texts)!r}); sys.stdout.flush()"


def found(*remedies: Any, tried: int = 1) -> dict[str, Any]:
    return {"found": {"unit": "pod default/p", "remedies": remedies, "tried": tried, "isComplete": False}}


FIRST, SECOND = found(remedy("dear", 2), tried=3), found(remedy("cheap"), tried=7)
HALF = '{"found": {"uni'
KILLED = "os.kill(os.getpid(), %d)"


@pytest.mark.parametrize(
    ("program", "patience"),
    [
        (f"{says(FIRST, SECOND)}; {KILLED % signal.SIGALRM}", LONG),
        (f"{says(FIRST, SECOND, HALF)}; {KILLED % signal.SIGALRM}", LONG),
        (f"{says(FIRST, SECOND)}; {KILLED % signal.SIGKILL}", LONG),
        (f"{says(FIRST, SECOND, {'fault': 'no memory'})}", LONG),
        (f"{says(FIRST, SECOND)}; signal.pause()", 4.0),
    ],
    ids=["its time is over", "within a line", "killed", "a fault", "patience ends"],
)
async def test_what_was_verified_before_a_process_ended_is_told_as_a_search_that_was_not_finished(
    program: str, patience: float
) -> None:
    shown = await apart(program, patience=patience).of("u", ME)

    assert shown is not None and not shown.found.is_complete
    assert [each.sentence for each in shown.found.remedies] == ["cheap", "dear"]
    assert shown.found.tried == 7


async def test_an_answer_that_is_whole_is_complete_if_the_search_was() -> None:
    last = {"found": {"unit": "pod default/p", "tried": 9, "isComplete": True}, "is_last": True}
    shown = await apart(says(FIRST, SECOND, last)).of("u", ME)

    assert shown is not None and shown.found.is_complete and shown.found.tried == 9
    assert [each.sentence for each in shown.found.remedies] == ["cheap", "dear"]


async def test_the_real_process_prints_each_remedy_and_at_the_end_that_it_is_the_end(tmp_path: Path) -> None:
    cluster = ClusterOverHttp(tmp_path)
    await cluster.start()
    cluster.add(NODES, make_node("small", gpus=4), make_node("cordoned", gpus=8, unschedulable=True))
    cluster.add_pod("p", gpus=8, scheduler_name="gangs")
    (uid,) = [each.data["metadata"]["uid"] for each in cluster.server.list(PODS)]
    request = TryingRequest(uid, config.show(config.load(PROFILE, "test")), str(cluster.kubeconfig), LONG, 2**32)

    lines = await asyncio.to_thread(printed, msgspec.json.encode(request))
    await cluster.stop()

    kinds = [[each["kind"] for each in line["found"]["remedies"]] for line in lines[:-1]]
    assert kinds == [["RepairNodes"], ["SmallerRequests"]]
    assert not any(line["found"]["isComplete"] for line in lines[:-1])
    assert lines[-1]["is_last"] and not lines[-1]["found"]["remedies"] and lines[-1]["found"]["isComplete"]


def printed(request: bytes) -> list[Any]:
    with Popen([sys.executable, "-m", "gangline.commands.trying"], stdin=PIPE, stdout=PIPE) as process:
        said, _ = process.communicate(request, timeout=LONG)
    return [json.loads(line) for line in said.splitlines()]


async def test_the_process_of_who_has_gone_is_killed_and_the_next_one_starts_at_once(tmp_path: Path) -> None:
    trying = apart(f"asked['unit'] == 'good' and ({GONE}, sys.exit(0)); {WAITS % tmp_path}")
    asked = asyncio.create_task(trying.of("bad", ME))
    await until(lambda: bool(pids_in(tmp_path)), LONG, 0.02)
    waits = asyncio.create_task(trying.of("good", "other"))
    asked.cancel()

    assert await waits is None
    assert not is_there(pid_in(tmp_path)) and asked.cancelled()


async def test_who_goes_before_the_own_turn_leaves_the_line(tmp_path: Path) -> None:
    trying = apart(WAITS % tmp_path)
    first, second = [asyncio.create_task(trying.of(unit, ME)) for unit in ("first", "second")]
    await until(lambda: bool(pids_in(tmp_path)), LONG, 0.02)
    for each in (second, first):
        each.cancel()
    await asyncio.wait((first, second))

    assert len(pids_in(tmp_path)) == 1 and not is_there(pid_in(tmp_path))


async def test_who_waits_for_others_too_long_is_told_when_to_ask_again(tmp_path: Path) -> None:
    trying = apart(WAITS % tmp_path, patience=2.0)
    first = asyncio.create_task(trying.of("first", "other"))
    await asyncio.sleep(0)

    with pytest.raises(AskLater, match="the questions of others take long: ask again in 5 s"):
        await trying.of("second", ME)
    first.cancel()
    await asyncio.wait((first,))


async def test_when_the_scheduler_ends_its_process_ends_at_once_and_leaves_nothing_behind(tmp_path: Path) -> None:
    trying = apart(WAITS % tmp_path)
    asked = [asyncio.create_task(trying.of(unit, ME)) for unit in ("runs", "waits")]
    await until(lambda: bool(pids_in(tmp_path)), LONG, 0.02)

    await asyncio.to_thread(trying.close)
    async with asyncio.timeout(5.0):
        said = await asyncio.gather(*asked, return_exceptions=True)

    assert [str(each) for each in said if isinstance(each, TryingFailed)] == ["the scheduler ends"] * 2
    assert not is_there(pid_in(tmp_path))


async def test_no_process_starts_while_the_scheduler_ends(tmp_path: Path) -> None:
    trying = apart(WAITS % tmp_path)
    trying.close()

    with pytest.raises(TryingFailed, match="the scheduler ends"):
        await trying.of("u", ME)
    assert not pids_in(tmp_path)


async def test_who_asks_again_and_again_is_refused_and_others_and_kept_answers_are_not(tmp_path: Path) -> None:
    answer = json.dumps({"found": {"unit": "u", "note": "1"}, "is_last": True})
    # A shell starts in a twentieth of the time that Python takes, and there are many.
    program = f"cat > /dev/null; printf '%s ' $$ >> {tmp_path}/pid; echo '{answer}'"
    trying = commanded(("sh", "-c", program))
    kept = await trying.of("kept", ME)
    refused = 0
    for number in range(70):
        try:
            await trying.of(f"unit {number}", ME)
        except AskLater as error:
            refused += 1
            assert str(error) == "you have asked much in a short time: ask again in 1 s"

    assert len(pids_in(tmp_path)) == OF_ONE.at_once and refused == 71 - OF_ONE.at_once
    assert await trying.of("other", "other") is not None
    assert await trying.of("kept", ME) is kept
