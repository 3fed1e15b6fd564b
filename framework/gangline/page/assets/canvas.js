// The map: shows the layer, and lets people move, zoom and choose.

import { Layer } from "./layer.js";
import { Layout, runsOf, CELL } from "./layout.js";

const NEAREST = 8, SETTLED = 120, EDGE = 12, CLICK = 5;
const ZOOM = 1.3;
const TURNED = 0.2; // a change of the ratio of width to height, as a logarithm, after which all is laid out anew

export class Canvas {
  constructor(canvas, model, colours, onChoose) {
    this.canvas = canvas;
    this.model = model;
    this.colours = colours;
    this.onChoose = onChoose;
    this.onDrawn = null; // called when all in sight is drawn
    this.context = canvas.getContext("2d", { alpha: false });
    this.layer = new Layer(colours);
    this.layer.known = (owner) => model.workloads.has(owner);
    this.layout = null;
    this.chosen = null; // by the filter
    this.marked = { node: null, workload: null };
    this.view = { x: 0, y: 0, scale: 1, width: 1, height: 1, ratio: 1, bounds: { left: 0, top: 0, right: 1, bottom: 1 } };
    this.pointers = new Map();
    this.isMoved = false; // by hand; until then everything is in sight
    this.#listen();
    new ResizeObserver(() => this.#resized()).observe(canvas);
  }

  // The model has changed.
  news({ hasNewShape, nodes }, isSightNew) {
    if (hasNewShape || !this.layout) {
      this.#layOut();
      if (!this.isMoved) this.fit();
    } else if (isSightNew) this.layer.clear();
    else this.layer.redraw([...nodes].map((name) => this.layout.byName.get(name)).filter(Boolean), this.chosen);
    this.draw();
  }

  #layOut() {
    this.aspect = Math.max(0.5, this.view.width / Math.max(1, this.view.height));
    this.layout = new Layout(this.model, this.aspect);
    const { width, height } = this.layout;
    this.view.bounds = { left: -EDGE, top: -EDGE, right: width + EDGE, bottom: height + EDGE };
    this.layer.clear();
  }

  filter(chosen) {
    this.chosen = chosen;
    this.layer.clear();
    this.draw();
  }

  restyle() {
    this.layer.clear();
    this.draw();
  }

  // As `restyle`, now and as a whole: nothing is drawn later on paper.
  paintAnew() {
    this.layer.forget();
    this.#paint();
  }

  mark(marked) {
    this.marked = marked;
    this.draw();
  }

  fit() {
    const { view, layout } = this;
    if (!layout?.nodes.length || view.width < 2) return;
    this.isMoved = false;
    view.scale = Math.min((view.width - 2 * EDGE) / layout.width, (view.height - 2 * EDGE) / layout.height, 4);
    view.x = layout.width / 2;
    view.y = layout.height / 2;
    this.draw();
  }

  // What is at the point stays there; without a point, the chosen node if it is in sight.
  zoom(factor, at = this.#middle()) {
    const { view, layout } = this;
    if (!layout) return;
    const before = this.#point(at);
    const least = Math.min(view.width / layout.width, view.height / layout.height, 1) / 2;
    view.scale = Math.min(NEAREST, Math.max(least, view.scale * factor));
    const after = this.#point(at);
    this.#moveBy(before.x - after.x, before.y - after.y);
    this.isZooming = true;
    clearTimeout(this.settling);
    this.settling = setTimeout(() => {
      this.isZooming = false;
      this.draw();
    }, SETTLED);
  }

  #middle() {
    const { view, layout } = this, box = layout?.byName.get(this.marked.node);
    const middle = { x: view.width / 2, y: view.height / 2 };
    if (!box) return middle;
    const x = middle.x + (box.x + box.width / 2 - view.x) * view.scale, y = middle.y + (box.y + box.height / 2 - view.y) * view.scale;
    return x >= 0 && y >= 0 && x <= view.width && y <= view.height ? { x, y } : middle;
  }

  // Brings a node onto the screen.
  reveal(name) {
    const box = this.layout?.byName.get(name), { view } = this;
    if (!box) return;
    const wide = view.width / view.scale / 2 - box.width, tall = view.height / view.scale / 2 - box.height;
    const x = box.x + box.width / 2, y = box.y + box.height / 2;
    view.x = Math.min(x + Math.max(0, wide), Math.max(x - Math.max(0, wide), view.x));
    view.y = Math.min(y + Math.max(0, tall), Math.max(y - Math.max(0, tall), view.y));
    this.draw();
  }

  draw() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = undefined;
      this.#paint();
    });
  }

  #paint() {
    const { view, context, layer } = this;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.fillStyle = this.colours.back;
    context.fillRect(0, 0, this.canvas.width, this.canvas.height);
    if (!this.layout || !view.width) return;
    if (this.isZooming && layer.tiles.size) layer.stretch(context, view);
    else if (layer.show(context, view, this.layout, this.chosen)) this.draw();
    else this.onDrawn?.();
    this.#marks();
  }

  #marks() {
    const { view, context, layout, marked } = this;
    const pixels = view.scale * view.ratio;
    context.setTransform(
      pixels, 0, 0, pixels,
      (view.width / 2 - view.x * view.scale) * view.ratio, (view.height / 2 - view.y * view.scale) * view.ratio,
    );
    context.strokeStyle = this.colours.chosen;
    context.lineWidth = 2.5 / view.scale;
    const node = layout.byName.get(marked.node);
    if (node) context.strokeRect(node.x - 2, node.y - 1, node.width + 4, node.height + 3);
    const workload = this.model.workloads.get(marked.workload);
    for (const { name } of workload ? this.model.nodesOf(workload) : []) {
      const box = layout.byName.get(name);
      if (!box) continue;
      for (const { x, y, width } of runsOf(box, marked.workload)) context.strokeRect(x - 1, y - 1, width + 2, CELL + 2);
    }
  }

  #resized() {
    const { view, canvas } = this;
    const { clientWidth, clientHeight } = canvas;
    if (!clientWidth) return;
    view.ratio = Math.min(2, window.devicePixelRatio || 1);
    Object.assign(view, { width: clientWidth, height: clientHeight });
    canvas.width = Math.round(clientWidth * view.ratio);
    canvas.height = Math.round(clientHeight * view.ratio);
    const isTurned = Math.abs(Math.log(clientWidth / clientHeight / this.aspect)) > TURNED;
    if (!this.isMoved && this.layout && isTurned) this.#layOut();
    if (!this.isMoved) this.fit();
    this.#paint();
  }

  #point({ x, y }) {
    const { view } = this;
    return { x: view.x + (x - view.width / 2) / view.scale, y: view.y + (y - view.height / 2) / view.scale };
  }

  #moveBy(x, y) {
    const { view } = this;
    this.isMoved = true;
    view.x = Math.min(view.bounds.right, Math.max(view.bounds.left, view.x + x));
    view.y = Math.min(view.bounds.bottom, Math.max(view.bounds.top, view.y + y));
    this.draw();
  }

  #listen() {
    const { canvas } = this;
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), { x: event.offsetX, y: event.offsetY });
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
      this.moved = this.pointers.size > 1 ? Infinity : 0;
    });
    canvas.addEventListener("pointermove", (event) => this.#pointed(event));
    for (const kind of ["pointerup", "pointercancel"])
      canvas.addEventListener(kind, (event) => {
        if (!this.pointers.delete(event.pointerId) || kind === "pointercancel" || this.moved > CLICK) return;
        this.#clicked(this.#point({ x: event.offsetX, y: event.offsetY }));
      });
    canvas.addEventListener("keydown", (event) => {
      if (this.#key(event.key)) event.preventDefault();
    });
  }

  #pointed(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) return;
    const now = { x: event.offsetX, y: event.offsetY };
    const other = [...this.pointers].find(([id]) => id !== event.pointerId)?.[1];
    this.pointers.set(event.pointerId, now);
    this.moved += Math.hypot(now.x - before.x, now.y - before.y);
    if (other) {
      const middle = { x: (now.x + other.x) / 2, y: (now.y + other.y) / 2 };
      const far = (point) => Math.max(1, Math.hypot(point.x - other.x, point.y - other.y));
      this.zoom(far(now) / far(before), middle);
      this.#moveBy((before.x - now.x) / 2 / this.view.scale, (before.y - now.y) / 2 / this.view.scale);
    } else this.#moveBy((before.x - now.x) / this.view.scale, (before.y - now.y) / this.view.scale);
  }

  #clicked(point) {
    const found = this.layout?.at(point.x, point.y);
    if (!found) this.onChoose({ node: null, workload: null });
    else this.onChoose({ node: found.box.node.name, workload: this.#workloadAt(found.box, found.gpu) });
  }

  #workloadAt(box, gpu) {
    const owner = gpu >= 0 ? box.node.owners[gpu] : 0;
    return this.model.workloads.has(owner) ? owner : null;
  }

  #key(key) {
    if (!this.layout) return false;
    const steps = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
    if (steps[key]) this.#step(...steps[key]);
    else if (key === "+" || key === "=") this.zoom(ZOOM);
    else if (key === "-") this.zoom(1 / ZOOM);
    else if (key === "0") this.fit();
    else if (key === "Escape") this.onChoose({ node: null, workload: null });
    else if (key === "Enter") this.#nextWorkload();
    else return false;
    return true;
  }

  // The nearest node in a direction; nodes that the filter leaves out are passed over.
  #step(right, down) {
    const here = this.layout.byName.get(this.marked.node);
    let best = null, least = Infinity;
    for (const box of this.layout.nodes) {
      if (box === here || (this.chosen && !this.chosen.nodes.has(box.node.name))) continue;
      const x = here ? box.x - here.x : box.x + 1, y = here ? box.y - here.y : box.y + 1;
      const along = here ? x * right + y * down : x + y, across = here ? Math.abs(x * down) + Math.abs(y * right) : 0;
      if (along > 0 && along + 3 * across < least) [best, least] = [box, along + 3 * across];
    }
    if (!best) return;
    this.onChoose({ node: best.node.name, workload: null });
    this.reveal(best.node.name);
  }

  #nextWorkload() {
    const box = this.layout.byName.get(this.marked.node);
    const known = [...new Set(box?.node.owners ?? [])].filter((owner) => this.model.workloads.has(owner));
    if (!known.length) return;
    const next = known[(known.indexOf(this.marked.workload) + 1) % known.length];
    this.onChoose({ node: box.node.name, workload: next });
  }
}
