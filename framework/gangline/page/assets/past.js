// The last hours as curves, and the same as a table.

import { clock, el, exactClock, lasting, percent } from "./dom.js";
import { Listing } from "./lists.js";

const SHORT = 600; // seconds: the times of a shorter past are told with seconds
const WIDE = 1000, TALL = 100; // units of a drawing
const SVG = "http://www.w3.org/2000/svg";
const stranded = (sample) => (sample.gpus > sample.used ? sample.stranded / (sample.gpus - sample.used) : 0);
const share = (value) => percent(value, 1);

// Each curve has a name and the number of a sample; null where a sample has none.
const CHARTS = [
  { title: "GPUs in use", shown: share, least: 1, curves: [["of all GPUs", (each) => (each.gpus ? each.used / each.gpus : 0)]] },
  { title: "Fragmentation", shown: share, least: 1, curves: [["of the free GPUs, on partly used nodes", stranded]] },
  { title: "Pods that wait", shown: String, least: 4, curves: [["in the queue", (each) => each.waiting]] },
  { title: "Longest wait", shown: lasting, least: 1, curves: [["of what waits", (each) => each.longest]] },
  {
    title: "Wait until the binding", shown: lasting, least: 0.01, curves: [
      ["half of the pods", (each) => (each.placed ? each.wait : null)],
      ["nine tenths", (each) => (each.placed ? each.longWait : null)],
    ],
  },
  {
    title: "Time for a decision", shown: lasting, least: 0.001, curves: [
      ["half of them", (each) => (each.decisions ? each.latency : null)],
      ["99 of 100", (each) => (each.decisions ? each.longLatency : null)],
    ],
  },
];

export class Past {
  constructor(model, section) {
    this.model = model;
    this.charts = el("div", { id: "charts" });
    const table = el("section", {});
    this.drawn = "";
    section.replaceChildren(this.charts, table);
    this.listing = new Listing(table, "The same as a table, newest first", [
      ["Time"], ["GPUs in use", "number"], ["Fragmentation", "number"], ["Pods that wait", "number"], ["Longest wait", "number"],
      ["Pods bound", "number"], ["Half waited", "number"], ["Nine tenths waited", "number"],
      ["Decisions", "number"], ["Half took", "number"], ["99 of 100 took", "number"],
    ]);
  }

  show() {
    const samples = [...this.model.history.values()].sort((a, b) => a.at - b.at);
    const key = `${samples[0]?.at} ${samples.at(-1)?.at}`;
    if (key === this.drawn) return;
    this.drawn = key;
    const now = this.model.now();
    const isShort = samples.length && samples.at(-1).at - samples[0].at < SHORT;
    const told = isShort ? exactClock : (at) => clock(at, now);
    this.charts.replaceChildren(...(samples.length
      ? CHARTS.map((chart) => drawn(chart, samples, told))
      : [el("p", {}, "The scheduler takes a sample every 30 seconds; the first one is yet to come.")]));
    this.listing.show(samples.reverse(), (each) => [
      told(each.at), `${each.used} of ${each.gpus}`, share(stranded(each)), each.waiting, lasting(each.longest), each.placed,
      ...(each.placed ? [lasting(each.wait), lasting(each.longWait)] : ["–", "–"]), each.decisions,
      ...(each.decisions ? [lasting(each.latency), lasting(each.longLatency)] : ["–", "–"]),
    ]);
  }
}

function drawn({ title, shown, least, curves }, samples, told) {
  const found = curves.map(([name, of]) => ({ name, points: samples.map((each) => [each.at, of(each)]).filter(([, value]) => value !== null) }));
  const values = found.flatMap((curve) => curve.points.map(([, value]) => value));
  const most = Math.max(least, ...values);
  const said = found.map(({ name, points }) => `${name}: ${points.length ? shown(points.at(-1)[1]) : "none"}`).join("; ");
  const words = values.length ? `, between ${shown(Math.min(...values))} and ${shown(Math.max(...values))}` : "";
  const svg = document.createElementNS(SVG, "svg");
  const label = `${title} from ${told(samples[0].at)} to ${told(samples.at(-1).at)}. Last ${said}${words}`;
  for (const [name, value] of Object.entries({ viewBox: `0 0 ${WIDE} ${TALL}`, preserveAspectRatio: "none", role: "img", "aria-label": label }))
    svg.setAttribute(name, value);
  found.forEach(({ points }, place) => svg.append(path(points, samples, most, place)));
  return el("figure", {},
    el("figcaption", {}, el("strong", {}, title), found.map(({ name, points }, place) =>
      el("span", {}, el("i", { class: `curve-${place}` }), `${name}: ${points.length ? shown(points.at(-1)[1]) : "–"}`))),
    el("div", { class: "plot" }, el("span", { class: "most", "aria-hidden": "true" }, shown(most)), svg),
    el("div", { class: "times", "aria-hidden": "true" }, el("span", {}, told(samples[0].at)), el("span", {}, told(samples.at(-1).at))),
  );
}

function path(points, samples, most, place) {
  const first = samples[0].at, wide = Math.max(1, samples.at(-1).at - first);
  const made = document.createElementNS(SVG, "path");
  const at = ([time, value]) => `${((WIDE * (time - first)) / wide).toFixed(1)} ${(TALL - (TALL * value) / most).toFixed(1)}`;
  made.setAttribute("d", points.length ? `M${points.map(at).join("L")}${points.length === 1 ? "h8" : ""}` : "");
  made.setAttribute("class", `curve-${place}`);
  return made;
}
