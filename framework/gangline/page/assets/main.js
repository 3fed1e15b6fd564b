// Puts the parts of the page together.

import { Canvas } from "./canvas.js";
import { Colours } from "./colours.js";
import { showDetails, nameOf, placeOf } from "./details.js";
import { count, el, keepingFocus } from "./dom.js";
import { Feed } from "./feed.js";
import { Lists } from "./lists.js";
import { Model, chosenBy } from "./model.js";
import { Past } from "./past.js";
import { Remedies } from "./remedies.js";
import { Timeline } from "./timeline.js";
import { Whys } from "./why.js";

const VIEWS = ["map", "nodes", "workloads", "queue", "timeline", "history"];
const GONE = -1; // the number of no workload
const $ = (id) => document.getElementById(id);

const model = new Model(), colours = new Colours();
const form = $("filter");
let view = "map", marked = { node: null, workload: null, name: "" }, filter = readFilter(), chosen = null, knownNamespaces = "";

const canvas = new Canvas($("canvas"), model, colours, choose);
canvas.onDrawn = pictured;
const lists = new Lists(model, Object.fromEntries(VIEWS.map((name) => [name, $(name)])), choose);
const timeline = new Timeline(model, $("timeline"), choose), past = new Past(model, $("history"));
const whys = new Whys(() => details());
const remedies = new Remedies((text) => {
  details();
  $("said").textContent = text;
});
const feed = new Feed(model, news, (text, isLost) => {
  $("connection").textContent = text;
  $("connection").classList.toggle("lost", isLost);
});

function readFilter() {
  const { namespace, state, text } = form.elements;
  return { namespace: namespace.value, state: state.value, text: text.value };
}

function news() {
  const taken = model.taken();
  findAgain();
  const before = chosen;
  chosen = chosenBy(model, filter);
  canvas.chosen = chosen;
  const isNew = chosen !== null || before !== null || model.workloads.size !== news.workloads;
  news.workloads = model.workloads.size;
  canvas.news(taken, isNew);
  summary();
  namespaces();
  refresh();
  if (view !== "map") pictured();
}

// For measurements: everything in sight is there.
function pictured() {
  if (model.position && !performance.getEntriesByName("first-picture").length) performance.mark("first-picture");
}

function refresh() {
  if (view === "timeline") timeline.show(chosen);
  else if (view === "history") past.show();
  else lists.show(view, chosen);
  note();
  details();
}

// Numbers of workloads are others after a restart of the scheduler, and after a workload was created anew.
function findAgain() {
  if (marked.workload === null || isMarked(model.workloads.get(marked.workload))) return;
  const again = [...model.workloads.values()].find(isMarked);
  if (!again && marked.workload !== GONE) $("said").textContent = marked.lost = lost();
  marked.workload = again?.number ?? GONE;
  canvas.mark(marked);
}

// A namespace that is left out is empty, or the viewer has lost the right to see it.
function lost() {
  const namespace = marked.name.split("/")[0];
  const is = `${marked.name} is no longer there`;
  return model.known.has(namespace) ? is : `${is}, or you may no longer see the namespace ${namespace}`;
}

// A Deployment and a Job may have the same name.
function isMarked(workload) {
  return workload !== undefined && workload.kind === marked.kind && nameOf(model, workload.number) === marked.name;
}

// Why there is nothing to see on the map.
function note() {
  const said = !model.position || chosen?.nodes.size ? "" : !model.nodes.size ? "The scheduler sees no nodes." : chosen ? "No node fits the filter." : "";
  const element = $("map").querySelector(".note");
  element.hidden = !said;
  element.textContent = said;
}

function details() {
  const aside = $("details"), { id } = document.activeElement;
  keepingFocus(aside, () => showDetails(model, aside, marked, choose, whys, remedies), () => $(id) ?? aside);
}

function summary() {
  const { nodes, gpus, used, sick, waiting } = model.totals();
  const parts = [`${used} of ${count(gpus, "GPU")} used on ${count(nodes, "node")}`];
  if (sick) parts.push(`${sick} sick`);
  parts.push(`${count(waiting, "pod")} waiting`);
  if (!model.leads) parts.push("this replica stands by: the leader knows why pods wait");
  $("summary").textContent = parts.join(" · ");
}

function namespaces() {
  const found = model.namespaces();
  if (found.join("\n") === knownNamespaces) return;
  knownNamespaces = found.join("\n");
  const select = form.elements.namespace, before = select.value;
  select.replaceChildren(el("option", { value: "" }, "(all)"), ...found.map((name) => el("option", { value: name }, name)));
  select.value = found.includes(before) ? before : "";
  if (select.value !== before) filtered();
}

function choose(wanted) {
  const { workload } = wanted;
  marked = { ...wanted, name: workload === null ? "" : nameOf(model, workload), kind: model.workloads.get(workload)?.kind };
  canvas.mark(marked);
  details();
  $("details").scrollTop = 0;
  const node = model.nodes.get(marked.node);
  const said = [];
  if (node) said.push(`${node.name}, ${placeOf(node)}, ${node.used} of ${node.owners.length} GPUs used`);
  if (marked.workload !== null) said.push(`workload ${nameOf(model, marked.workload)}`);
  $("said").textContent = said.join("; ") || "Nothing is chosen";
  if (node && view === "map") canvas.reveal(node.name);
}

function filtered() {
  filter = readFilter();
  chosen = chosenBy(model, filter);
  canvas.filter(chosen);
  refresh();
  $("said").textContent = chosen ? `${count(chosen.nodes.size, "node")} fit the filter` : "Everything is shown";
}

function show() {
  const asked = location.hash.slice(1);
  if (!asked) view = VIEWS[0];
  else if (VIEWS.includes(asked)) view = asked; // else the link to the content was followed
  for (const name of VIEWS) $(name).hidden = name !== view;
  for (const each of document.querySelectorAll("nav a")) {
    if (each.hash === `#${view}`) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
  form.hidden = view === "history"; // which is that of the whole cluster
  refresh();
  canvas.draw();
}

document.addEventListener("keydown", (event) => {
  const isChosen = marked.node !== null || marked.workload !== null;
  if (event.key !== "Escape" || event.defaultPrevented || !isChosen || form.contains(event.target)) return;
  choose({ node: null, workload: null });
});
form.addEventListener("input", filtered);
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("reset", () => setTimeout(filtered));
$("in").addEventListener("click", () => canvas.zoom(1.3));
$("out").addEventListener("click", () => canvas.zoom(1 / 1.3));
$("fit").addEventListener("click", () => canvas.fit());
window.addEventListener("hashchange", show);
document.addEventListener("visibilitychange", () => feed.see(!document.hidden));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  colours.read();
  canvas.restyle();
});

// On paper everything is light. Browsers tell of it by events, by the media or by both.
function printed(isOnPaper) {
  const { classList } = document.documentElement;
  if (classList.contains("paper") === isOnPaper) return;
  classList.toggle("paper", isOnPaper);
  colours.read();
  canvas.paintAnew();
}
window.addEventListener("beforeprint", () => printed(true));
window.addEventListener("afterprint", () => printed(false));
matchMedia("print").addEventListener("change", ({ matches }) => printed(matches));

show();
feed.see(!document.hidden);
feed.start();
