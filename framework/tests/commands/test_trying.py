"""Changes that are tried for viewers of the page, in a process beside the scheduler."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
import uvloop

from gangline import config
from gangline.commands.trying import try_changes
from gangline.commands.trying_apart import LEAST_MEMORY, MOST_WAITING, TryingApart, TryingFailed
from gangline.errors import AskLater
from gangline.kube.resources import NODES, PODS
from gangline.remedies import Remedies
from gangline.simulate.client import SimulatedClient
from gangline.simulate.cluster import SimulatedCluster
from gangline.testing import FakeClock, make_node, make_pod
from gangline.testing.gang_stories import PROFILE
from gangline.testing.gangs import GROUP

from .processes_apart import ANSWER, CONFIGURATION, GONE, LONG, ME, WAITS, apart, is_there, pid_in


def test_a_unit_that_waits_on_a_cluster_is_told_what_would_let_it_start() -> None:
    cluster = SimulatedCluster()
    cluster.create(NODES, make_node("n", gpus=4))
    cluster.create(PODS, make_pod("waits", gpus=8), make_pod("runs", gpus=1, node="n"))
    uid = cluster.get(PODS, "waits").metadata.uid

    async def found(unit: str) -> Remedies | None:
        return await try_changes(SimulatedClient(cluster.server), CONFIGURATION, unit, cluster.clock)

    remedies = cluster.play(lambda: found(uid))
    assert remedies is not None and remedies.unit == "pod default/waits"
    assert [each.values["quantity"] for each in remedies.remedies] == ["3"]
    assert cluster.play(lambda: found(cluster.get(PODS, "runs").metadata.uid)) is None


def test_a_unit_whose_group_is_not_there_yet_still_waits() -> None:
    cluster = SimulatedCluster()
    cluster.create(NODES, make_node("n", gpus=4))
    cluster.create(PODS, make_pod("p", gpus=1, scheduler_name="gangs", labels={GROUP: "missing"}))

    async def found() -> Remedies | None:
        client = SimulatedClient(cluster.server)
        return await try_changes(
            client, config.load(PROFILE, "test"), "scheduler-plugins:default/missing", cluster.clock
        )

    remedies = cluster.play(found)
    assert remedies is not None and not remedies.remedies
    assert remedies.note.startswith("default/p is not tried: ") and "missing" in remedies.note


async def test_the_process_is_told_profiles_credentials_and_limits() -> None:
    shown = await apart(ANSWER % "asked['kubeconfig'], asked['memory'], asked['configuration']", 4 * 2**30).of("u", ME)

    assert shown is not None and shown.found.unit == "u"
    kubeconfig, memory, configuration = shown.found.note.split(" ", 2)
    assert (kubeconfig, int(memory)) == ("its/kubeconfig", 3 * 2**30)
    assert config.load(configuration, "told").profiles == CONFIGURATION.profiles


async def test_an_answer_is_kept_for_a_while_and_one_process_runs_at_a_time(tmp_path: Path) -> None:
    clock = FakeClock()
    alone = f"os.mkdir({str(tmp_path / 'busy')!r}); os.rmdir({str(tmp_path / 'busy')!r}); "
    trying = apart(alone + ANSWER % "os.getpid()", clock=clock)

    first, second, other = await asyncio.gather(trying.of("u", ME), trying.of("u", ME), trying.of("other", ME))
    assert first is not None and first is second and other is not None and other.found.note != first.found.note
    clock.advance(31.0)
    assert await trying.of("u", ME) != first


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("print(json.dumps({'found': None, 'fault': 'too large', 'detail': 'secret'}))", "too large"),
        ("sys.exit(3)", "trying changes has failed"),
        ("print('no answer')", "trying changes has failed"),
        ("os.kill(os.getpid(), 9)", "trying changes has failed"),
        ("os.kill(os.getpid(), 14)", "no change was found in the time that there is"),
        ("print(json.dumps({'found': {'unit': 'u'}}))", "trying changes has failed"),
        ("print(json.dumps({'found': {'remedies': 1}}))", "trying changes has failed"),
        ("os.write(1, bytes([0, 255]))", "trying changes has failed"),
        ("print(json.dumps({'found': None}) + ' ' * 2**23)", "the answer is too long"),
        ("[os.write(1, bytes(2**16)) for _ in iter(int, 1)]", "the answer is too long"),
    ],
    ids=[
        "fault",
        "exit",
        "nonsense",
        "killed",
        "alarm",
        "no last line",
        "another version",
        "no text",
        "long",
        "endless",
    ],
)
async def test_a_fault_of_the_process_is_one_sentence_and_the_next_question_is_answered(program: str, why: str) -> None:
    trying = apart(f"asked['unit'] == 'good' and ({GONE}, sys.exit(0)); {program}")

    with pytest.raises(TryingFailed) as failed:
        await trying.of("bad", ME)
    assert str(failed.value) == why
    assert await trying.of("good", ME) is None


async def test_a_process_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    trying = apart(WAITS % tmp_path, patience=2.0)

    with pytest.raises(TryingFailed, match="no change was found in the time"):
        await trying.of("u", ME)
    assert not is_there(pid_in(tmp_path))


def test_under_uvloop_it_is_the_same_and_uvloop_which_copies_page_tables_starts_no_process(tmp_path: Path) -> None:
    async def asked() -> None:
        assert await apart(GONE).of("u", ME) is None
        slow = apart(WAITS % tmp_path, patience=2.0)
        with pytest.raises(TryingFailed, match="no change was found in the time"):
            await slow.of("u", ME)

    with (
        patch.object(asyncio, "create_subprocess_exec", side_effect=AssertionError),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(asked())
    assert not is_there(pid_in(tmp_path))


async def test_a_process_that_cannot_be_started_is_a_fault_like_others() -> None:
    trying = TryingApart(lambda: CONFIGURATION, None, ("/no/such/python",), lambda: None)

    with pytest.raises(TryingFailed, match="no process can be started"):
        await trying.of("u", ME)


async def test_who_asks_for_a_kept_answer_waits_for_nobody() -> None:
    trying = apart(f"asked['unit'] != 'u' and time.sleep(600); {ANSWER % '1'}")
    kept = await trying.of("u", ME)
    others = [asyncio.ensure_future(trying.of(f"slow {number}", ME)) for number in range(MOST_WAITING)]
    await asyncio.sleep(0)

    async with asyncio.timeout(5.0):
        assert await trying.of("u", ME) is kept
    for each in others:
        each.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def test_the_memory_of_a_process_is_limited_from_its_start() -> None:
    most = 128 * 2**20
    program = f"""
import re
from gangline.commands.trying import TryingRequest, _give_way
_give_way(TryingRequest("u", "", None, {LONG}, {most}))
kept = []
try:
    while True:
        kept.append(b"x" * 2**20)
except MemoryError:
    kept[-8:] = []
print(len(kept), re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1])
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, timeout=LONG).stdout
    taken, resident = map(int, said.split())
    assert taken > 32 and resident * 1024 < most


async def test_no_process_is_started_where_the_scheduler_has_little_memory_left() -> None:
    with pytest.raises(TryingFailed, match="too little memory"):
        await apart(ANSWER % "1", left=LEAST_MEMORY).of("u", ME)


async def test_so_many_viewers_wait_at_most() -> None:
    trying = apart(ANSWER % "1")
    asked = [asyncio.ensure_future(trying.of("u", ME)) for _ in range(MOST_WAITING + 1)]
    answers = await asyncio.gather(*asked, return_exceptions=True)

    refused = [each for each in answers if isinstance(each, AskLater)]
    assert [each.why for each in refused] == ["too many questions are asked at a time"]
