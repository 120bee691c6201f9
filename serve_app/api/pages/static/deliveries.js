// How a task's webhook fares: its state, every attempt, and sending it again.
import { get, post } from "./api.js";
import { table } from "./account_parts.js";
import { el } from "./dom.js";

const EVERY_MS = 3000;
const STATES = { "not due": "is sent once the task has ended", waiting: "waits for its next try", sending: "is being sent", delivered: "was delivered", failed: "failed, and is not tried again by itself" };

// It is asked for once it is opened: most tasks have none.
export function webhook(id, mayReplay) {
  const path = `/v1/tasks/${encodeURIComponent(id)}/deliveries`;
  const status = el("div", { role: "status" });
  const details = el("details", { class: "webhook" }, el("summary", {}, "Webhook"), status);
  let timer = 0;

  async function load(ask) {
    clearTimeout(timer);
    try {
      show(await ask());
    } catch (problem) {
      status.replaceChildren(el("p", { class: "faint" }, problem.message));
    }
  }

  function show({ destination, state, next, attempts }) {
    const again = mayReplay && state !== "not due" ? el("button", { type: "button", onclick: () => load(() => post(`${path}/replay`)) }, "Send again") : null;
    status.replaceChildren(
      el("p", {}, `To ${destination}: ${STATES[state]}${next && state === "waiting" ? `, at ${time(next)}` : ""}.`),
      ...(attempts.length ? [table(["When", "Answer", "Took", "What it said"], attempts.toReversed().map((each) => [time(each.at), each.status ?? each.error, `${each.took_s.toFixed(2)} s`, each.response]))] : [el("p", { class: "faint" }, "No attempt yet.")]),
      ...[again].filter(Boolean));
    if (state === "waiting" || state === "sending") timer = setTimeout(() => details.isConnected && details.open && load(() => get(path)), EVERY_MS);
  }

  details.addEventListener("toggle", () => details.open && load(() => get(path)));
  return details;
}

const time = (seconds) => new Date(seconds * 1000).toLocaleString();
