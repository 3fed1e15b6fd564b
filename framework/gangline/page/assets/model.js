// The picture of the cluster: the tables that the scheduler sends, and what is counted from them.

export const FREE = 0, CORDONED = 1, NOT_READY = 2;

const NONE_SICK = new Map();

export class Model {
  #shared = null; // as `#shares` has counted, or null after a change

  constructor() {
    this.clear();
  }

  clear() {
    this.position = "";
    this.nodes = new Map(); // name -> node
    this.workloads = new Map(); // number -> workload
    this.pods = new Map(); // "namespace/name" -> pod
    this.units = new Map(); // "namespace uid" -> unit
    this.counts = new Map(); // place -> pods
    this.known = new Set(); // namespaces that the viewer may see
    this.levels = [];
    this.history = new Map(); // seconds since 1970 -> sample
    this.skew = 0; // seconds by which the clock of the scheduler is ahead
    this.leads = true;
    this.hasNewShape = true; // nodes have come or gone, or stand elsewhere
    this.changedNodes = new Set();
    this.#shared = null;
  }

  // Takes the whole picture.
  load(message) {
    this.clear();
    this.apply(message);
  }

  // Takes changes; a row that is null is gone.
  apply(message) {
    this.position = message.id;
    for (const [namespace, tables] of Object.entries(message.of)) {
      this.known.add(namespace);
      this.#workloads(namespace, tables.workloads ?? {});
      this.#pods(namespace, tables.pods ?? {});
      this.#units(namespace, tables.units ?? {});
    }
    const { nodes = {}, counts = {}, about = {}, history = {} } = message.all;
    for (const [name, row] of Object.entries(nodes)) this.#node(name, row);
    for (const [place, row] of Object.entries(counts)) this.counts.set(place, row === null ? 0 : row[0]);
    if (about.levels) this.levels = about.levels;
    if (about.leads) this.leads = about.leads[0];
    if (about.now) this.skew = about.now[0] - Date.now() / 1000;
    for (const [key, row] of Object.entries(history)) this.#sample(Number(key), row);
  }

  // The time of the scheduler, in seconds since 1970.
  now() {
    return Date.now() / 1000 + this.skew;
  }

  #sample(at, row) {
    if (row === null) {
      this.history.delete(at);
      return;
    }
    const [, gpus, used, stranded, waiting, longest, placed, wait, longWait, decisions, latency, longLatency] = row;
    this.history.set(at, { at, gpus, used, stranded, waiting, longest, placed, wait, longWait, decisions, latency, longLatency });
  }

  // The nodes that have changed since the last call, and whether all have to be laid out anew.
  taken() {
    const result = { hasNewShape: this.hasNewShape, nodes: this.changedNodes };
    this.hasNewShape = false;
    this.changedNodes = new Set();
    return result;
  }

  #node(name, row) {
    const before = this.nodes.get(name);
    this.#shared = null;
    if (row === null) {
      this.nodes.delete(name);
      this.hasNewShape = true;
      return;
    }
    const [domains, owners, flags, taints, sick, islands, others, ids] = row;
    const node = before ?? { name };
    const moved = !before || before.owners.length !== owners.length || before.domains.join("\n") !== domains.join("\n");
    Object.assign(node, { domains, owners, flags, taints, islands, others, ids, sick: sick.length ? new Map(sick) : NONE_SICK });
    if (moved) node.order = `${this.#orderOf(domains)}\0${natural(name)}`;
    node.used = owners.reduce((sum, owner) => sum + (owner !== FREE), 0);
    this.nodes.set(name, node);
    this.hasNewShape ||= moved;
    this.changedNodes.add(name);
  }

  // The order of domains, which many nodes share.
  #orderOf(domains) {
    const key = domains.join("\0");
    if (this.lastDomains !== key) [this.lastDomains, this.lastOrder] = [key, natural(key)];
    return this.lastOrder;
  }

  #workloads(namespace, rows) {
    for (const [key, row] of Object.entries(rows)) {
      const number = Number(key);
      if (row === null) this.workloads.delete(number);
      else {
        const [name, kind, minMember] = row;
        const pods = this.workloads.get(number)?.pods ?? new Set();
        const units = this.workloads.get(number)?.units ?? new Set();
        this.workloads.set(number, { number, namespace, name, kind, minMember, pods, units });
      }
    }
  }

  #pods(namespace, rows) {
    for (const [name, row] of Object.entries(rows)) {
      const key = `${namespace}/${name}`;
      const before = this.pods.get(key);
      if (before) {
        this.workloads.get(before.workload)?.pods.delete(before);
        this.pods.delete(key);
      }
      if (row !== null) {
        const [node, workload, gpus, started, ends] = row;
        const pod = { key, namespace, name, node, workload, gpus, started, ends };
        this.pods.set(key, pod);
        this.workloads.get(workload)?.pods.add(pod);
      }
    }
  }

  #units(namespace, rows) {
    for (const [uid, row] of Object.entries(rows)) {
      const key = `${namespace} ${uid}`;
      const before = this.units.get(key);
      if (before) this.workloads.get(before.workload)?.units.delete(before);
      this.units.delete(key);
      if (row !== null) {
        const [workload, place, message, pods, gpus, attempts, since, rejectedBy, room] = row;
        const unit = { key, namespace, uid, workload, place, message, pods, gpus, attempts, since, rejectedBy, kept: keptOf(room) };
        this.units.set(key, unit);
        this.workloads.get(workload)?.units.add(unit);
      }
    }
  }

  podsOn(name) {
    return [...this.pods.values()].filter((pod) => pod.node === name);
  }

  // The nodes of a workload: those of its pods, and of a claim those where it has GPUs.
  nodesOf(workload) {
    if (isUnusedClaim(workload)) return [...this.#sharesOf(workload).keys()];
    return [...new Set([...workload.pods].map((pod) => pod.node))].map((name) => this.nodes.get(name)).filter(Boolean);
  }

  // The number of GPUs that a workload has.
  gpusOf(workload) {
    if (!isUnusedClaim(workload)) return [...workload.pods].reduce((sum, pod) => sum + pod.gpus.length, 0);
    return sumOf(this.#sharesOf(workload));
  }

  // The nodes on which a workload has GPUs, each with the number of these GPUs.
  #sharesOf(workload) {
    return this.#shares().get(workload.number) ?? new Map();
  }

  // The same by the number of each workload; counted once for each change of nodes.
  #shares() {
    if (this.#shared) return this.#shared;
    this.#shared = new Map();
    for (const node of this.nodes.values())
      for (const owner of node.owners) {
        if (owner === FREE) continue;
        if (!this.#shared.has(owner)) this.#shared.set(owner, new Map());
        const on = this.#shared.get(owner);
        on.set(node, (on.get(node) ?? 0) + 1);
      }
    return this.#shared;
  }

  // The namespaces that have workloads here, in order.
  namespaces() {
    return [...new Set([...this.workloads.values()].map((each) => each.namespace))].sort();
  }

  // The number of GPUs that are used by workloads without a name here.
  unseen() {
    let gpus = 0;
    for (const [owner, on] of this.#shares()) if (!this.workloads.has(owner)) gpus += sumOf(on);
    return gpus;
  }

  totals() {
    let gpus = 0, used = 0, sick = 0;
    for (const node of this.nodes.values()) {
      gpus += node.owners.length;
      used += node.used;
      sick += node.sick.size;
    }
    let waiting = 0;
    for (const pods of this.counts.values()) waiting += pods;
    return { nodes: this.nodes.size, gpus, used, sick, waiting };
  }
}

function sumOf(shares) {
  return [...shares.values()].reduce((sum, gpus) => sum + gpus, 0);
}

// Whether a workload is a claim with GPUs that no pod uses.
export function isUnusedClaim({ kind, pods }) {
  return kind === "ResourceClaim" && !pods.size;
}

// The room that is kept for a unit, or null.
function keptOf(room) {
  if (!room) return null;
  const [at, since, until, gpus, nodes] = room;
  return { at, since, until, gpus, nodes: new Set(nodes) };
}

// A text by which names are sorted as people do it: node-9 before node-10.
export function natural(name) {
  return name.replace(/\d+/g, (digits) => digits.padStart(16, "0"));
}

export function byOrder(a, b) {
  return a.order < b.order ? -1 : a.order > b.order ? 1 : 0;
}

// The order of what waits: the longest first.
export function byWait(a, b) {
  return a.since - b.since || (a.key < b.key ? -1 : 1);
}

// What waits of a workload: how many pods, and the unit that has waited longest, which is null if nothing waits. Each
// pod of a Deployment is a unit.
export function waitOf({ units }) {
  const [unit = null] = [...units].sort(byWait);
  return { unit, pods: [...units].reduce((sum, each) => sum + each.pods, 0) };
}

export function inOrder(nodes) {
  return [...nodes].sort(byOrder);
}

// The name of a GPU on its node, which is its place unless an agent or a driver numbers the GPUs with gaps.
export function idOf(node, place) {
  return node.ids[place] ?? place;
}

export function statesOf(node) {
  const states = [];
  if (node.owners.length && node.used < node.owners.length) states.push("free");
  if (node.owners.length && node.used === 0) states.push("empty");
  if (node.used > 0 && node.used < node.owners.length) states.push("partial");
  if (node.owners.length && node.used === node.owners.length) states.push("full");
  if (node.sick.size) states.push("sick");
  if (node.flags & CORDONED) states.push("cordoned");
  if (node.flags & NOT_READY) states.push("unready");
  if (node.taints.length) states.push("tainted");
  return states;
}

// What of the model fits a filter: the names of nodes and the numbers of workloads; null for everything.
export function chosenBy(model, { namespace, state, text }) {
  if (!namespace && !state && !text) return null;
  const words = text.trim().toLowerCase();
  const isNamed = (name) => name.toLowerCase().includes(words);
  const workloads = new Set();
  for (const each of model.workloads.values()) {
    const fits = !namespace || each.namespace === namespace;
    if (fits && (!words || isNamed(`${each.namespace}/${each.name}`))) workloads.add(each.number);
  }
  const found = new Set();
  if (words)
    for (const pod of model.pods.values())
      if ((!namespace || pod.namespace === namespace) && isNamed(pod.key)) found.add(pod.workload);
  for (const number of found) workloads.add(number);
  const byWorkload = namespace || words;
  const nodes = new Set();
  for (const node of model.nodes.values()) {
    if (state && !statesOf(node).includes(state)) continue;
    const has = node.owners.some((owner) => workloads.has(owner));
    if (!byWorkload || has || (words && !namespace && isNamed(node.name))) nodes.add(node.name);
  }
  return { nodes, workloads: byWorkload ? workloads : null, isNodeNamed: words && !namespace ? isNamed : () => false };
}
