// Follows the scheduler: the whole picture once, then its changes.

const PATIENCE = 3000; // milliseconds without a connection until that is said
const UNREACHABLE = "The scheduler is unreachable; trying again …";
const BAD_GATEWAY = 502; // what `gangline ui` answers while the scheduler does not
const AGAIN = [1000, 2000, 5000, 10000];

export class Feed {
  constructor(model, onNews, onState) {
    this.model = model;
    this.onNews = onNews;
    this.onState = onState;
    this.failures = 0;
  }

  async start() {
    this.stream?.close();
    this.#noDoubt();
    try {
      // The first time the answer that index.html has asked for.
      const answer = await fetch("ui/state").catch(() => null);
      if (!answer || answer.status === BAD_GATEWAY) {
        this.#failed(UNREACHABLE);
        return;
      }
      if (!answer.ok) throw new Error(await sentence(answer));
      this.model.load(await answer.json());
    } catch (error) {
      this.#failed(noNews(error.message));
      return;
    }
    this.onNews();
    this.#follow();
  }

  #follow() {
    const stream = new EventSource(`ui/events?after=${encodeURIComponent(this.model.position)}`);
    this.stream = stream;
    stream.addEventListener("open", () => this.#isLive());
    stream.addEventListener("message", (event) => {
      this.model.apply(JSON.parse(event.data));
      this.onNews();
    });
    stream.addEventListener("reset", () => this.start());
    stream.addEventListener("error", () => {
      if (stream.readyState === EventSource.CLOSED) this.#failed(noNews("the stream of changes was refused"));
      else this.doubt ??= setTimeout(() => this.onState(UNREACHABLE, true), PATIENCE);
    });
    this.onState("live", false);
  }

  // Only now is nothing wrong: to whom the changes are refused, the whole picture is given all the same.
  #isLive() {
    this.failures = 0;
    this.#noDoubt();
    this.onState("live", false);
  }

  #noDoubt() {
    clearTimeout(this.doubt);
    this.doubt = undefined;
  }

  #failed(words) {
    this.stream?.close();
    this.#noDoubt();
    this.onState(words, true);
    const pause = AGAIN[Math.min(this.failures++, AGAIN.length - 1)];
    setTimeout(() => this.start(), pause);
  }
}

function noNews(why) {
  return `No news: ${why}. Trying again …`;
}

async function sentence(answer) {
  const text = (await answer.text()).trim().slice(0, 200);
  return `${answer.status} ${text}`;
}
