// The colours of the page, and one for each workload.

const GOLDEN = 137.508; // degrees: neighbouring numbers get colours that are far apart
const ROUND = 4, SHADES = 4; // numbers 5, 8 and 13 apart have hues that are alike: another shade tells them apart
const FIRST = 25, HUES = 310; // without reds, which mean that a GPU is sick

export class Colours {
  constructor() {
    this.made = new Map();
    this.read();
  }

  // Reads the style sheet, whose colours follow the light or the dark of the system.
  read() {
    const style = getComputedStyle(document.documentElement);
    for (const name of ["back", "panel", "text", "quiet", "line", "link", "free", "other", "sick", "off", "chosen", "light", "shade"])
      this[name] = style.getPropertyValue(`--${name}`).trim();
    this.freeLine = style.getPropertyValue("--free-line").trim();
    this.made.clear();
  }

  of(number) {
    let colour = this.made.get(number);
    if (!colour) {
      const shade = Math.floor(number / ROUND) % SHADES;
      const light = parseFloat(this.light) + shade * parseFloat(this.shade);
      colour = `hsl(${Math.round(FIRST + (((number * GOLDEN) % 360) * HUES) / 360)} 58% ${light}%)`;
      this.made.set(number, colour);
    }
    return colour;
  }
}
