// Where everything stands: nodes in leaves, leaves in spines. Lengths are in units of the drawing.

import { inOrder } from "./model.js";

export const CELL = 10, GAP = 2, PER_LINE = 8;
const WIDTHS = [0.7, 0.85, 1, 1.2, 1.4, 1.7, 2]; // of lines that are tried, as parts of the width of an area that is just large enough
const STEP = CELL + GAP, NAME = 10, SPACE = 6, BORDER = 10, HEADING = 18, TALL = 8;

export class Layout {
  constructor(model, aspect) {
    this.boxes = []; // of spines and leaves
    this.nodes = []; // in order
    this.byName = new Map();
    const groups = [...grouped(inOrder(model.nodes.values()), (node) => node.domains.slice(0, -1).join(" / "))].map(
      ([name, nodes]) => this.#spine(name, nodes),
    );
    const size = shelves(groups, BORDER * 2, aspect);
    this.width = size.width;
    this.height = size.height;
    for (const group of groups) this.#settle(group, 0, 0);
  }

  #spine(name, nodes) {
    const leaves = [...grouped(nodes, (node) => node.domains.at(-1) ?? "")].map(([leaf, mine]) => this.#leaf(leaf, mine));
    const size = shelves(leaves, BORDER, 1.6);
    const edge = name || leaves.length > 1 ? BORDER : 0;
    const top = name ? HEADING : 0;
    for (const leaf of leaves) {
      leaf.x += edge;
      leaf.y += edge + top;
    }
    return { name, level: 0, width: size.width + 2 * edge, height: size.height + 2 * edge + top, parts: leaves };
  }

  #leaf(name, nodes) {
    const top = name ? HEADING : 0;
    const parts = [];
    let x = SPACE, width = 0, height = 0;
    for (let start = 0; start < nodes.length; start += TALL) {
      let y = top + SPACE, wide = 0;
      for (const node of nodes.slice(start, start + TALL)) {
        const count = Math.max(1, node.owners.length);
        const box = {
          node, x, y, width: Math.min(count, PER_LINE) * STEP + GAP, height: NAME + Math.ceil(count / PER_LINE) * STEP + GAP,
        };
        parts.push(box);
        y += box.height + SPACE;
        wide = Math.max(wide, box.width);
      }
      height = Math.max(height, y);
      x += wide + SPACE;
      width = x;
    }
    return { name, level: 1, width, height, parts };
  }

  #settle(box, left, top) {
    box.x += left;
    box.y += top;
    if (box.node) {
      box.index = this.nodes.length;
      this.nodes.push(box);
      this.byName.set(box.node.name, box);
      return;
    }
    this.boxes.push(box);
    for (const part of box.parts) this.#settle(part, box.x, box.y);
  }

  // The node at a point of the drawing, and the number of the GPU there.
  at(x, y) {
    for (const spine of this.boxes) {
      if (spine.level !== 0 || !isIn(spine, x, y)) continue;
      for (const leaf of spine.parts)
        if (isIn(leaf, x, y)) for (const box of leaf.parts) if (isNear(box, x, y)) return { box, gpu: gpuAt(box, x, y) };
    }
    return null;
  }
}

export function cellOf(box, gpu) {
  return {
    x: box.x + GAP + (gpu % PER_LINE) * STEP,
    y: box.y + NAME + GAP + Math.floor(gpu / PER_LINE) * STEP,
  };
}

// Where the GPUs of an owner are on a node: neighbours on one line together.
export function runsOf(box, owner) {
  const { owners } = box.node, runs = [];
  for (let gpu = 0; gpu < owners.length; gpu++) {
    if (owners[gpu] !== owner) continue;
    const { x, y } = cellOf(box, gpu);
    let count = 1;
    while ((gpu + 1) % PER_LINE && owners[gpu + 1] === owner) {
      gpu++;
      count++;
    }
    runs.push({ x, y, width: count * STEP - GAP });
  }
  return runs;
}

function gpuAt(box, x, y) {
  const column = Math.floor((x - box.x - GAP) / STEP), line = Math.floor((y - box.y - NAME - GAP) / STEP);
  const gpu = line * PER_LINE + column;
  return column >= 0 && column < PER_LINE && line >= 0 && gpu < box.node.owners.length ? gpu : -1;
}

// With half of the space to the next node.
function isNear(box, x, y) {
  const more = SPACE / 2;
  return x >= box.x - more && y >= box.y - more && x < box.x + box.width + more && y < box.y + box.height + more;
}

function isIn(box, x, y) {
  return x >= box.x && y >= box.y && x < box.x + box.width && y < box.y + box.height;
}

function* grouped(items, keyOf) {
  let key, group = [];
  for (const item of items) {
    const mine = keyOf(item);
    if (group.length && mine !== key) {
      yield [key, group];
      group = [];
    }
    key = mine;
    group.push(item);
  }
  if (group.length) yield [key, group];
}

// Places boxes in lines from left to right, so that all together are as large as possible on an area of this ratio of
// width to height, and lines are about equally long.
function shelves(boxes, gap, aspect) {
  const area = boxes.reduce((sum, box) => sum + (box.width + gap) * (box.height + gap), 0);
  const widest = boxes.reduce((most, box) => Math.max(most, box.width), 0);
  // Few boxes may be far from the ratio, and a little more width make half as many lines.
  const long = (most) => {
    const size = placed(boxes, gap, most);
    return Math.max(size.width / aspect, size.height);
  };
  const usual = Math.sqrt(area * aspect);
  let most = WIDTHS.map((part) => Math.max(part * usual, widest)).reduce((best, each) => (long(each) < long(best) ? each : best));
  const { height } = placed(boxes, gap, most);
  for (let least = widest; most - least > 1; ) {
    const middle = (least + most) / 2;
    if (placed(boxes, gap, middle).height > height) least = middle;
    else most = middle;
  }
  return placed(boxes, gap, most);
}

function placed(boxes, gap, most) {
  let x = 0, y = 0, line = 0, width = 0;
  for (const box of boxes) {
    if (x > 0 && x + box.width > most) {
      y += line + gap;
      x = line = 0;
    }
    box.x = x;
    box.y = y;
    x += box.width + gap;
    line = Math.max(line, box.height);
    width = Math.max(width, x - gap);
  }
  return { width, height: y + line };
}
