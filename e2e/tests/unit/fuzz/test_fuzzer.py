"""The fuzzer finds what is wrong: each thing that must hold is broken here once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from gangline.kube.resources import NODES, PODS
from gangline.loop.scheduler import Scheduler
from gangline.simulate import VirtualClock
from gangline.wire.custom_resources import ALLOCATED
from gangline_fuzz import inputs, oracle, texts
from gangline_fuzz.budget import TookTooLong, at_most
from gangline_fuzz.cluster import Bounds
from gangline_fuzz.inputs import Case, Configuration, Delete, Line, Relist, Reset, Review, Several, Write
from gangline_fuzz.oracle import Kind
from gangline_fuzz.reducing import reduced
from gangline_fuzz.rooms import cases, play
from gangline_fuzz.running import MIB_EACH, MIB_ONCE, Runner, quiet
from gangline_fuzz.server import Given, OddClient, OddServer

GPU = "nvidia.com/gpu"
POD: Any = {
    "metadata": {"name": "p", "namespace": "default", "uid": "u"},
    "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]},
}


def test_a_usual_cluster_holds() -> None:
    with quiet():
        assert (
            play(Case([Write("pods", POD), Reset(), Relist("pods", "cut off"), Line("pods", "{"), Delete("pods", "p")]))
            is None
        )


@pytest.mark.parametrize(
    ("bounds", "kind"),
    [(Bounds(one=0.0), Kind.CPU), (Bounds(several=0.0), Kind.CPU), (Bounds(mib=-1.0), Kind.MEMORY)],
    ids=["one object", "several", "memory"],
)
def test_what_takes_more_than_its_bound_is_found(bounds: Bounds, kind: Kind) -> None:
    case = Case([Several([Write("pods", POD)])] if bounds.several == 0 else [Write("pods", POD)])

    with quiet():
        found = play(case, bounds)

    assert found is not None and (found.kind, found.at) == (kind, 0)


def test_a_healthy_pod_that_is_not_bound_is_found() -> None:
    everybody = {"effect": "NoSchedule", "key": "nobody"}
    haven = {"metadata": {"name": "haven-1", "uid": "uid-haven-1"}, "spec": {"taints": [everybody]}, "status": {}}

    with quiet():
        found = play(Case([Write("nodes", haven)]))

    assert found is not None and found.kind is Kind.STALLED


def test_a_scheduler_that_is_held_after_its_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[Scheduler] = []

    class Held(Scheduler):
        async def watch(self) -> None:
            held.append(self)
            await super().watch()

    monkeypatch.setattr("gangline_fuzz.cluster.Scheduler", Held)
    with quiet():
        found = play(Case([Reset(), Write("pods", POD)]))

    assert found is not None and (found.kind, found.at) == (Kind.HELD, 1)
    assert len(held) == 2 and found.said.startswith("2 schedulers ")


def test_memory_that_grows_with_each_cluster_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    mib = iter([200.0, 200.0 + MIB_ONCE + 2 * MIB_EACH, 200.5 + MIB_ONCE + 4 * MIB_EACH])
    monkeypatch.setattr("gangline_fuzz.running.resident", lambda: next(mib))
    runner = Runner(tmp_path, told.append)
    monkeypatch.setattr(runner, "look_at", lambda case, origin: runner.tally.count(case))

    for number in range(3):
        assert not runner.tally.failures
        runner.round(number, 2)

    assert runner.tally.failures == Counter({Kind.GROWTH.value: 1})
    assert told == [f"memory grows with each cluster; seed 2\n{0.5 + MIB_ONCE + 4 * MIB_EACH:.0f} MiB with 4 clusters"]


def test_an_exception_that_nobody_should_see_is_found_with_its_place() -> None:
    def broken() -> None:
        texts.written({"@items": None})

    with pytest.raises(TypeError) as error:
        broken()

    found = oracle.raised(Kind.ENDED, 3, ExceptionGroup("two", [error.value]))

    assert found.signature.startswith("the scheduler ended: TypeError gangline_fuzz/texts.py:")
    assert "Traceback" in found.said


class Bound:
    """An API server on which pods were bound by a scheduler."""

    def __init__(self) -> None:
        self.server = OddServer(VirtualClock())
        self.client = OddClient(self.server)
        amounts = {"cpu": "2", GPU: "8"}
        self.server.send(NODES, {"metadata": {"name": "n"}, "status": {"allocatable": amounts}})

    def add(self, name: str, devices: str, **requests: str) -> None:
        spec = {"nodeName": "n", "containers": [{"resources": {"requests": requests}}]}
        metadata = {"name": name, "namespace": "default", "uid": name}
        self.server.send(PODS, {"metadata": metadata, "spec": spec})
        self.client.given["default", name] = Given("n", name, {ALLOCATED: devices})


def test_a_device_that_is_held_twice_is_found() -> None:
    bound = Bound()
    bound.add("a", "0,1", **{GPU: "2"})
    oracle.check_devices(bound.server, bound.client, 0)
    bound.add("b", "1", **{GPU: "1"})

    with pytest.raises(oracle.Failed) as error:
        oracle.check_devices(bound.server, bound.client, 0)

    assert error.value.found.said == "GPU 1 of n is held by default/a and default/b"


def test_a_node_over_its_capacity_is_found() -> None:
    bound = Bound()
    bound.add("a", "", cpu="1500m")
    oracle.check_capacity(bound.server, bound.client, 0)
    bound.add("b", "", cpu="501m")

    with pytest.raises(oracle.Failed) as error:
        oracle.check_capacity(bound.server, bound.client, 0)

    assert error.value.found.said == "n: pods ask for 2.001 cpu of 2"


def test_work_that_does_not_end_is_ended() -> None:
    def turn() -> None:
        while True:
            try:
                sum(range(1000))
            except Exception:
                continue

    with pytest.raises(TookTooLong), at_most(0.02):
        turn()


def test_memory_is_measured_at_its_highest() -> None:
    """In a process of its own: a kernel that is short of memory takes pages from a large one meanwhile."""
    code = (
        "from gangline_fuzz.budget import measured\n"
        "with measured() as spent:\n    bytearray(64 << 20)\n"
        "print(spent.mib)"
    )

    answer = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert float(answer.stdout) > 60


@pytest.mark.parametrize(
    ("text", "said"),
    [("kind: [", "holds"), ("a: 1\nb: 2", "holds")],
)
def test_configurations_that_are_refused_hold(text: str, said: str) -> None:
    assert play(Case([Configuration(text)])) is None, said


def test_a_review_is_answered() -> None:
    assert play(Case([Review("/mutate", "{")])) is None


def test_every_special_text_is_written() -> None:
    data = {
        "a": {"@digits": 3},
        "b": {"@deep": 2},
        "c": {"@deep-objects": 1},
        "d": {"@string": [2, "x"]},
        "e": {"@keys": 1},
        "f": {"@items": [2, {"@raw": "NaN"}]},
        "g": {"@twice": {"k": 1}},
        "h": {"@nested-text": 1},
        "i": {"@digits-text": 2},
    }

    text = texts.written(data)

    assert text == (
        '{"a":999,"b":[[]],"c":{"a":1},"d":"xx","e":{"key-0":"0"},"f":[NaN,NaN],"g":{"k":1,"k":null},"h":"[]","i":"99"}'
    )
    assert texts.plain({"a": {"@digits": 5000}, "b": {"@deep": 2}}) == {"a": None, "b": [[]]}


def test_a_case_is_made_smaller_as_long_as_it_fails() -> None:
    case = Case([Write("pods", {"a": number, "b": [number, 7, 8], "c": {"d": 1}}) for number in range(9)])

    small = reduced(
        case,
        lambda each: any('"b":[4' in texts.written(one.object) for one in each.inputs if isinstance(one, Write)),
        500,
    )

    assert small.inputs == [Write("pods", {"b": [4]})]


def test_what_fails_is_kept_and_can_be_replayed(tmp_path: Path) -> None:
    told: list[str] = []
    haven = {"metadata": {"name": "haven-1", "uid": "x"}, "spec": {"unschedulable": True}, "status": {}}
    runner = Runner(tmp_path, told.append, tries=4)

    for _ in range(2):
        runner.look_at(Case([Reset(), Write("nodes", haven)]), "seed 1")

    [path] = runner.tally.saved.values()
    assert f"python -m gangline_fuzz replay {path}" in told[0] and len(told) == 1
    assert runner.tally.failures == Counter({Kind.STALLED.value: 2})
    with quiet():
        again = play(inputs.read(path))
    assert again is not None and again.kind is Kind.STALLED


@given(cases())
def test_every_case_can_be_kept(case: Case) -> None:
    kept = json.dumps(inputs.plain(case))

    assert inputs.plain(inputs.parsed(json.loads(kept))) == inputs.plain(case)
