// The drawing on tiles that are not shown: each is drawn once, and copied while the map is moved.

import { CELL, GAP, PER_LINE, cellOf } from "./layout.js";
import { CORDONED, FREE, NOT_READY } from "./model.js";

const TILE = 512; // pixels
const MOST_TILES = 96;
const MOST_WORK = 8; // milliseconds of a frame for drawing tiles, so that the map moves on meanwhile
const FADED = 0.14;
const TINY = 3, OUTLINED = 6; // pixels of a GPU: below, gaps are left out; from there on, free ones have a line around
const LEGIBLE = 0.9; // scale from which names of nodes are written

export class Layer {
  constructor(colours) {
    this.colours = colours;
    this.most = MOST_TILES;
    this.known = () => false; // whether a number is that of a workload with a name
    this.clear();
  }

  // Everything has to be drawn again. What there was stays in sight until then.
  clear() {
    if (this.tiles?.size) this.before = { tiles: this.tiles, pixels: this.pixels };
    this.tiles = new Map(); // "column,line" -> canvas, the one used last at the end
  }

  // As `clear`, and what there was is not shown any more.
  forget() {
    this.clear();
    this.before = null;
  }

  // Shows all tiles in sight; draws those that are missing, and then those around them. Says whether some are left.
  show(target, view, layout, chosen) {
    const pixels = view.scale * view.ratio;
    if (this.pixels !== pixels) this.clear();
    this.pixels = pixels;
    const began = performance.now(), isFirst = !this.tiles.size && !this.before; // until then nothing can be moved
    const hasTime = () => isFirst || performance.now() - began < MOST_WORK;
    const left = Math.round(view.x * pixels - (view.width * view.ratio) / 2);
    const top = Math.round(view.y * pixels - (view.height * view.ratio) / 2);
    const sight = { left, top, right: left + view.width * view.ratio, bottom: top + view.height * view.ratio };
    if (this.before) this.stretch(target, view, this.before);
    let isComplete = true;
    for (const [column, line] of places(sight, 0, view.bounds, pixels)) {
      if (!this.tiles.has(`${column},${line}`) && !hasTime()) isComplete = false;
      else target.drawImage(this.#tile(column, line, layout, chosen), column * TILE - left, line * TILE - top);
    }
    if (!isComplete) return true;
    this.before = null;
    const around = [...places(sight, 1, view.bounds, pixels)];
    this.most = Math.max(MOST_TILES, around.length);
    for (const [column, line] of around) {
      if (this.tiles.has(`${column},${line}`)) continue;
      if (!hasTime()) return true;
      this.#tile(column, line, layout, chosen);
    }
    return false;
  }

  // Shows tiles larger or smaller than they were drawn, for the time of a zoom.
  stretch(target, view, { tiles, pixels: drawn } = this) {
    const pixels = view.scale * view.ratio, zoom = pixels / drawn;
    const left = view.x * pixels - (view.width * view.ratio) / 2, top = view.y * pixels - (view.height * view.ratio) / 2;
    for (const [key, tile] of tiles) {
      const [column, line] = key.split(",").map(Number);
      target.drawImage(tile, column * TILE * zoom - left, line * TILE * zoom - top, TILE * zoom, TILE * zoom);
    }
  }

  // Draws some nodes again, after they have changed.
  redraw(boxes, chosen) {
    for (const [key, tile] of this.tiles) {
      const [column, line] = key.split(",").map(Number);
      const area = this.#area(column, line);
      for (const box of boxes) {
        if (!meets(area, box)) continue;
        this.context = tile.getContext("2d", { alpha: false });
        this.context.fillStyle = this.colours.back;
        this.context.fillRect(box.x - 1.5, box.y, box.width + 3, box.height + 1.5);
        this.#node(box, chosen);
      }
    }
  }

  #area(column, line) {
    const size = TILE / this.pixels;
    return { left: column * size, top: line * size, right: (column + 1) * size, bottom: (line + 1) * size };
  }

  #tile(column, line, layout, chosen) {
    const key = `${column},${line}`;
    let tile = this.tiles.get(key);
    if (tile) this.tiles.delete(key);
    else {
      tile = this.#blank();
      this.#draw(tile, column, line, layout, chosen);
    }
    this.tiles.set(key, tile);
    return tile;
  }

  #blank() {
    if (this.tiles.size >= this.most) {
      const [key, oldest] = this.tiles.entries().next().value;
      this.tiles.delete(key);
      return oldest;
    }
    const tile = document.createElement("canvas");
    tile.width = tile.height = TILE;
    return tile;
  }

  #draw(tile, column, line, layout, chosen) {
    const context = (this.context = tile.getContext("2d", { alpha: false }));
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.globalAlpha = 1;
    context.fillStyle = this.colours.back;
    context.fillRect(0, 0, TILE, TILE);
    context.setTransform(this.pixels, 0, 0, this.pixels, -column * TILE, -line * TILE);
    const area = this.#area(column, line);
    for (const spine of layout.boxes) if (spine.level === 0 && meets(area, spine)) this.#spine(spine, area, chosen);
  }

  #spine(spine, area, chosen) {
    this.#frame(spine);
    for (const leaf of spine.parts) {
      if (!meets(area, leaf)) continue;
      this.#frame(leaf);
      for (const box of leaf.parts) if (meets(area, box)) this.#node(box, chosen);
    }
  }

  #frame(box) {
    const { context, colours, pixels } = this;
    context.lineWidth = Math.max(0.6, 1 / pixels);
    context.strokeStyle = colours.line;
    context.strokeRect(box.x, box.y, box.width, box.height);
    const size = Math.min(14, Math.max(11, 9 / pixels));
    if (!box.name || size * pixels < 7) return;
    context.fillStyle = box.level === 0 ? colours.text : colours.quiet;
    context.font = `${box.level === 0 ? 600 : 400} ${size}px system-ui, sans-serif`;
    this.#write(box.name, box.x + 4, box.y + 13, box.width - 8);
  }

  #write(text, x, y, most) {
    const { context } = this;
    const wide = context.measureText(text).width;
    if (wide > most) text = `${text.slice(0, Math.max(1, Math.floor((text.length * most) / wide) - 1))}…`;
    context.fillText(text, x, y);
  }

  #node(box, chosen) {
    const { context, colours, pixels } = this;
    const { node } = box;
    const isFaded = chosen && !chosen.nodes.has(node.name);
    context.globalAlpha = isFaded ? FADED : 1;
    if (pixels >= LEGIBLE) {
      context.fillStyle = colours.text;
      context.font = "7px system-ui, sans-serif";
      this.#write(node.name, box.x + GAP, box.y + 8, box.width - 2 * GAP);
    }
    this.#gpus(box, isFaded ? null : chosen?.workloads);
    if (node.sick.size) this.#sick(box);
    if (node.taints.length) this.#taint(box);
    if (node.flags & (CORDONED | NOT_READY)) {
      context.strokeStyle = colours.off;
      context.lineWidth = Math.max(1, 1.5 / pixels);
      context.setLineDash(pixels > 0.4 ? [4, 2] : []);
      context.strokeRect(box.x, box.y + 9, box.width, box.height - 9);
      context.setLineDash([]);
    } else if (node.islands.length && pixels >= LEGIBLE) this.#islands(box);
    context.globalAlpha = 1;
  }

  // Neighbours with one owner are one rectangle where gaps are too small to be seen.
  #gpus(box, workloads) {
    const { context } = this;
    const { owners } = box.node;
    const isTiny = CELL * this.pixels < TINY;
    for (let gpu = 0; gpu < owners.length; ) {
      const owner = owners[gpu];
      let end = gpu + 1;
      while (isTiny && end < owners.length && owners[end] === owner && end % PER_LINE) end++;
      const { x, y } = cellOf(box, gpu);
      context.fillStyle = this.#colour(owner);
      const alpha = context.globalAlpha;
      if (workloads && owner !== FREE && !workloads.has(owner)) context.globalAlpha = FADED;
      context.fillRect(x, y, (end - gpu) * (CELL + GAP) - GAP, CELL);
      context.globalAlpha = alpha;
      if (owner === FREE && CELL * this.pixels >= OUTLINED) {
        context.strokeStyle = this.colours.freeLine;
        context.lineWidth = 0.7;
        context.strokeRect(x + 0.35, y + 0.35, CELL - 0.7, CELL - 0.7);
      }
      gpu = end;
    }
  }

  #colour(owner) {
    if (owner === FREE) return this.colours.free;
    return this.known(owner) ? this.colours.of(owner) : this.colours.other;
  }

  // A cross on the colour of the background, so that it is seen on every colour.
  #sick(box) {
    const { context, colours } = this;
    for (const gpu of box.node.sick.keys()) {
      const { x, y } = cellOf(box, gpu);
      context.fillStyle = colours.back;
      context.fillRect(x + 1.5, y + 1.5, CELL - 3, CELL - 3);
      context.strokeStyle = colours.sick;
      context.lineWidth = Math.max(2, 1.5 / this.pixels);
      context.strokeRect(x, y, CELL, CELL);
      context.beginPath();
      context.moveTo(x, y);
      context.lineTo(x + CELL, y + CELL);
      context.moveTo(x + CELL, y);
      context.lineTo(x, y + CELL);
      context.stroke();
    }
  }

  // A corner that is folded.
  #taint(box) {
    const { context, colours } = this;
    const right = box.x + box.width, size = Math.max(6, 4 / this.pixels);
    context.fillStyle = colours.off;
    context.beginPath();
    context.moveTo(right - size, box.y + 1);
    context.lineTo(right, box.y + 1);
    context.lineTo(right, box.y + 1 + size);
    context.fill();
  }

  #islands(box) {
    const { context, colours } = this;
    const { islands } = box.node;
    context.strokeStyle = colours.quiet;
    context.lineWidth = 0.5;
    for (let gpu = 0; gpu < islands.length; ) {
      let end = gpu + 1;
      while (end < islands.length && islands[end] === islands[gpu] && end % PER_LINE) end++;
      const { x, y } = cellOf(box, gpu);
      context.strokeRect(x - 1, y - 1, (end - gpu) * (CELL + GAP), CELL + 2);
      gpu = end;
    }
  }
}

function meets(area, box) {
  return box.x - 2 < area.right && box.y - 2 < area.bottom && box.x + box.width + 2 > area.left && box.y + box.height + 2 > area.top;
}

// The tiles in sight and those around them, without those on which nothing is drawn.
function* places(sight, around, bounds, pixels) {
  const first = (low, least) => Math.max(Math.floor(low / TILE) - around, Math.floor((least * pixels) / TILE));
  const last = (high, most) => Math.min(Math.floor(high / TILE) + around, Math.floor((most * pixels) / TILE));
  for (let line = first(sight.top, bounds.top); line <= last(sight.bottom, bounds.bottom); line++)
    for (let column = first(sight.left, bounds.left); column <= last(sight.right, bounds.right); column++) yield [column, line];
}
