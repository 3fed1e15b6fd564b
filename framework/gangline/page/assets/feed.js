// Follows the scheduler: the whole picture once, then its changes, while somebody can see the page.

const PATIENCE = 3000; // milliseconds without a connection until that is said
const LOADING = 90000; // milliseconds within which the whole picture has to come
const SILENCE = 45000; // milliseconds after which a silent stream is given up: the scheduler ends each one after 20 seconds
const CHECK = 5000;
const UNREACHABLE = "The scheduler is unreachable; trying again …";
const BAD_GATEWAY = 502; // what `gangline ui` answers while the scheduler does not
const AGAIN = [1000, 2000, 5000, 10000];

export class Feed {
  constructor(model, onNews, onState) {
    this.model = model;
    this.onNews = onNews;
    this.onState = onState;
    this.failures = 0;
    this.isSeen = true;
    this.isResting = false;
    this.deadline = Infinity; // when what is asked for is given up
    setInterval(() => this.#check(), CHECK);
  }

  async start() {
    this.#drop();
    const loading = (this.loading = new AbortController());
    this.#wait(LOADING);
    try {
      // The first time the answer that index.html has asked for.
      const answer = await fetch("ui/state", { signal: loading.signal }).catch(() => null);
      if (!answer || answer.status === BAD_GATEWAY) {
        this.#failed(UNREACHABLE);
        return;
      }
      if (!answer.ok) throw new Error(await sentence(answer));
      this.model.load(await answer.json());
    } catch (error) {
      this.#failed(loading.signal.aborted ? UNREACHABLE : noNews(error.message));
      return;
    }
    this.loading = null;
    this.onNews();
    this.#follow();
  }

  // Whether somebody can see the page. Else it rests: a browser has few connections to one server, for all its tabs, and
  // the scheduler looks at what has changed as long as somebody follows.
  see(isSeen) {
    this.isSeen = isSeen;
    if (!isSeen && this.stream) this.#rest();
    else if (isSeen && this.isResting && this.failures) this.start();
    else if (isSeen && this.isResting) this.#follow();
  }

  #follow() {
    if (!this.isSeen) {
      this.#rest();
      return;
    }
    this.isResting = false;
    const stream = new EventSource(`ui/events?after=${encodeURIComponent(this.model.position)}`);
    this.stream = stream;
    this.#wait(SILENCE);
    const hear = (kind, react) => stream.addEventListener(kind, (event) => {
      this.#wait(SILENCE);
      react(event);
    });
    hear("open", () => this.#isLive());
    hear("message", (event) => {
      this.model.apply(JSON.parse(event.data));
      this.onNews();
    });
    hear("reset", () => this.start());
    hear("error", () => {
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

  #wait(most) {
    this.deadline = performance.now() + most;
  }

  // A connection may be dead without an end: the network was left, or something on the way stands still.
  #check() {
    if (performance.now() < this.deadline) return;
    this.deadline = Infinity;
    if (this.loading) this.loading.abort(); // which fails
    else this.#failed(UNREACHABLE);
  }

  #drop() {
    this.stream?.close();
    this.stream = this.loading = null;
    this.isResting = false;
    this.deadline = Infinity;
    this.#noDoubt();
  }

  #rest() {
    this.#drop();
    this.isResting = true;
  }

  #failed(words) {
    this.#drop();
    this.onState(words, true);
    const pause = AGAIN[Math.min(this.failures++, AGAIN.length - 1)];
    setTimeout(() => (this.isSeen ? this.start() : this.#rest()), pause);
  }
}

function noNews(why) {
  return `No news: ${why}. Trying again …`;
}

async function sentence(answer) {
  const text = (await answer.text()).trim().slice(0, 200);
  return `${answer.status} ${text}`;
}
