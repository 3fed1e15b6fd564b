// Makes elements. Texts become text and nothing else: no name can become markup.

export function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === "") continue;
    made.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return made;
}

// A link that chooses a node, a workload or both. Its attributes say what it chooses, so that `renew` keeps no other link.
export function link(text, choose, chosen) {
  const { node = null, workload = null } = chosen;
  return el("button", { type: "button", class: "link", "data-node": node, "data-workload": workload, onclick: () => choose({ node, workload }) }, text);
}

// Gives an element these children, and keeps those that it has: with the focus, the selection and the place of scrolling.
// An element is kept if all its attributes are the same, so they have to say whatever its listeners use.
export function renew(parent, children) {
  children.forEach((child, place) => {
    const old = parent.childNodes[place];
    if (!old) parent.append(child);
    else if (old.isEqualNode(child)) return;
    else if (old instanceof Element && old.cloneNode().isEqualNode(child.cloneNode())) renew(old, [...child.childNodes]);
    else old.replaceWith(child);
  });
  while (parent.childNodes.length > children.length) parent.lastChild.remove();
}

// Changes what is in an element, and keeps the focus in it: on a button with the same words, the nearest one if there are
// several, else on what ``elsewhere`` gives for the place that the button had among all buttons.
export function keepingFocus(parent, change, elsewhere) {
  const buttons = () => [...parent.querySelectorAll("button:enabled")].filter((each) => !each.closest("[hidden]"));
  const focused = document.activeElement, place = buttons().indexOf(focused), words = focused?.textContent;
  change();
  if (place < 0) return;
  const left = buttons(), far = (each) => Math.abs(left.indexOf(each) - place);
  if (left.includes(document.activeElement)) return;
  const same = left.filter((each) => each.textContent === words).sort((a, b) => far(a) - far(b));
  (same[0] ?? elsewhere(left, place)).focus();
}

export function count(number, one, many = `${one}s`) {
  return `${number} ${number === 1 ? one : many}`;
}

// How long a time is past, or with the two changed to come: one unit, and of a few hours or days the next one, too.
export function ago(seconds, now) {
  const past = Math.max(0, now - seconds);
  for (const [unit, size, next, part] of [["d", 86400, "h", 3600], ["h", 3600, "min", 60], ["min", 60]]) {
    if (past < size) continue;
    const many = Math.floor(past / size), rest = part && many < 10 ? Math.floor((past % size) / part) : 0;
    return `${many} ${unit}${rest ? ` ${rest} ${next}` : ""}`;
  }
  return `${Math.floor(past)} s`;
}

// Numbers in order, as "0–3, 6, 7".
export function ranges(numbers) {
  const found = [];
  for (const number of numbers) {
    const last = found.at(-1);
    if (last && number === last[1] + 1) last[1] = number;
    else found.push([number, number]);
  }
  return found.map(([first, last]) => (last > first ? `${first}${last > first + 1 ? "–" : ", "}${last}` : first)).join(", ");
}

export function percent(part, whole) {
  return whole ? `${Math.round((100 * part) / whole)} %` : "–";
}

// A duration with two digits or so.
export function lasting(seconds) {
  if (!seconds) return "0 s";
  for (const [unit, size, least] of [["h", 3600, 7200], ["min", 60, 120], ["s", 1, 1], ["ms", 1e-3, 0]])
    if (seconds >= least) return `${Number((seconds / size).toPrecision(2))} ${unit}`;
}

const TIME = { hour: "2-digit", minute: "2-digit" };
let sameDay, otherDay, withSeconds; // made when they are needed, because that takes long

// The time of a clock, with the day if that is not today.
export function clock(seconds, now) {
  const then = new Date(1000 * seconds);
  sameDay ??= new Intl.DateTimeFormat("en-GB", TIME);
  otherDay ??= new Intl.DateTimeFormat("en-GB", { month: "short", day: "numeric", ...TIME });
  return (then.toDateString() === new Date(1000 * now).toDateString() ? sameDay : otherDay).format(then);
}

// The time of a clock with seconds.
export function exactClock(seconds) {
  withSeconds ??= new Intl.DateTimeFormat("en-GB", { ...TIME, second: "2-digit" });
  return withSeconds.format(new Date(1000 * seconds));
}

// A time, and how long it is past or to come.
export function moment(seconds, now) {
  const said = seconds >= now ? `in ${ago(now, seconds)}` : `${ago(seconds, now)} ago`;
  return `${clock(seconds, now)} (${said})`;
}
