// The same as on the map, as tables, a page at a time.

import { ago, count, el, keepingFocus, link, renew } from "./dom.js";
import { conditionsOf, nameOf, placeOf } from "./details.js";
import { byOrder, byWait, inOrder, natural, waitOf } from "./model.js";

const PAGE = 100;

export class Listing {
  constructor(section, caption, columns) {
    this.caption = caption;
    this.columns = columns;
    this.page = 0;
    const heading = ([name, kind]) => el("th", { scope: "col", role: "columnheader", class: kind }, name);
    this.title = el("caption", {});
    this.body = el("tbody", { role: "rowgroup" });
    this.scroll = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
      el("table", { role: "table" }, // roles are said, because on a phone the rows are no table to look at
        this.title, el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, columns.map(heading))), this.body));
    this.earlier = el("button", { type: "button", class: "earlier", onclick: () => this.#turn(-1) }, "Earlier");
    this.later = el("button", { type: "button", class: "later", onclick: () => this.#turn(1) }, "Later");
    this.pager = el("div", { class: "pager" }, this.earlier, this.later);
    this.note = el("p", { class: "note" });
    this.section = section;
    section.replaceChildren(this.note, this.scroll, this.pager);
  }

  // ``note`` says what is left out.
  show(rows, make, note) {
    keepingFocus(this.section, () => this.#renew(rows, make, note),
      (buttons, place) => buttons.filter((each) => this.body.contains(each))[place] ?? this.scroll);
  }

  #renew(rows, make, note) {
    this.note.hidden = !note;
    this.note.textContent = note || "";
    this.rows = rows;
    this.make = make;
    const pages = Math.max(1, Math.ceil(rows.length / PAGE));
    this.page = Math.min(this.page, pages - 1);
    const start = this.page * PAGE;
    const shown = rows.slice(start, start + PAGE);
    const range = rows.length > PAGE ? `${start + 1} to ${start + shown.length} of ${rows.length}` : rows.length || "none";
    this.title.textContent = `${this.caption}: ${range}`;
    const line = (row) => el("tr", { role: "row" }, make(row).map((cell, column) => this.#cell(cell, column)));
    renew(this.body, shown.map(line));
    this.pager.hidden = pages === 1;
    this.earlier.disabled = this.page === 0;
    this.later.disabled = this.page === pages - 1;
  }

  #turn(by) {
    this.page += by;
    this.show(this.rows, this.make, this.note.textContent);
    this.scroll.scrollTop = 0;
    const [wanted, other] = by < 0 ? [this.earlier, this.later] : [this.later, this.earlier];
    (wanted.disabled ? other : wanted).focus();
  }

  #cell(cell, column) {
    const [name, kind] = this.columns[column];
    if (column === 0) return el("th", { scope: "row", role: "rowheader" }, cell);
    return el("td", { role: "cell", class: kind, "data-label": [name].flat()[0] }, cell);
  }
}

export class Lists {
  constructor(model, sections, choose) {
    this.model = model;
    this.choose = choose;
    this.nodes = new Listing(sections.nodes, "Nodes", [
      ["Node"], ["Where", "place"], ["GPUs used", "number"], ["Workloads"], ["State", "state"], ["Taints"],
    ]);
    this.workloads = new Listing(sections.workloads, "Workloads", [
      ["Workload"], ["Kind", "state"], ["Pods placed", "number"], ["Needed", "number"], ["GPUs", "number"], ["Nodes", "number"], ["Waits", "state"],
    ]);
    this.queue = new Listing(sections.queue, "Waiting, longest first", [
      ["Workload"], ["Pods", "number"], ["GPUs", "number"], ["For", "number"], ["Place", "state"], ["Tries", "number"], ["Why", "why"],
    ]);
  }

  show(view, chosen) {
    if (view === "nodes") this.#nodes(chosen);
    else if (view === "workloads") this.#workloads(chosen);
    else if (view === "queue") this.#queue(chosen);
  }

  #workload(number) {
    const name = nameOf(this.model, number);
    return this.model.workloads.has(number) ? link(name, this.choose, { workload: number }) : name;
  }

  #nodes(chosen) {
    const { model } = this;
    const nodes = inOrder([...model.nodes.values()].filter((node) => !chosen || chosen.nodes.has(node.name)));
    this.nodes.show(nodes, (node) => {
      const owners = [...new Set(node.owners)].filter((owner) => owner !== 0);
      return [
        link(node.name, this.choose, { node: node.name }),
        placeOf(node),
        `${node.used} of ${node.owners.length}`,
        owners.map((owner, place) => [place ? ", " : "", this.#workload(owner)]).flat(),
        conditionsOf(node).join(", ") || "ready",
        node.taints.join(", "),
      ];
    });
  }

  #workloads(chosen) {
    const { model } = this;
    const found = [...model.workloads.values()].filter((each) => !chosen?.workloads || chosen.workloads.has(each.number));
    const unseen = chosen?.workloads ? 0 : model.unseen();
    const named = found.map((each) => ({ each, order: natural(nameOf(model, each.number)) })).sort(byOrder);
    this.workloads.show(named, ({ each }) => {
      const { unit, pods } = waitOf(each);
      return [
        this.#workload(each.number),
        each.kind,
        each.pods.size,
        each.minMember || "–",
        model.gpusOf(each),
        model.nodesOf(each).length,
        unit ? `${count(pods, "pod")}, ${ago(unit.since, model.now())}` : "",
      ];
    }, unseen > 0 && `${count(unseen, "GPU is", "GPUs are")} used by workloads that you may not see.`);
  }

  #queue(chosen) {
    const { model } = this;
    const units = [...model.units.values()].filter((unit) => !chosen?.workloads || chosen.workloads.has(unit.workload));
    const listed = units.filter((unit) => model.counts.has(unit.place)); // units in flight are listed, and not counted
    const missing = chosen?.workloads ? 0 : model.totals().waiting - listed.reduce((sum, unit) => sum + unit.pods, 0);
    units.sort(byWait);
    this.queue.show(units, (unit) => [
      this.#workload(unit.workload), unit.pods, unit.gpus, ago(unit.since, model.now()), unit.place, unit.attempts,
      unit.message || "not yet tried",
    ], missing > 0 && `${count(missing, "pod waits", "pods wait")} that ${missing === 1 ? "is" : "are"} not listed: you may not see ${missing === 1 ? "its" : "their"} namespace, or the queue is too long.`);
  }
}
