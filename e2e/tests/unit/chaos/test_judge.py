"""Each rule of the judge, by a short history that keeps the rule and one that breaks it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gangline_chaos.judge.history import Change, Entry, HistoryFile, Mark, read
from gangline_chaos.judge.judging import ABANDONED_S, IN_PART_S, SETTLED_S, Judge, judge
from gangline_chaos.judge.objects import ALLOCATED, GANG, HOLDERS, LEASE_NODE, LEAST, SHARE, WITHIN, quantity

LEAF = "example.com/leaf"


class Told:
    """A history that is written line by line, a second apart."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.at = 0.0
        for name in ("a", "b", "c"):
            self.node(name)

    def put(self, key: str, found: dict[str, Any] | None) -> Told:
        self.at += 1.0
        self.entries.append(Change(self.at, len(self.entries) + 2, f"/registry/{key}", found))
        return self

    def mark(self, kind: str, name: str, text: str = "") -> Told:
        self.entries.append(Mark(self.at, kind, name, text))
        return self

    def wait(self, seconds: float) -> Told:
        self.at += seconds
        return self.put("configmaps/x", {})

    def node(self, name: str, gpus: int = 4, ready: str = "True", **spec: Any) -> Told:
        has = {"cpu": "8", "memory": "16Gi", "pods": "5", "nvidia.com/gpu": str(gpus)}
        metadata = {"name": name, "labels": {LEAF: "left" if name in "ab" else "right"}}
        status = {"allocatable": has, "conditions": [{"type": "Ready", "status": ready}]}
        self.put(f"minions/{name}", {"metadata": metadata, "spec": spec, "status": status})
        return self.put(f"gpu.scheduling/gpunodestatuses/{name}", {"status": {"devices": [{"id": 0}]}})

    def pod(self, name: str, node: str = "", ids: str | None = None, gpus: int = 1, **more: Any) -> Told:
        notes = {ALLOCATED: ids} if ids is not None else {}
        notes |= {key: str(value) for key, value in more.get("notes", {}).items()}
        metadata = {"name": name, "uid": more.get("uid", f"uid-{name}"), "annotations": notes}
        metadata |= {"labels": {GANG: more["gang"]} if "gang" in more else {}}
        metadata |= {"deletionTimestamp": "now"} if more.get("leaving") else {}
        requests = {"cpu": more.get("cpu", "1"), "memory": "1Gi"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
        spec = {"containers": [{"resources": {"requests": requests}}], **({"nodeName": node} if node else {})}
        status = {"phase": more.get("phase", "Pending")}
        return self.put(f"pods/x/{name}", {"metadata": metadata, "spec": spec, "status": status})

    def gone(self, name: str) -> Told:
        return self.put(f"pods/x/{name}", None)

    def lock(self, node: str, id: int, *uids: str, listed: str | None = None) -> Told:
        holders = json.dumps({uid: {"ids": [id]} for uid in uids}) if listed is None else listed
        metadata = {"name": f"gpu-{node}-{id}", "annotations": {HOLDERS: holders, LEASE_NODE: node}}
        found = {"metadata": metadata, "spec": {"holderIdentity": uids[0] if uids else None}}
        return self.put(f"leases/x/gpu-{node}-{id}", found if uids else None)

    def claim(self, name: str, device: str, *uids: str) -> Told:
        results = [{"driver": "d", "pool": "a", "device": device}]
        allocation = {"devices": {"results": results}} if device else None
        users = [{"uid": uid} for uid in uids]
        return self.put(f"resourceclaims/x/{name}", {"status": {"allocation": allocation, "reservedFor": users}})

    def member(self, number: int, node: str = "", least: int = 2, within: str = LEAF) -> Told:
        ids = str(number) if node else None
        return self.pod(f"m{number}", node, ids, gang="g", notes={LEAST: least, WITHIN: within})


def share(told: Told, name: str, milli: int) -> Told:
    return told.pod(name, "a", "0", gpus=0, notes={SHARE: milli})


def share_that_waits(told: Told) -> Told:
    return told.pod("p", gpus=0, notes={SHARE: 500})


def rules_broken(told: Told) -> list[str]:
    return sorted({violation.rule for violation in judge(told.entries).violations})


KEPT: dict[str, Callable[[Told], Told]] = {
    "one device after another pod": lambda h: h.pod("p", "a", "0").gone("p").pod("q", "a", "0"),
    "one device after a pod that has ended": lambda h: (
        h.pod("p", "a", "0").pod("p", "a", "0", phase="Succeeded").pod("q", "a", "0")
    ),
    "the same ids on two nodes": lambda h: h.pod("p", "a", "0").pod("q", "b", "0"),
    "shares of a whole device": lambda h: share(share(h, "p", 500), "q", 500),
    "a gang in a leaf": lambda h: h.member(0).member(1).member(0, "a").member(1, "b"),
    "a gang in two leaves one after the other": lambda h: (
        h.member(0, "a").member(1, "b").gone("m0").gone("m1").member(0, "c").member(1, "c")
    ),
    "a gang that moves from a node that is not ready": lambda h: (
        h.member(0, "a").node("a", ready="Unknown").member(1, "c")
    ),
    "a gang that moves from a node that is gone": lambda h: h.member(0, "a").put("minions/a", None).member(1, "c"),
    "a gang in part for a moment": lambda h: h.member(0).member(1).member(0, "a").wait(IN_PART_S - 5).member(1, "b"),
    "a gang in part without room": lambda h: (
        h.pod("p", "b", "0,1,2,3", 4).pod("q", "a", "1,2,3", 3).member(0, "a").member(1).wait(2 * IN_PART_S)
    ),
    "a fault within the time for gangs": lambda h: (
        h.member(0).member(1).member(0, "a").wait(IN_PART_S - 5).mark("begin", "f").wait(99).mark("end", "f").wait(20)
    ),
    "a device first with one claim, then with another": lambda h: (
        h.pod("p", "a", gpus=0).claim("c", "x", "uid-p").claim("c", "").claim("d", "x", "uid-p")
    ),
    "claims of pods that are not bound": lambda h: (
        h.pod("p", gpus=0).pod("q", gpus=0).claim("c", "x", "uid-p").claim("d", "x", "uid-q")
    ),
    "locks as annotations say": lambda h: h.lock("a", 0, "uid-p").pod("p", "a", "0").wait(2 * SETTLED_S),
    "locks that come late": lambda h: (
        h.pod("p", "a", "0").wait(SETTLED_S - 5).lock("a", 0, "uid-p").wait(2 * SETTLED_S)
    ),
    "pods without room wait": lambda h: h.pod("p", gpus=5).mark("quiet", ""),
    "a fault and a recovery": lambda h: (
        h.mark("begin", "f").pod("p").mark("end", "f").lock("a", 0, "uid-p").pod("p", "a", "0").mark("quiet", "")
    ),
    "a lock of a moment at the end": lambda h: h.lock("a", 0, "uid-p").mark("quiet", ""),
    "a lock whose list of holders is damaged": lambda h: (
        h.lock("a", 0, "uid-p", listed="{").pod("p", "a", "0").wait(2 * SETTLED_S)
    ),
    "a lock of a waiting pod whose list of holders is damaged": lambda h: (
        h.pod("p", gpus=9).lock("a", 0, "uid-p", listed="{").wait(2 * SETTLED_S).mark("quiet", "")
    ),
    "pods wait while no node is open": lambda h: (
        [h.node(name, unschedulable=True) for name in "ab"][-1]
        .node("c", taints=[{"key": "k", "effect": "NoSchedule"}])
        .pod("p")
        .mark("quiet", "")
    ),
    "a share waits for a report": lambda h: share_that_waits(
        [h.put(f"gpu.scheduling/gpunodestatuses/{name}", None) for name in "abc"][-1]
    ).mark("quiet", ""),
    "a gang in part that lacks a pod": lambda h: (
        h.member(0, least=3).member(1, least=3).member(0, "a", least=3).wait(2 * IN_PART_S)
    ),
    "a gang whose last member has failed": lambda h: (
        h.pod("m0", "a", "0", gang="g", notes={LEAST: 2}, phase="Failed")
        .pod("m1", gang="g", notes={LEAST: 2})
        .lock("a", 0)
        .mark("quiet", "")
    ),
    "a gang that goes elsewhere when its members have ended": lambda h: (
        h.member(0, "a").pod("m0", "a", "0", gang="g", notes={LEAST: 2, WITHIN: LEAF}, phase="Succeeded").member(1, "c")
    ),
    "a member that has no room beside the others, but where one has ended": lambda h: (
        h.pod("m0", "c", "0", gang="g", notes={LEAST: 3, WITHIN: LEAF}, phase="Succeeded")
        .pod("p", "a", "0,1,2", 3)
        .pod("q", "b", "0,1,2", 3)
        .pod("m1", "a", "3", gang="g", notes={LEAST: 3, WITHIN: LEAF})
        .pod("m2", "b", "3", gang="g", notes={LEAST: 3, WITHIN: LEAF})
        .pod("m3", gang="g", notes={LEAST: 3, WITHIN: LEAF})
        .mark("quiet", "")
    ),
    "a pod of the same name": lambda h: h.pod("p", "a", "0").pod("p", "b", "1", uid="another"),
}
BROKEN: dict[str, tuple[str, Callable[[Told], Told]]] = {
    "a device with two pods": ("device given twice", lambda h: h.pod("p", "a", "0,1", 2).pod("q", "a", "1")),
    "a device with a pod that is leaving": (
        "device given twice",
        lambda h: h.pod("p", "a", "0", leaving=True).pod("q", "a", "0"),
    ),
    "too many shares": ("device given twice", lambda h: share(share(h, "p", 600), "q", 500)),
    "a share beside a whole": ("device given twice", lambda h: share(h.pod("p", "a", "0"), "q", 100)),
    "too much cpu": ("node over capacity", lambda h: h.pod("p", "a", "0", cpu="8").pod("q", "a", "1", cpu="100m")),
    "too many pods": (
        "node over capacity",
        lambda h: [h.pod(f"p{i}", "a", gpus=0, cpu="1m") for i in range(6)][-1],
    ),
    "a node that shrinks": ("node over capacity", lambda h: h.pod("p", "a", "0,1", 2).node("a", gpus=1)),
    "a pod on two nodes": ("bound twice", lambda h: h.pod("p", "a", "0").pod("p", "b", "0")),
    "other devices": ("devices changed", lambda h: h.pod("p", "a", "0").pod("p", "a", "1")),
    "devices that are taken away": ("devices changed", lambda h: h.pod("p", "a", "0").pod("p", "a")),
    "too few devices": ("wrong number of devices", lambda h: h.pod("p", "a", "0", 2)),
    "a gang in two leaves": ("gang apart", lambda h: h.member(0, "a").member(1, "c")),
    "a gang in two leaves after its node has come back": (
        "gang apart",
        lambda h: h.member(0, "a").node("a", ready="False").member(1, "c").node("a").member(1, "c"),
    ),
    "a gang in no leaf": (
        "gang apart",
        lambda h: h.member(0, "a", within="no/label").member(1, "a", within="no/label"),
    ),
    "a gang in part": ("gang in part", lambda h: h.member(0).member(1).member(0, "a").wait(IN_PART_S + 5)),
    "a gang in part after a fault": (
        "gang in part",
        lambda h: h.member(0).member(1, "a").mark("begin", "f").wait(99).mark("end", "f").wait(IN_PART_S + 5),
    ),
    "a claimed device with two claims": (
        "device claimed twice",
        lambda h: h.pod("p", "a", gpus=0).pod("q", "a", gpus=0).claim("c", "x", "uid-p").claim("d", "x", "uid-q"),
    ),
    "claims of pods of which the second is bound later": (
        "device claimed twice",
        lambda h: (
            h.pod("p", "a", gpus=0).claim("c", "x", "uid-p").claim("d", "x", "uid-q").pod("q").pod("q", "a", gpus=0)
        ),
    ),
    "a device without its lock": ("locks differ", lambda h: h.pod("p", "a", "0").wait(SETTLED_S + 5)),
    "a lock for a pod that is gone": ("locks differ", lambda h: h.lock("a", 0, "uid-p").wait(SETTLED_S + 5)),
    "a lock of another pod": (
        "locks differ",
        lambda h: h.pod("p", "a", "0").lock("a", 0, "uid-p", "uid-q").wait(SETTLED_S + 5),
    ),
    "a lock of a waiting pod that nobody frees": (
        "lock of nobody",
        lambda h: h.pod("p", gpus=9).lock("a", 0, "uid-p", listed="{").wait(ABANDONED_S + 5),
    ),
    "no devices": ("devices missing", lambda h: h.pod("p", "a").wait(SETTLED_S + 5)),
    "a pod that waits for long": ("waits for long", lambda h: h.pod("p").wait(SETTLED_S + 5)),
    "a lock at the end": ("locks differ at the end", lambda h: h.lock("a", 0, "uid-p").wait(15).mark("quiet", "")),
    "no devices at the end": ("devices missing at the end", lambda h: h.pod("p", "a").wait(15).mark("quiet", "")),
    "a pod that waits at the end": ("left waiting", lambda h: h.pod("p").mark("quiet", "")),
    "a gang that waits at the end": ("left waiting", lambda h: h.member(0).member(1).mark("quiet", "")),
    "a process that ends": ("ended by itself", lambda h: h.mark("ended", "scheduler-0", "exit 1")),
    "pods that never recover": (
        "not recovered",
        lambda h: h.mark("begin", "f").pod("p", gpus=5).mark("end", "f").mark("quiet", ""),
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_a_history_that_keeps_the_rules_has_no_violations(name: str) -> None:
    assert [str(violation) for violation in judge(KEPT[name](Told()).entries).violations] == []


@pytest.mark.parametrize("name", BROKEN)
def test_a_history_that_breaks_a_rule_is_found(name: str) -> None:
    rule, tell = BROKEN[name]

    assert rules_broken(tell(Told())) == [rule]


def test_each_rule_that_can_be_reported_has_a_history_that_breaks_it() -> None:
    source = "".join(path.read_text() for path in Path(judge.__code__.co_filename).parent.glob("*.py"))

    assert all(f'"{rule}' in source for rule, _ in BROKEN.values())
    assert len({rule for rule, _ in BROKEN.values()}) == 17


def test_without_an_election_only_what_leases_of_devices_prevent_is_a_violation() -> None:
    told = Told().member(0, "a").member(1, "c").pod("p", "b", "0").pod("q", "b", "0").mark("ended", "scheduler-0", "")

    found = judge(told.entries, is_elected=False)

    assert {violation.rule for violation in judge(told.entries).violations} > {"gang apart"}
    assert {violation.rule for violation in found.violations} == {"device given twice", "ended by itself"}


def test_what_stays_broken_is_told_once_and_again_when_it_breaks_anew() -> None:
    told = Told().pod("p", "a", "0").pod("q", "a", "0").pod("r", "b", "0").node("a").gone("q").pod("q", "a", "0")

    found = judge(told.entries)

    assert [violation.rule for violation in found.violations] == ["device given twice"] * 2
    assert "x/p, x/q" in str(found.violations[0])


def test_pods_that_never_have_room_do_not_keep_a_crowded_cluster_from_recovering() -> None:
    found = Judge(is_crowded=True)
    for entry in Told().mark("begin", "f").pod("p", gpus=5).mark("end", "f").mark("quiet", "").entries:
        found.fold(entry)

    assert not found.violations


def test_a_recovery_lasts_until_the_last_pod_that_waited_has_a_node_or_is_gone() -> None:
    told = Told().pod("p").pod("q").pod("r").mark("begin", "kill").mark("end", "kill")
    told.pod("late").pod("p", "a", "0").gone("q").wait(3).pod("r", "b", "0")

    found = judge(told.entries)

    assert [(each.fault, each.seconds) for each in found.recoveries] == [("kill", 8.0)]
    assert (found.faults, found.bound) == (1, 2)


def test_a_fault_after_which_no_pod_waits_is_recovered_at_once() -> None:
    found = judge(Told().mark("begin", "kill").mark("end", "kill").entries)

    assert [each.seconds for each in found.recoveries] == [0.0]


def test_revisions_are_counted_once_however_many_keys_they_change() -> None:
    found = Judge()
    for key in ("pods/x/a", "pods/x/b"):
        found.fold(Change(1.0, 7, f"/registry/{key}", None))

    assert found.revisions == 1


def test_a_history_is_read_as_it_was_written(tmp_path: Path) -> None:
    told = Told().pod("p", "a", "0").gone("p").mark("begin", "kill", "scheduler-0")
    with HistoryFile(tmp_path / "history.gz") as file:
        for entry in told.entries:
            file.add(entry)

    assert list(read(tmp_path / "history.gz")) == told.entries


@pytest.mark.parametrize(
    ("text", "number"), [("1500m", "1.5"), ("2", "2"), ("1Ki", "1024"), ("3Gi", str(3 << 30)), ("2M", "2000000")]
)
def test_quantities_are_read(text: str, number: str) -> None:
    assert quantity(text) == quantity(number)
