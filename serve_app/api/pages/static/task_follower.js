// Follows a task until it ends: by server-sent events where possible, otherwise by polling.
import { getResult } from "./api.js";

export const STATUS_LABELS = {
  Pending: "Queued",
  Reasoning: "Preparing",
  Generating: "Generating",
  Ready: "Done",
  Error: "Failed",
  "Request Moderated": "Blocked",
  "Content Moderated": "Blocked",
};
const FINAL_STATUSES = new Set(["Ready", "Error", "Request Moderated", "Content Moderated", "Task not found"]);
export const isFinal = (status) => FINAL_STATUSES.has(status);

const POLL_MS = 1000;
const POLL_BESIDE_STREAM_MS = 5000; // estimates change with time, without an event
const MIN_RETRY_MS = 500;
const MAX_RETRY_MS = 20_000;
const MAX_STREAM_RETRY_MS = 20_000;
const LONG_STREAM_MS = 10_000;
// Over HTTP/1.1 a browser opens six connections to a host in all its windows. So only one window has a stream: the one
// with this lock. A hidden window releases it.
const STREAM_LOCK = "event stream";

export class TaskFollower {
  #id;
  #onChange;
  #onConnection;
  #isStopped = false;
  #timer = 0;
  #pollRetryMs = MIN_RETRY_MS;
  #stream = null;
  #releaseLock = () => {};
  #nextStreamAt = 0;
  #streamRetryMs = POLL_MS;

  // `onChange` gets every new state of the task; `onConnection` gets whether the service could be reached.
  constructor(id, onChange, onConnection = () => {}) {
    this.#id = id;
    this.#onChange = onChange;
    this.#onConnection = onConnection;
    document.addEventListener("visibilitychange", this.#closeWhenHidden);
    this.#requestStream();
    this.#pollAfter(POLL_MS);
  }

  #closeWhenHidden = () => {
    if (document.hidden) this.#closeStream();
  };

  #receive(task) {
    if (this.#isStopped) return;
    this.#onConnection(true);
    this.#pollRetryMs = MIN_RETRY_MS;
    this.#onChange(task);
    if (isFinal(task.status)) this.#stop();
    else this.#pollAfter(this.#stream ? POLL_BESIDE_STREAM_MS : POLL_MS);
  }

  #pollAfter(ms) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#poll(), ms);
  }

  async #poll() {
    try {
      // An estimate changes no ETag, so the browser's cache would return an old one.
      this.#receive(await getResult(this.#id, { cache: "no-store" }));
      this.#requestStream();
    } catch (error) {
      if (this.#isStopped) return;
      if (error.status === 404) return this.#stop();
      this.#onConnection(false);
      this.#pollRetryMs = Math.min(this.#pollRetryMs * 2, MAX_RETRY_MS);
      this.#pollAfter(this.#pollRetryMs);
    }
  }

  // Browsers have locks only over HTTPS and on localhost. Elsewhere the task is polled.
  #requestStream() {
    if (this.#isStopped || this.#stream || document.hidden || Date.now() < this.#nextStreamAt) return;
    navigator.locks?.request(STREAM_LOCK, { ifAvailable: true }, (lock) => {
      if (lock && !this.#isStopped) return new Promise((resolve) => this.#openStream(resolve));
    });
  }

  #openStream(releaseLock) {
    this.#releaseLock = releaseLock;
    const openedAt = Date.now();
    this.#stream = new EventSource(`/v1/tasks/${encodeURIComponent(this.#id)}/events`);
    const receive = (event) => this.#receive(JSON.parse(event.data));
    for (const name of ["status", "end"]) this.#stream.addEventListener(name, receive);
    this.#stream.addEventListener("error", () => {
      this.#closeStream();
      // The server ends long streams regularly. A proxy that forbids streams ends each one at once.
      const hasLasted = Date.now() - openedAt > LONG_STREAM_MS;
      this.#streamRetryMs = hasLasted ? POLL_MS : Math.min(this.#streamRetryMs * 2, MAX_STREAM_RETRY_MS);
      this.#nextStreamAt = Date.now() + this.#streamRetryMs;
      this.#pollAfter(this.#pollRetryMs);
    });
  }

  #closeStream() {
    this.#stream?.close();
    this.#stream = null;
    this.#releaseLock();
  }

  #stop() {
    this.#isStopped = true;
    this.#closeStream();
    clearTimeout(this.#timer);
    document.removeEventListener("visibilitychange", this.#closeWhenHidden);
  }
}

const ORDINAL_RULES = new Intl.PluralRules("en", { type: "ordinal" });
const ORDINAL_SUFFIXES = { one: "st", two: "nd", few: "rd", other: "th" };

// Describes a task that has not ended, in the words of the CLI (serve_app/cli/output.py). `details` may be null.
export function describeProgress(label, details) {
  const { message, queue_position: position, eta } = details ?? {};
  const etaText = eta < 100 ? `about ${Math.max(1, Math.round(eta))} s` : `about ${Math.round(eta / 60)} min`;
  if (message) return message;
  if (!position) return eta === undefined ? label : `${label}, ${etaText} left`;
  const place = `${position}${ORDINAL_SUFFIXES[ORDINAL_RULES.select(position)]} in the queue`;
  return eta === undefined ? place : `${place}, ${etaText}`;
}
