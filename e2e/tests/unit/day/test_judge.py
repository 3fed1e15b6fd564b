"""The judge of a day: a good one passes, and each kind of mistake is named the moment it is seen."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from gangline_e2e.day.fabric import Fabric
from gangline_e2e.day.judge import Judge, Limits
from gangline_e2e.day.objects import gang_of
from gangline_e2e.day.replicas import has_released
from gangline_e2e.day.sight import Claim, Lease, Node, Pod
from gangline_e2e.day.workload import Workload
from gangline_e2e.gangs import LEAF, SPINE

FABRIC = Fabric(nodes=8, gpus=8, leaves=4, spines=2)
LIMITS = Limits(phase=5, passed=0, patience=10, overtaken=0, late=3, bound=0)


class Stage:
    """A judge, and the events that an API server would send him."""

    def __init__(self) -> None:
        self.judge = Judge(FABRIC, LIMITS)
        self._revision = itertools.count(1)
        self.pods: dict[str, dict[str, Any]] = {}
        for number in range(FABRIC.nodes):
            self.node("ADDED", number)

    def node(self, event: str, number: int, now: float = 0) -> None:
        self.judge.node(event, self._read({"metadata": self._metadata(FABRIC.name(number))}, Node), now)

    def come(self, workload: Workload, now: float = 0) -> list[str]:
        """Submit a workload; the names of its pods."""
        self.judge.submit(workload)
        names = []
        for made in gang_of(workload).pods:
            name = made["metadata"]["name"]
            self.pods[name] = {**made, "metadata": {**made["metadata"], "uid": f"uid-{name}"}, "status": {}}
            self.change("ADDED", name, now)
            names.append(name)
        return names

    def bind(self, name: str, node: int, ids: Sequence[int], now: float = 0, locked: bool = True) -> None:
        if locked:
            self.lock(name, node, ids)
        pod = self.pods[name]
        pod["spec"]["nodeName"] = FABRIC.name(node)
        pod["metadata"]["annotations"]["gpu.scheduling/allocated"] = ",".join(map(str, ids))
        self.change("MODIFIED", name, now)

    def end(self, name: str, now: float = 0) -> None:
        self.pods[name]["status"]["phase"] = "Succeeded"
        self.change("MODIFIED", name, now)

    def change(self, event: str, name: str, now: float = 0) -> None:
        pod = self.pods[name]
        pod["metadata"]["resourceVersion"] = str(next(self._revision))
        self.judge.pod(event, self._read(pod, Pod), now)

    def lock(self, name: str, node: int, ids: Sequence[int], event: str = "ADDED") -> None:
        for id in ids:
            metadata = self._metadata(f"gpu-{node}-{id}")
            holders = msgspec.json.encode({f"uid-{name}": {"ids": [id]}}).decode()
            metadata["annotations"] = {"gpu.scheduling/holders": holders, "gpu.scheduling/node": FABRIC.name(node)}
            self.judge.lease(event, self._read({"metadata": metadata}, Lease), 0)

    def claim(self, name: str, node: int, ids: Sequence[int]) -> None:
        status = {"phase": "Bound", "nodeName": FABRIC.name(node), "gpuIds": list(ids)}
        self.judge.claim("MODIFIED", self._read({"metadata": self._metadata(name), "status": status}, Claim), 0)

    def _metadata(self, name: str) -> dict[str, Any]:
        return {"name": name, "uid": f"uid-{name}", "resourceVersion": str(next(self._revision))}

    def _read(self, manifest: dict[str, Any], kind: type[Any]) -> Any:
        return msgspec.json.decode(msgspec.json.encode(manifest), type=kind)


@pytest.fixture
def stage() -> Stage:
    """Eight nodes of eight GPUs in four leaves."""
    return Stage()


def pod(name: str, gpus: int = 8, priority: str = "normal", **fields: Any) -> Workload:
    """One pod."""
    return Workload(name, 0, fields.pop("kind", "pod"), 1, gpus, priority, 1, **fields)


def gang(name: str, size: int, gpus: int = 8, **fields: Any) -> Workload:
    """A gang."""
    fields = {"dialect": "kueue", **fields}
    return Workload(name, 0, "gang", size, gpus, fields.pop("priority", "normal"), 1, **fields)


def test_a_good_day_passes(stage: Stage) -> None:
    (single,) = stage.come(pod("single", gpus=4))
    for name, node in zip(stage.come(gang("gang", 2, level=LEAF)), (2, 3), strict=True):
        stage.bind(name, node, range(8))
    stage.bind(single, 0, (0, 1, 2, 3))
    stage.end(single)
    stage.lock(single, 0, (0, 1, 2, 3), "DELETED")
    (next_one,) = stage.come(pod("next", gpus=4))
    stage.bind(next_one, 0, (0, 1, 2, 3))
    stage.judge.look(100)

    assert stage.judge.faults == []
    assert stage.judge.final_faults() == []
    assert stage.judge.unstarted() == []
    assert stage.judge.settled == ["single"]
    assert stage.judge.ledger.held == 20


# Devices


def test_a_device_that_is_given_twice_is_noticed_at_once(stage: Stage) -> None:
    (one,), (two,) = stage.come(pod("one", gpus=2)), stage.come(pod("two", gpus=2))
    stage.bind(one, 0, (0, 1))
    stage.bind(two, 0, (1, 2))

    stage.end(two)

    (fault,) = stage.judge.faults
    assert "GPU 1 of node-00000 was given to one-0, two-0" in fault


def test_parts_of_a_device_may_not_exceed_it(stage: Stage) -> None:
    for number, milli in enumerate((500, 250, 250, 100)):
        (name,) = stage.come(pod(f"part-{number}", gpus=1, kind="fraction", milli=milli))
        assert stage.judge.faults == []
        stage.bind(name, 0, (0,))

    assert len(stage.judge.faults) == 1


@pytest.mark.parametrize(
    ("workload", "ids", "what"),
    [
        pytest.param(pod("wrong", gpus=4), (0, 1), "node-00000 wants 4 GPUs and has (0, 1)", id="too few"),
        pytest.param(pod("wrong", gpus=2), (1, 1), "node-00000 wants 2 GPUs and has (1, 1)", id="one twice"),
        pytest.param(pod("wrong", gpus=1), (8,), "has no such GPU", id="none such"),
        pytest.param(pod("wrong", gpus=2, kind="claim"), (0, 2), "wants GPUs in a row", id="not in a row"),
    ],
)
def test_a_pod_with_other_devices_than_it_wants_is_noticed(
    stage: Stage, workload: Workload, ids: tuple[int, ...], what: str
) -> None:
    (name,) = stage.come(workload)

    stage.bind(name, 0, ids)

    assert any(what in fault for fault in stage.judge.faults)


def test_devices_without_a_lock_and_locks_without_a_pod_are_noticed(stage: Stage) -> None:
    (bare,), (ended,) = stage.come(pod("bare", gpus=1)), stage.come(pod("ended", gpus=1))
    stage.bind(bare, 0, (0,), locked=False)
    stage.bind(ended, 1, (5,))
    stage.end(ended)

    found = stage.judge.final_faults()

    assert len(found) == 2
    assert "bare-0 had GPU 0 of node-00000" in found[0]
    assert "GPU 5 of node-00001 is locked for uid-ended-0" in found[1]


def test_a_lock_that_is_given_up_while_its_pod_runs_is_noticed(stage: Stage) -> None:
    (name,) = stage.come(pod("early", gpus=1))
    stage.bind(name, 0, (0,))
    stage.lock(name, 0, (0,), "DELETED")
    stage.end(name)

    assert len(stage.judge.final_faults()) == 1


def test_a_claim_that_tells_of_devices_that_no_pod_had_is_noticed(stage: Stage) -> None:
    (name,) = stage.come(pod("claimed", gpus=2, kind="claim"))
    stage.bind(name, 0, (0, 1))
    stage.claim("claimed", 0, (0, 1))
    assert stage.judge.final_faults() == []

    stage.claim("claimed", 0, (2, 3))

    assert "claim claimed has said" in stage.judge.final_faults()[0]


# Gangs


def test_a_gang_that_stays_half_placed_is_noticed(stage: Stage) -> None:
    first, _ = stage.come(gang("half", 2))
    stage.bind(first, 0, range(8), now=1)
    stage.judge.look(1 + LIMITS.phase)
    assert stage.judge.faults == []

    stage.judge.look(2 + LIMITS.phase)

    assert stage.judge.faults == ["gang half is placed in part 1 of 2 pods have a node"]


def test_a_gang_that_is_half_placed_at_the_end_is_noticed_however_slow_the_machine(stage: Stage) -> None:
    stage.judge.limits = Limits(phase=5, passed=1000)
    first, second = stage.come(gang("half", 2))
    stage.bind(first, 0, range(8), now=1)

    stage.judge.look(100)

    assert stage.judge.faults == []
    assert "gang half is placed in part: 1 of 2 pods have a node" in stage.judge.final_faults()
    stage.bind(second, 1, range(8), now=101)
    assert not any("in part" in fault for fault in stage.judge.final_faults())


def test_a_gang_outside_of_its_domain_is_noticed(stage: Stage) -> None:
    names = stage.come(gang("wide", 2, level=LEAF))

    stage.bind(names[0], 1, range(8))
    stage.bind(names[1], 2, range(8))

    assert stage.judge.faults == [f"wide is not in one {LEAF}"]


def test_a_part_outside_of_its_domain_is_noticed(stage: Stage) -> None:
    names = stage.come(gang("sliced", 4, level=SPINE, part=LEAF, part_size=2))

    for name, node in zip(names, (0, 2, 1, 3), strict=True):
        stage.bind(name, node, range(8))

    assert [fault for fault in stage.judge.faults if "slice-0" in fault and LEAF in fault]


def test_a_gang_that_is_evicted_in_part_is_noticed(stage: Stage) -> None:
    names = stage.come(gang("torn", 2))
    for name, node in zip(names, (0, 1), strict=True):
        stage.bind(name, node, range(8))
    stage.change("DELETED", names[0], now=10)

    stage.judge.look(11 + LIMITS.phase)

    assert stage.judge.faults == ["gang torn was evicted in part 1 of 2 pods are gone, the others are not"]
    stage.change("DELETED", names[1], now=20)
    assert stage.judge.settled == ["torn"]


def test_a_gang_whose_kubelets_take_long_to_end_some_pods_is_evicted_as_a_whole(stage: Stage) -> None:
    names = stage.come(gang("slow", 2))
    for name, node in zip(names, (0, 1), strict=True):
        stage.bind(name, node, range(8))
    for name in names:
        stage.pods[name]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        stage.change("MODIFIED", name, now=9)
    stage.change("DELETED", names[0], now=10)

    stage.judge.look(11 + LIMITS.phase)

    assert stage.judge.faults == []


def test_pods_of_the_highest_priority_are_evicted_by_nobody(stage: Stage) -> None:
    (high,), (low,) = stage.come(pod("high", priority="high")), stage.come(pod("low", priority="low"))
    stage.bind(high, 0, range(8))
    stage.bind(low, 1, range(8))

    stage.change("DELETED", low)
    assert stage.judge.faults == []
    stage.change("DELETED", high)

    assert stage.judge.faults == ["high-0 was evicted, and nothing has a higher priority"]


def test_what_cannot_fit_must_not_be_placed(stage: Stage) -> None:
    name, *_ = stage.come(gang("too-wide", 3, level=LEAF, is_possible=False))

    stage.bind(name, 0, range(8))

    assert stage.judge.faults == ["too-wide cannot fit anywhere, but has a node"]


# Waiting


def test_a_pod_that_fits_but_waits_is_noticed(stage: Stage) -> None:
    stage.come(pod("patient"), now=0)
    stage.judge.look(1)
    (other,) = stage.come(pod("other"), now=2)
    stage.bind(other, 0, range(8), now=2)
    stage.judge.look(1 + LIMITS.patience)
    assert stage.judge.faults == []

    stage.judge.look(2 + LIMITS.patience)

    (fault,) = stage.judge.faults
    assert fault.startswith("patient waits though it fits for 11 s, while 1 after it started")
    assert stage.judge.unstarted() == ["patient"]


def test_patience_does_not_count_while_locks_of_a_leader_that_has_not_released_its_lease_stay(stage: Stage) -> None:
    stage.come(pod("patient"), now=0)
    stage.judge.look(1)
    stage.judge.hand_over(3)
    (other,) = stage.come(pod("other"), now=2)
    stage.bind(other, 0, range(8), now=4 + LIMITS.locked)
    stage.judge.look(3 + LIMITS.locked + LIMITS.patience)
    assert stage.judge.faults == []

    stage.judge.look(4 + LIMITS.locked + LIMITS.patience)

    assert [fault.split(" for ")[0] for fault in stage.judge.faults] == ["patient waits though it fits"]


def test_a_lease_counts_as_released_if_the_log_of_its_leader_says_so_after_the_signal() -> None:
    before = "leading: lease a/b: the leader is nobody\nleading: lease a/b: the leader is me\n"
    told = f"{before}00:05:33 INFO gangline.commands.run: stopping\n"

    assert has_released(f"{told}00:05:36 INFO gangline.process.leading: lease a/b: the leader is nobody\n")
    assert not has_released(f"{told}00:05:38 WARNING gangline.loop.scheduler: stopping with 16 bindings under way\n")


def test_a_pod_waits_its_turn_while_others_that_come_before_it_start(stage: Stage) -> None:
    (earlier,) = stage.come(pod("earlier", gpus=1, priority="low"), now=0)
    stage.come(pod("patient", gpus=1, priority="low"), now=0.5)
    stage.judge.look(1)
    (higher,) = stage.come(pod("higher", gpus=1, priority="high"), now=2)
    stage.bind(higher, 0, [0], now=2)
    stage.bind(earlier, 1, [0], now=3)
    stage.judge.look(2 + LIMITS.patience)
    assert stage.judge.faults == []

    (later,) = stage.come(pod("later", gpus=1, priority="low"), now=4)
    stage.bind(later, 2, [0], now=5)
    stage.judge.look(3 + LIMITS.patience)

    assert [fault.split(" for ")[0] for fault in stage.judge.faults] == ["patient waits though it fits"]


@pytest.mark.parametrize(
    ("workload", "free", "is_late"),
    [
        pytest.param(pod("waits", gpus=2), {0: 2}, True, id="pod"),
        pytest.param(pod("waits", gpus=2), {0: 1, 1: 1}, False, id="pod over two nodes"),
        pytest.param(gang("waits", 2, level=LEAF), {0: 8, 1: 8}, True, id="gang in a leaf"),
        pytest.param(gang("waits", 2, level=LEAF), {1: 8, 2: 8}, False, id="gang over two leaves"),
        pytest.param(gang("waits", 2, level=SPINE), {1: 8, 2: 8}, True, id="gang in a spine"),
        pytest.param(gang("waits", 2), {1: 8, 6: 8}, True, id="gang anywhere"),
        pytest.param(gang("waits", 2), {1: 8, 6: 7}, False, id="gang without room"),
        pytest.param(gang("waits", 4, level=SPINE, part=LEAF, part_size=2), {0: 8, 1: 8, 2: 8, 3: 8}, True, id="parts"),
        pytest.param(
            gang("waits", 4, gpus=4, level=SPINE, part=LEAF, part_size=2), {0: 8, 1: 4, 2: 4}, False, id="odd parts"
        ),
    ],
)
def test_only_what_fits_by_its_rule_is_late(
    stage: Stage, workload: Workload, free: dict[int, int], is_late: bool
) -> None:
    for node in range(FABRIC.nodes):
        if taken := 8 - free.get(node, 0):
            (name,) = stage.come(pod(f"taker-{node}", gpus=taken, priority="high"))
            stage.bind(name, node, range(taken))
    stage.come(workload)

    stage.judge.look(1)
    (extra,) = stage.come(pod("extra", gpus=0, priority="low"))
    stage.bind(extra, 0, (), now=2)
    stage.judge.look(2 + LIMITS.patience)

    assert any("waits though it fits" in fault for fault in stage.judge.faults) is is_late


def test_a_claim_for_gpus_in_a_row_does_not_fit_beside_gaps(stage: Stage) -> None:
    for node in range(FABRIC.nodes):
        for id in (1, 4, 7):
            (name,) = stage.come(pod(f"gap-{node}-{id}", gpus=1, priority="high"))
            stage.bind(name, node, (id,))
    stage.come(pod("three", gpus=3, kind="claim"))
    stage.come(pod("two", gpus=2, kind="claim"))

    stage.judge.look(1)

    assert stage.judge.waiting.alone == ["two"]


def test_room_for_those_that_come_before_is_not_counted(stage: Stage) -> None:
    for node in range(1, FABRIC.nodes):
        (name,) = stage.come(pod(f"taker-{node}"))
        stage.bind(name, node, range(8))
    stage.come(pod("later", gpus=4, priority="low"))
    stage.come(pod("earlier", gpus=8, priority="high"))

    stage.judge.look(1)

    assert stage.judge.waiting.alone == ["earlier", "later"]
    assert list(stage.judge.waiting.since) == ["earlier"]


def test_room_that_is_kept_for_a_pod_that_preempts_is_not_counted(stage: Stage) -> None:
    for node in range(1, FABRIC.nodes):
        (name,) = stage.come(pod(f"taker-{node}"))
        stage.bind(name, node, range(8))
    (preemptor,) = stage.come(pod("preemptor", priority="high"))
    stage.pods[preemptor]["status"]["nominatedNodeName"] = FABRIC.name(0)
    stage.change("MODIFIED", preemptor)
    stage.come(pod("later", gpus=4))

    stage.judge.look(1)

    assert stage.judge.waiting.alone == ["preemptor"]


# Nodes


def test_pods_of_a_lost_node_are_told_and_their_gang_is_excused(stage: Stage) -> None:
    names = stage.come(gang("unlucky", 2))
    for name, node in zip(names, (0, 1), strict=True):
        stage.bind(name, node, range(8))

    stage.node("DELETED", 0, now=1)
    stage.change("DELETED", names[0], now=2)
    stage.judge.look(3 + LIMITS.phase)

    assert stage.judge.orphans == [names[0]]
    assert stage.judge.settled == ["unlucky"]
    assert stage.judge.faults == []


def test_a_binding_long_after_the_node_has_gone_is_noticed(stage: Stage) -> None:
    (soon,), (late,) = stage.come(pod("soon")), stage.come(pod("late"))
    stage.node("DELETED", 0, now=1)
    stage.node("DELETED", 1, now=1)

    stage.bind(soon, 0, range(8), now=1 + LIMITS.late)
    stage.bind(late, 1, range(8), now=2 + LIMITS.late)

    assert stage.judge.faults == ["late-0 was bound to node-00001 4 s after it had gone"]
    assert stage.judge.orphans == [soon, late]


def test_lost_nodes_have_no_room(stage: Stage) -> None:
    for node in range(FABRIC.nodes):
        stage.node("DELETED", node)
    stage.come(pod("nowhere", gpus=1))

    stage.judge.look(1)

    assert stage.judge.waiting.alone == []
