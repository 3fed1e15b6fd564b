"""The modules of the page without a browser: what they count, and how often they ask the scheduler."""

from __future__ import annotations

import json
import subprocess
from importlib import resources
from typing import Any

import pytest
from playwright._impl._driver import compute_driver_executable

from gangline.explain.targets import GANG, KINDS, Target, parse
from gangline.page.bundling import bundled

ASSETS = resources.files("gangline.page") / "assets"
NODE, _ = compute_driver_executable()
"""The program node, which comes with playwright."""
BROWSER = """
const asked = [], pauses = [], later = [], checks = [];
globalThis.setInterval = (work) => checks.push(work);
globalThis.setTimeout = (work, pause) => (pauses.push(pause), later.push(work), pauses.length);
globalThis.clearTimeout = () => {};
const settled = async () => { for (let turn = 0; turn < 100; turn++) await null; };
"""
"""Time passes when a test says so."""
MODEL = """
const model = new Model();
const told = (all, of = {}) => model.apply({ id: "1", all, of });
const node = (...owners) => [["leaf-0"], owners, 0, [], [], [], 0, []];
const claim = (number) => [number, [`c${number}`, "ResourceClaim", 0]];
const claims = (...numbers) => ({ team: { workloads: Object.fromEntries(numbers.map(claim)) } });
const shares = (number) => {
  const workload = model.workloads.get(number);
  return [model.nodesOf(workload).map(({ name }) => name), model.gpusOf(workload)];
};
"""


def run(module: str, names: str, script: str) -> Any:
    """What a script prints, as JSON; it uses these names of a module."""
    texts = {name: (ASSETS / f"{name}.js").read_text("utf-8") for name in {module, "dom", "model"}}
    texts["script"] = f'import {{ {names} }} from "./{module}.js";\n(async () => {{\n{script}\n}})();\n'
    said = subprocess.run([NODE, "-"], input=bundled(texts), capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    return json.loads(said.stdout)


def test_the_nodes_of_a_claim_that_no_pod_uses_follow_every_change() -> None:
    script = """
    told({ nodes: { a: node(7, 7, 0), b: node(8, 0), c: node(7, 8) } }, claims(7));
    const found = [shares(7), model.unseen()];
    told({ nodes: { a: node(0, 0, 0), d: node(7) } });
    found.push(shares(7), model.unseen());
    told({ nodes: { c: null } });
    found.push(shares(7), model.unseen());
    model.load({ id: "2", all: {}, of: claims(7) });
    found.push(shares(7), model.unseen());
    console.log(JSON.stringify(found));
    """
    found = run("model", "Model", MODEL + script)

    assert found[::2] == [[["a", "c"], 3], [["c", "d"], 2], [["d"], 1], [[], 0]]
    assert found[1::2] == [2, 2, 1, 0]


def test_the_nodes_are_looked_at_once_for_all_claims() -> None:
    script = """
    const numbers = Array.from({ length: 400 }, (_, at) => at + 1);
    told({ nodes: Object.fromEntries(numbers.map((at) => [`n${at}`, node(at, at)])) }, claims(...numbers));
    let looks = 0, gpus = 0;
    const values = model.nodes.values.bind(model.nodes);
    model.nodes.values = () => (looks++, values());
    for (const workload of model.workloads.values()) gpus += model.gpusOf(workload) + model.nodesOf(workload).length;
    console.log(JSON.stringify([gpus, looks]));
    """

    assert run("model", "Model", MODEL + script) == [1200, 1]


def test_every_waiting_pod_of_a_workload_counts_also_after_one_of_them_has_started() -> None:
    script = """
    const unit = (since) => [3, "unschedulable", "no room", 1, 8, 1, since, [], null];
    const units = { x: unit(30), y: unit(10), z: unit(20) };
    told({}, { team: { workloads: { 3: ["web", "Deployment", 0] }, units } });
    const seen = () => { const { unit, pods } = waitOf(model.workloads.get(3)); return [unit?.uid ?? null, pods]; };
    const found = [seen()];
    for (const uid of ["z", "y", "x"]) {
      told({}, { team: { units: { [uid]: null } } });
      found.push(seen());
    }
    console.log(JSON.stringify(found));
    """

    assert run("model", "Model, waitOf", MODEL + script) == [["y", 3], ["y", 2], ["x", 1], [None, 0]]


def test_a_viewer_to_whom_changes_are_refused_asks_less_and_less_often() -> None:
    script = """
    globalThis.fetch = async () => ({ ok: true, status: 200, json: async () => ({}) });
    globalThis.EventSource = class {
      static CLOSED = 2;
      readyState = 2;
      addEventListener(kind, hear) { if (kind === "error") queueMicrotask(hear); }
      close() {}
    };
    const said = [], feed = new Feed({ position: "1", load() {} }, () => {}, (words) => said.push(words));
    feed.start();
    for (let turn = 0; turn < 6; turn++) { await settled(); later.shift()(); }
    await settled();
    console.log(JSON.stringify([pauses.slice(0, 6), said.at(-1)]));
    """
    pauses, said = run("feed", "Feed", BROWSER + script)

    assert pauses == [1000, 2000, 5000, 10000, 10000, 10000]
    assert said == "No news: the stream of changes was refused. Trying again …"


def test_a_stream_that_is_open_again_ends_the_long_pauses() -> None:
    script = """
    globalThis.fetch = async () => ({ ok: true, status: 200, json: async () => ({}) });
    let isOpen = false;
    globalThis.EventSource = class {
      static CLOSED = 2;
      readyState = 2;
      addEventListener(kind, hear) {
        if (kind === "open" && isOpen) queueMicrotask(hear);
        if (kind === "error") queueMicrotask(hear);
      }
      close() {}
    };
    const feed = new Feed({ position: "1", load() {} }, () => {}, () => {});
    feed.start();
    for (let turn = 0; turn < 4; turn++) { await settled(); isOpen = turn === 2; later.shift()(); }
    console.log(JSON.stringify(pauses));
    """

    assert run("feed", "Feed", BROWSER + script) == [1000, 2000, 5000, 1000]


FEED = """
let now = 0;
performance.now = () => now;
const passed = (seconds) => { now += 1000 * seconds; for (const check of checks) check(); };
const streams = [], said = [];
globalThis.EventSource = class {
  static CLOSED = 2;
  constructor(url) { streams.push(this); this.url = url; this.heard = {}; this.readyState = 1; }
  addEventListener(kind, hear) { this.heard[kind] = hear; }
  close() { this.readyState = 2; }
};
const isOpen = () => streams.map(({ readyState }) => readyState === 1);
globalThis.fetch = (url, { signal }) => new Promise((answer, fail) => {
  asked.push(url);
  signal.addEventListener("abort", () => fail(signal.reason));
  if (!globalThis.isStalled) answer({ ok: true, status: 200, json: async () => ({}) });
});
const model = { position: "1", load() {}, apply() {} };
const feed = new Feed(model, () => {}, (words) => said.push(words));
"""
"""A feed whose connections stay open, and say nothing by themselves."""


def test_a_stream_that_falls_silent_is_given_up() -> None:
    script = """
    feed.start();
    await settled();
    for (let turn = 0; turn < 5; turn++) { passed(20); streams[0].heard.open(); } // as each stream ends after 20 s
    const found = [said.at(-1), isOpen()];
    passed(50);
    found.push(said.at(-1), isOpen());
    later.shift()();
    await settled();
    console.log(JSON.stringify([...found, said.at(-1), isOpen(), asked.length]));
    """
    unreachable = "The scheduler is unreachable; trying again …"

    assert run("feed", "Feed", BROWSER + FEED + script) == [
        *("live", [True], unreachable, [False]),
        *("live", [False, True], 2),
    ]


def test_a_picture_that_does_not_come_is_asked_for_again() -> None:
    script = """
    globalThis.isStalled = true;
    feed.start();
    await settled();
    passed(60);
    await settled();
    const found = [said.length, asked.length];
    passed(40);
    await settled();
    globalThis.isStalled = false;
    later.shift()();
    await settled();
    console.log(JSON.stringify([...found, said, asked.length, pauses]));
    """
    unreachable = "The scheduler is unreachable; trying again …"

    assert run("feed", "Feed", BROWSER + FEED + script) == [0, 1, [unreachable, "live"], 2, [1000]]


def test_a_page_that_nobody_can_see_follows_nothing_and_goes_on_from_where_it_was() -> None:
    script = """
    feed.see(false);
    feed.start(); // in a tab behind others
    await settled();
    const found = [streams.length];
    feed.see(true);
    feed.see(true);
    streams[0].heard.open();
    found.push(isOpen());
    feed.see(false);
    passed(100);
    found.push(isOpen(), said.at(-1), pauses.length);
    model.position = "2";
    feed.see(true);
    console.log(JSON.stringify([...found, isOpen(), streams.at(-1).url, asked.length]));
    """

    assert run("feed", "Feed", BROWSER + FEED + script) == [
        *(0, [True], [False], "live", 0),
        *([False, True], "ui/events?after=2", 1),
    ]


def test_a_page_that_nobody_can_see_does_not_ask_again_until_somebody_can() -> None:
    script = """
    feed.start();
    await settled();
    streams[0].readyState = 2;
    streams[0].heard.error(); // the scheduler refuses
    feed.see(false);
    later.shift()();
    await settled();
    const found = [asked.length];
    feed.see(true);
    await settled();
    console.log(JSON.stringify([...found, asked.length, isOpen()]));
    """

    assert run("feed", "Feed", BROWSER + FEED + script) == [1, 2, [False, True]]


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ("[502, 200]", ["nothing yet", "placed", 2]),  # `gangline ui` answers 502 while the scheduler does not
        ("[200, 200]", ["placed", "placed", 1]),
    ],
)
def test_a_decision_is_asked_for_again_after_a_refusal(answers: str, expected: list[Any]) -> None:
    script = f"""
    const left = {answers};
    globalThis.fetch = async (url) => {{
      asked.push(url);
      const status = left.shift();
      return {{ ok: status === 200, status, json: async () => "placed" }};
    }};
    const whys = new Whys(() => {{}}), pod = {{ key: "team/p", namespace: "team", name: "p", node: "n", started: 5 }};
    const found = [];
    for (let turn = 0; turn < 2; turn++) {{
      whys.of(pod);
      await settled();
      found.push(whys.answers.size ? [...whys.answers.values()][0] : "nothing yet");
    }}
    console.log(JSON.stringify([...found, asked.length]));
    """

    assert run("why", "Whys", BROWSER + script) == expected


def test_the_decision_on_a_pod_is_not_told_of_the_next_pod_with_its_name_and_node() -> None:
    script = """
    globalThis.fetch = async () => (asked.push(1), { ok: true, status: 200, json: async () => asked.length });
    const whys = new Whys(() => {}), pod = { key: "team/p", namespace: "team", name: "p", node: "n", started: 5 };
    whys.of(pod);
    await settled();
    const next = { ...pod, started: 9 };
    whys.of(next);
    await settled();
    console.log(JSON.stringify([whys.of(pod), whys.of(next)]));
    """

    assert run("why", "Whys", BROWSER + script) == [1, 2]


@pytest.mark.parametrize("kind", [*sorted({*KINDS.values()} - {GANG}), "job-set", "kai"])
def test_the_command_for_a_workload_is_one_that_can_be_typed(kind: str) -> None:
    workload = {"namespace": "team", "name": "train", "kind": kind, "minMember": 0}

    command = run("details", "explained", f"console.log(JSON.stringify(explained({json.dumps(workload)})));")

    named, option, namespace = command.removeprefix("gangline explain ").split(" ")
    assert (option, parse(named, namespace)) == ("-n", Target(kind if kind[0].isupper() else GANG, "team", "train"))


def test_no_command_is_named_for_a_workload_of_a_kind_that_the_command_does_not_know() -> None:
    workload = {"namespace": "team", "name": "train", "kind": "RayCluster", "minMember": 0}

    assert run("details", "explained", f"console.log(JSON.stringify(explained({json.dumps(workload)})));") is None


def test_a_time_of_a_few_hours_or_days_is_not_said_to_be_an_hour_or_a_day_shorter() -> None:
    script = """
    const times = [0, 59.9, 119, 3599, 3600, 7140, 35999, 36000, 86399, 90000, 172799, 864000, 950000];
    console.log(JSON.stringify(times.map((time) => ago(0, time))));
    """

    assert run("dom", "ago", script) == [
        *("0 s", "59 s", "1 min", "59 min"),
        *("1 h", "1 h 59 min", "9 h 59 min", "10 h", "23 h", "1 d 1 h", "1 d 23 h", "10 d", "10 d"),
    ]
