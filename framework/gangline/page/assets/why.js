// Asks the scheduler why a pod is on its node, once for each pod, node and start.

const MOST = 200; // answers that are kept
const PATIENCE = 30000; // milliseconds within which an answer has to come

export class Whys {
  constructor(onAnswer) {
    this.onAnswer = onAnswer;
    this.answers = new Map(); // pod, node and start -> answer; null if the scheduler does not know, undefined while it is asked
  }

  of(pod) {
    const key = `${pod.key} ${pod.node} ${pod.started}`; // another pod may come with the same name
    if (!this.answers.has(key)) this.#ask(pod, key);
    return this.answers.get(key);
  }

  async #ask({ namespace, name }, key) {
    this.answers.set(key, undefined);
    if (this.answers.size > MOST) this.answers.delete(this.answers.keys().next().value);
    try {
      const asked = new URLSearchParams({ namespace, pod: name });
      const answer = await fetch(`ui/why?${asked}`, { signal: AbortSignal.timeout(PATIENCE) });
      if (!answer.ok) throw new Error(`the server answers with status ${answer.status}`);
      this.answers.set(key, await answer.json());
    } catch {
      this.answers.delete(key); // it is asked again when the details are shown again
      return;
    }
    this.onAnswer();
  }
}
