// A task in full: its result, how it was made, what it cost, and the actions on it.
import { get, getResult, post, remove, taskPath } from "./api.js";
import { button, confirmButton, copyButton, el, errorText, formatCredits, formatTime, humanize, table, zoomable } from "./dom.js";
import { promptWords } from "./layout.js";
import { STATUS_LABELS, isFinal } from "./task_follower.js";

const hasSuffix = (url, pattern) => pattern.test(new URL(url, location.href).pathname);

// A player for a video or sound; null for an image.
export const player = (url) =>
  hasSuffix(url, /\.(mp4|webm)$/) ? el("video", { src: url, controls: true, loop: true })
    : hasSuffix(url, /\.(wav|mp3|flac|ogg|opus)$/) ? el("audio", { src: url, controls: true })
      : null;

export function failureReason(status, details) {
  const reasons = details?.["Moderation Reasons"]?.join(", ");
  return reasons ? `Not allowed here: ${reasons}` : details?.error ?? status;
}

// Says when the result will be deleted.
export function retentionNote(id) {
  const note = el("span", { class: "faint" });
  get(taskPath(id)).then(({ expires }) => (note.textContent = `Kept until ${formatTime(expires)}`)).catch(() => {});
  return note;
}

export class TaskView {
  // Rejects if there is no such task. `onDelete` is called when the person has deleted it.
  static async load(id, session, onDelete) {
    try {
      const [task, answer] = await Promise.all([get(taskPath(id)), getResult(id)]);
      return new TaskView(task, answer, session.may("generate"), onDelete);
    } catch (error) {
      throw error.status === 404 ? new Error(`There is no task ${id}. It may have been deleted.`) : error;
    }
  }

  constructor(task, { result, details }, mayGenerate, onDelete) {
    this.task = task;
    const words = promptWords(task.prompt);
    this.title = words || task.endpoint;
    const share = result && new ShareControl(task.id, mayGenerate, task.shared);
    this.element = el("div", { class: "task-view" },
      ...result ? (result.samples ?? [result.sample]).map((url) => this.#result(url))
        : [isFinal(task.status) ? el("p", { class: "bad" }, failureReason(task.status, details))
          : el("p", { class: "notice" }, STATUS_LABELS[task.status])],
      el("p", { class: "prompt" }, words),
      el("div", { class: "row" },
        result && el("a", { class: "button", href: result.sample, download: "" }, "Download"),
        share?.button,
        mayGenerate && this.#link("again", "Run again with changes"),
        mayGenerate && result && !player(result.sample) && this.#link("edit", "Edit this"),
        mayGenerate && isFinal(task.status) && confirmButton("Delete", "Delete this result, its inputs and its prompt?",
          () => remove(`${taskPath(task.id)}/result`).then(onDelete))),
      share?.status,
      el("dl", { class: "facts" }, this.#facts().map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
      new WebhookPanel(task.id, mayGenerate).element);
  }

  #result(url) {
    return player(url) ?? zoomable(el("img", { src: url, alt: `Result: ${this.title}` }));
  }

  #link(parameter, label) {
    return el("a", { class: "button", href: `/?${parameter}=${encodeURIComponent(this.task.id)}` }, label);
  }

  #facts() {
    const { id, status, endpoint, created, started, finished, expires, cost, attempt, inputs, parameters } = this.task;
    const { width, height, ...others } = parameters;
    const duration = (start, end) => start && end && `${(end - start).toFixed(1)} s`;
    const capitalize = (name) => name[0].toUpperCase() + humanize(name).slice(1);
    return [
      ["Status", STATUS_LABELS[status] ?? status],
      ["Endpoint", endpoint],
      ["Submitted", formatTime(created)],
      ["Waited", duration(created, started)],
      ["Took", duration(started, finished)],
      ["Attempts", attempt > 1 && attempt],
      ["Cost", cost !== null && formatCredits(cost)],
      ["Kept until", expires && formatTime(expires)],
      ["Size", width && height && `${width} × ${height}`],
      ["Files sent", inputs],
      ...Object.entries(others).map(([name, value]) => [capitalize(name), String(value)]),
      ["Id", el("a", { href: `/t/${encodeURIComponent(id)}` }, id)],
    ].filter(([, value]) => value);
  }
}

const SHARE_S = 7 * 24 * 3600;

// Creates a link to a result that needs no key until it expires.
export class ShareControl {
  // `isShared`: earlier links exist.
  constructor(id, mayRevoke, isShared = false) {
    this.path = `${taskPath(id)}/links`;
    this.mayRevoke = mayRevoke;
    this.status = el("div", { role: "status" });
    this.button = button("Share", () => this.#share());
    if (isShared && mayRevoke) this.#show(el("p", { class: "row" }, "This result is shared by a link.", this.#revokeButton()));
  }

  #show(...elements) {
    this.status.replaceChildren(...elements);
  }

  async #share() {
    try {
      const { page, expires } = await post(this.path, { expires_in: SHARE_S });
      const end = formatTime(expires) + (this.mayRevoke ? " or until you revoke it" : "");
      this.#show(
        el("p", {}, `Anyone with this link can see the result and its prompt until ${end}.`),
        el("p", { class: "row" }, el("a", { class: "secret", href: page }, page), copyButton(page),
          this.mayRevoke && this.#revokeButton()));
    } catch (error) {
      this.#show(errorText(error));
    }
  }

  #revokeButton() {
    return confirmButton("Revoke", "Revoke all links to this page?", async () => {
      await remove(this.path);
      this.#show(el("p", {}, "All links to this page are revoked."));
      this.button.focus();
    });
  }
}

const DELIVERY_POLL_MS = 3000;
const DELIVERY_STATES = {
  "not due": "is sent when the task has ended",
  waiting: "waits for its next attempt",
  sending: "is being sent",
  delivered: "was delivered",
  failed: "failed and is not retried automatically",
};

// The state and the attempts of a task's webhook. They are loaded when opened, as most tasks have no webhook.
class WebhookPanel {
  #timer = 0;

  constructor(id, mayResend) {
    this.path = `${taskPath(id)}/deliveries`;
    this.mayResend = mayResend;
    this.status = el("div", { role: "status" });
    this.element = el("details", { class: "webhook" }, el("summary", {}, "Webhook"), this.status);
    this.element.addEventListener("toggle", () => this.#refresh());
  }

  #refresh() {
    if (this.element.isConnected && this.element.open) this.#load(get(this.path));
  }

  async #load(answer) {
    clearTimeout(this.#timer);
    try {
      this.#show(await answer);
    } catch (error) {
      this.status.replaceChildren(el("p", { class: "faint" }, error.message));
    }
  }

  #show({ destination, state, next, attempts }) {
    const formatSecond = (epochS) => new Date(epochS * 1000).toLocaleString();
    const time = next && state === "waiting" ? `, at ${formatSecond(next)}` : "";
    const rows = attempts.toReversed().map(({ at, status, error, took_s, response }) =>
      [formatSecond(at), status ?? error, `${took_s.toFixed(2)} s`, response]);
    const resend = () => this.#load(post(`${this.path}/replay`));
    this.status.replaceChildren(
      el("p", {}, `To ${destination}: ${DELIVERY_STATES[state]}${time}.`),
      rows.length ? table(["When", "Answer", "Took", "Response"], rows) : el("p", { class: "faint" }, "No attempt yet."),
      this.mayResend && state !== "not due" ? button("Send again", resend) : "");
    if (state === "waiting" || state === "sending") this.#timer = setTimeout(() => this.#refresh(), DELIVERY_POLL_MS);
  }
}
