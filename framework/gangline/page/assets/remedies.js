// Asks the scheduler what would let a unit start, when the viewer wants to know.

import { count, el } from "./dom.js";

const MOST = 50; // answers that are kept
const PATIENCE = 60000; // milliseconds within which an answer has to come: the scheduler takes 25 seconds at most

export class Remedies {
  constructor(onAnswer) {
    this.onAnswer = onAnswer;
    this.answers = new Map(); // unit -> { asking }, { fault } or { found }
  }

  async #ask(unit) {
    if (this.answers.get(unit.key)?.asking) return;
    this.#keep(unit, { asking: true });
    this.onAnswer("The scheduler tries changes");
    try {
      const asked = new URLSearchParams({ namespace: unit.namespace, unit: unit.uid });
      const answer = await fetch(`ui/remedies?${asked}`, { signal: AbortSignal.timeout(PATIENCE) });
      if (!answer.ok) throw new Error((await answer.text()).trim().slice(0, 300) || `the server answers with status ${answer.status}`);
      this.#keep(unit, { found: await answer.json() });
    } catch (error) {
      this.#keep(unit, { fault: error.name === "TimeoutError" ? "the scheduler does not answer" : error.message });
    }
    this.onAnswer(said(this.answers.get(unit.key)));
  }

  #keep(unit, answer) {
    this.answers.delete(unit.key);
    this.answers.set(unit.key, answer);
    if (this.answers.size > MOST) this.answers.delete(this.answers.keys().next().value);
  }

  // The section of a unit that waits; ``command`` finds out the same in a terminal, if it is not null.
  show(unit, command) {
    const answer = this.answers.get(unit.key) ?? {};
    const label = answer.asking ? "The scheduler tries changes \u2026" : answer.found || answer.fault ? "Try again" : "Try changes";
    const remedies = answer.found?.remedies ?? [];
    return [
      el("h3", {}, "What would let it start"),
      answer.found !== undefined || answer.fault ? el("p", {}, `${said(answer)}.`) : [],
      remedies.length ? el("ol", {}, remedies.map((each) => el("li", {}, each.sentence))) : [],
      answer.found?.isComplete === false ? el("p", { class: "quiet" }, "The search was not finished: attempts or time ran out. There may be others.") : [],
      el("button", { type: "button", id: "try", "data-unit": unit.key, "aria-busy": String(Boolean(answer.asking)), onclick: () => this.#ask(unit) }, label),
      command ? [el("p", {}, "The same in a terminal, also as JSON:"), el("code", { class: "command" }, command)] : [],
    ];
  }
}

// An answer in one sentence.
function said({ fault, found }) {
  if (fault) return `Changes cannot be tried: ${fault}`;
  if (!found) return "It waits no longer";
  if (found.note) return `No change was tried: ${found.note}`;
  if (!found.remedies.length && !found.tried) return "No change was found that could be tried";
  if (!found.remedies.length && found.tried === 1) return "The one change that was tried would not let it start";
  if (!found.remedies.length) return `No single change of ${found.tried} that were tried would let it start`;
  const changes = count(found.remedies.length, "change");
  return `${changes} would let it start${found.remedies.length > 1 ? ", each alone, the cheapest first" : ""}`;
}
