// The time line: what runs and until when, for whom room is kept, who is backfilled, and what waits.

import { clock, el, link, moment } from "./dom.js";
import { nameOf } from "./details.js";
import { Listing } from "./lists.js";

const LEAST = 600, MOST = 86400; // seconds that are shown before and after now
const TICKS = 5, LABEL = 0.88; // at most so many, the last one where its label has room
const STEPS = [300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200]; // seconds between two ticks
export const KEPT = "room is kept", WAITS = "waits", BACKFILLED = "backfilled", RUNS = "runs";
const LEGEND = [
  ["running", "runs"], ["running expected", "until its latest end"], ["running open", "no end is known"],
  ["backfilled", "backfilled: in room that is kept, until the start"], ["waiting", "waits"], ["kept", "room is kept, from the estimated start on"],
];
const ORDER = [KEPT, WAITS, BACKFILLED, RUNS];

// One entry for each unit of the queue and each workload that has GPUs.
export function entriesOf(model, chosen) {
  const fits = (workload) => !chosen?.workloads || chosen.workloads.has(workload);
  const units = [...model.units.values()];
  const kept = units.filter((unit) => unit.kept);
  const entries = units.filter((unit) => fits(unit.workload)).map((unit) => ({
    workload: unit.workload, state: unit.kept ? KEPT : WAITS, gpus: unit.kept?.gpus || unit.gpus,
    since: unit.since, starts: unit.kept?.at ?? 0, ends: 0, unit,
  }));
  for (const workload of model.workloads.values()) {
    const pods = [...workload.pods].filter((pod) => pod.gpus.length);
    if (!pods.length || !fits(workload.number)) continue;
    const starts = pods.map((pod) => pod.started).filter(Boolean);
    const ends = pods.map((pod) => pod.ends);
    const isBackfilled = kept.some((unit) => unit.workload !== workload.number &&
      pods.some((pod) => pod.started >= unit.kept.since && unit.kept.nodes.has(pod.node)));
    entries.push({
      workload: workload.number, state: isBackfilled ? BACKFILLED : RUNS,
      gpus: pods.reduce((sum, pod) => sum + pod.gpus.length, 0),
      since: starts.length ? Math.min(...starts) : 0, starts: 0, ends: ends.every(Boolean) ? Math.max(...ends) : 0,
    });
  }
  const end = (entry) => entry.starts || entry.ends || Infinity;
  return entries.sort((a, b) =>
    ORDER.indexOf(a.state) - ORDER.indexOf(b.state) || end(a) - end(b) || a.since - b.since || a.workload - b.workload);
}

// The times that are shown: from the first start to the last end, within a day of now.
export function spanOf(entries, now) {
  const past = entries.map((each) => each.since).filter(Boolean);
  const future = entries.map((each) => each.starts || each.ends).filter(Boolean);
  const reach = (times) => Math.min(MOST, Math.max(LEAST, ...times));
  return { from: now - reach(past.map((time) => now - time)), until: now + reach(future.map((time) => 1.25 * (time - now))) };
}

export class Timeline {
  constructor(model, section, choose) {
    this.model = model;
    this.choose = choose;
    this.axis = el("div", { class: "axis", "aria-hidden": "true" });
    const table = el("div", {});
    section.replaceChildren(el("ul", { class: "legend", "aria-label": "Legend" }, LEGEND.map(([kind, words]) =>
      el("li", {}, el("i", { class: `swatch bar ${kind}` }), words))), table);
    this.listing = new Listing(table, "Workloads with GPUs, and what waits", [
      ["Workload"], ["GPUs", "number"], ["State", "state"], ["Since", "state"], ["Starts or ends", "when"], [["Time", this.axis], "bars"],
    ]);
  }

  show(chosen) {
    const { model } = this, now = model.now();
    const entries = entriesOf(model, chosen), span = spanOf(entries, now);
    this.#axis(span, now);
    this.listing.show(entries, (entry) => [
      this.#workload(entry.workload),
      entry.gpus,
      entry.state,
      entry.since ? clock(entry.since, now) : "",
      entry.starts ? `starts ${moment(entry.starts, now)}` : entry.ends ? `ends ${moment(entry.ends, now)} at the latest` : "",
      bar(entry, span, now),
    ]);
  }

  #workload(number) {
    const name = nameOf(this.model, number);
    return this.model.workloads.has(number) ? link(name, this.choose, { workload: number }) : name;
  }

  #axis(span, now) {
    const ticks = [], long = span.until - span.from;
    const step = STEPS.find((each) => long / each <= TICKS) ?? STEPS.at(-1);
    const zone = new Date(1000 * span.from).getTimezoneOffset() * 60;
    for (let time = Math.ceil((span.from - zone) / step) * step + zone; time < span.from + LABEL * long; time += step)
      ticks.push(placed(el("span", {}, clock(time, time)), span, time)); // without the day, which has no room
    this.axis.replaceChildren(...ticks, placed(el("i", { class: "now" }), span, now));
  }
}

function bar(entry, span, now) {
  const parts = [];
  if (entry.unit) parts.push(placed(el("i", { class: "bar waiting" }), span, entry.since, now));
  if (entry.state === KEPT) parts.push(placed(el("i", { class: "bar kept" }), span, Math.max(entry.starts, now), span.until));
  if (!entry.unit) {
    const kind = entry.state === BACKFILLED ? "backfilled" : "running";
    parts.push(placed(el("i", { class: `bar ${kind}` }), span, entry.since || now, now));
    const until = entry.ends || span.until;
    if (until > now) parts.push(placed(el("i", { class: `bar ${kind} ${entry.ends ? "expected" : "open"}` }), span, now, until));
  }
  return el("div", { class: "track", "aria-hidden": "true" }, parts, placed(el("i", { class: "now" }), span, now));
}

// Puts an element where its time is. Styles are set one by one: the page allows no others.
function placed(element, { from, until }, start, end) {
  const part = (time) => 100 * Math.min(1, Math.max(0, (time - from) / (until - from)));
  element.style.left = `${part(start)}%`;
  if (end !== undefined) element.style.width = `${Math.max(0.4, part(end) - part(start))}%`;
  return element;
}
