// Says everything about the node and the workload that are chosen.

import { ago, clock, count, el, link, moment, ranges, renew } from "./dom.js";
import { CORDONED, FREE, NOT_READY, idOf, inOrder, isUnusedClaim, waitOf } from "./model.js";

const MOST = 200; // entries of a list
const EXPLAINED = ["Pod", "Job", "CronJob", "Deployment", "ReplicaSet", "StatefulSet", "JobSet", "LeaderWorkerSet"];

export const ELSEWHERE = "another namespace";

export function nameOf(model, number) {
  const found = model.workloads.get(number);
  return found ? `${found.namespace}/${found.name}` : ELSEWHERE;
}

export function placeOf(node) {
  return node.domains.filter(Boolean).join(" / ") || "–";
}

export function conditionsOf(node) {
  const found = [];
  if (node.flags & CORDONED) found.push("cordoned");
  if (node.flags & NOT_READY) found.push("not ready");
  if (node.sick.size) found.push(`${node.sick.size} sick`);
  if (node.taints.length) found.push("tainted");
  return found;
}

// ``whys`` says why pods are where they are, ``remedies`` what would let others start.
export function showDetails(model, aside, marked, choose, whys, remedies) {
  const node = model.nodes.get(marked.node), workload = model.workloads.get(marked.workload);
  const parts = [];
  if (workload) parts.push(aboutWorkload(model, workload, choose, whys, remedies));
  else if (marked.workload !== null) parts.push(el("p", {}, `${marked.lost}.`));
  if (node) parts.push(aboutNode(model, node, choose));
  else if (marked.node !== null) parts.push(el("p", {}, `The node ${marked.node} is no longer there.`));
  if (!parts.length) parts.push(el("p", {}, "Choose a node or a workload."));
  else parts.unshift(head(marked, choose));
  renew(aside, parts);
}

// What stays in sight, however long the details are.
function head(marked, choose) {
  const kinds = [marked.workload !== null && "Workload", marked.node !== null && "Node"].filter(Boolean);
  return el("div", { class: "head" },
    el("span", { class: "quiet" }, kinds.join(" and ")),
    el("button", { type: "button", id: "close", onclick: () => choose({ node: null, workload: null }) }, "Close"));
}

function list(items, make) {
  const shown = items.slice(0, MOST).map((item) => el("li", {}, make(item)));
  if (items.length > MOST) shown.push(el("li", { class: "quiet" }, `and ${items.length - MOST} more`));
  return el("ul", {}, shown);
}

function terms(...pairs) {
  return el("dl", {}, pairs.filter(([, value]) => value).map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

function aboutNode(model, node, choose) {
  const shares = new Map();
  node.owners.forEach((owner, place) => {
    if (owner !== FREE) shares.set(owner, [...(shares.get(owner) ?? []), idOf(node, place)]);
  });
  const own = (owner, gpus) => [
    model.workloads.has(owner)
      ? link(nameOf(model, owner), choose, { node: node.name, workload: owner })
      : ELSEWHERE,
    ` GPU ${ranges(gpus)}`,
  ];
  const pods = model.podsOn(node.name);
  return el("section", {},
    el("h2", {}, node.name),
    terms(
      ["Where", placeOf(node)],
      ["GPUs", `${node.used} of ${node.owners.length} used`],
      ["Links", islandsOf(node)],
      ["State", conditionsOf(node).join(", ") || "ready"],
      ["Taints", node.taints.join(", ")],
    ),
    shares.size ? [el("h3", {}, "Who has the GPUs"), list([...shares], ([owner, gpus]) => own(owner, gpus))] : [],
    node.sick.size
      ? [el("h3", { class: "sick" }, "Sick GPUs"), list([...node.sick], ([place, reason]) => `GPU ${idOf(node, place)}: ${reason}`)]
      : [],
    pods.length ? [el("h3", {}, "Pods"), list(pods, (pod) => `${pod.key}${gpusOf(pod)}`)] : [],
    node.others ? el("p", { class: "quiet" }, `${count(node.others, "pod")} without GPUs`) : [],
  );
}

function gpusOf(pod) {
  return pod.gpus.length ? ` (GPU ${ranges(pod.gpus)})` : "";
}

function islandsOf(node) {
  const groups = new Map();
  node.islands.forEach((island, place) => groups.set(island, [...(groups.get(island) ?? []), idOf(node, place)]));
  return [...groups.values()].map((gpus) => `NVLink between ${ranges(gpus)}`).join("; ");
}

function aboutWorkload(model, workload, choose, whys, remedies) {
  const pods = [...workload.pods].sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
  const nodes = inOrder(model.nodesOf(workload));
  const { unit, pods: waiting } = waitOf(workload), now = model.now();
  const starts = pods.map((pod) => pod.started).filter(Boolean), ends = pods.map((pod) => pod.ends);
  return el("section", {},
    el("h2", {}, nameOf(model, workload.number)),
    terms(
      ["Kind", workload.kind + (workload.minMember ? `, needs ${count(workload.minMember, "pod")}` : "")],
      isUnusedClaim(workload)
        ? ["Has", `${count(model.gpusOf(workload), "GPU")} on ${count(nodes.length, "node")}; no pod uses the claim there`]
        : ["Placed", `${count(pods.length, "pod")} on ${count(nodes.length, "node")}`],
      ["Where", [...new Set(nodes.map(placeOf))].slice(0, 8).join(", ")],
      ["Runs since", starts.length && moment(Math.min(...starts), now)],
      ["Ends", pods.length > 0 && ends.every(Boolean) && `${moment(Math.max(...ends), now)} at the latest`],
      ["Waits", unit && `${count(waiting, "pod")} for ${ago(unit.since, now)}: ${unit.place}, ${count(unit.attempts, "try", "tries")}`],
      ["Estimated start", unit?.kept && moment(unit.kept.at, now)],
      ["Room kept", unit?.kept && keptFor(unit.kept, now)],
      ["Why", unit?.message],
      ["Rejected by", unit?.rejectedBy.join(", ")],
    ),
    unit ? remedies.show(unit, explained(workload)) : [],
    pods.length ? [el("h3", {}, "Why there"), why(pods[0], whys, now)] : [],
    pods.length
      ? [el("h3", {}, "Members"), list(pods, (pod) => [
          `${pod.name}${gpusOf(pod)} on `,
          link(pod.node, choose, { node: pod.node, workload: workload.number }),
        ])]
      : [],
  );
}

function keptFor({ gpus, nodes, since, until }, now) {
  const names = [...nodes];
  const some = names.length > 3 ? `${names.slice(0, 3).join(", ")}, …` : names.join(", ");
  return `${count(gpus, "GPU")} on ${count(names.length, "node")} (${some}) since ${clock(since, now)}, until ${clock(until, now)} at most`;
}

// The command that says the same, or null for a workload that the command does not know by its name. The dialects of
// gangs, which stand for the kind also where a gang cannot be used, begin with a small letter.
export function explained({ namespace, name, kind, minMember }) {
  const asked = minMember || kind[0] !== kind[0]?.toUpperCase() ? "podgroup" : EXPLAINED.includes(kind) ? kind.toLowerCase() : null;
  return asked && `gangline explain ${asked}/${name} -n ${namespace}`;
}

// The decision that put a pod on its node; of a gang all members were placed by one.
function why(pod, whys, now) {
  const found = whys.of(pod);
  if (found === undefined) return el("p", {}, "The scheduler is asked …");
  if (found === null) return el("p", { class: "quiet" }, "The scheduler does not remember the decision: another replica or an earlier process took it, or it was long ago.");
  const { gang, feasibleNodes, profile, scores = [], time } = found;
  const parts = [`${pod.name} was placed on ${found.node} at ${clock(Date.parse(time) / 1000, now)} by ${profile}`];
  if (gang) parts.push(` in one decision with ${count(gang.members, "member")}`);
  if (gang?.placement) parts.push(`, in ${gang.placement} (score ${gang.score.toFixed(2)})`);
  parts.push(".");
  if (feasibleNodes) parts.push(` ${count(feasibleNodes, "node was", "nodes were")} feasible; this one had the highest score.`);
  const row = ({ plugin, weight, score }) => el("tr", {}, el("th", { scope: "row" }, plugin), el("td", { class: "number" }, score.toFixed(1)), el("td", { class: "number" }, weight));
  return [
    el("p", {}, parts.join("")),
    scores.length ? el("table", {},
      el("caption", {}, "Score of each plugin"),
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Plugin"), el("th", { scope: "col", class: "number" }, "Score"), el("th", { scope: "col", class: "number" }, "Weight"))),
      el("tbody", {}, scores.map(row))) : [],
  ];
}
