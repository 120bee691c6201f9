// A model as its card: what waits as a bar of seconds, and what is known of it. It is changed in place, so nothing flickers.
import { el, unique } from "./dom.js";

const FIGURES = [
  ["Estimated wait", (model) => seconds(model.predicted_wait_s)],
  ["Queue wait p50", (model) => seconds(model.wait.half)],
  ["Queue wait p95", (model) => seconds(model.wait.most)],
  ["Run time, mean", (model) => seconds(model.work.mean)],
  ["Ready", (model) => count(model.ended.Ready)],
  ["Failed", (model) => count(model.ended.Error)],
  ["Batch", (model) => (model.batch ? `${model.batch}, ${milliseconds(model.step_s)} a step` : "–")],
  ["Replicas", (model) => states(model.replicas)],
];

export function modelCard(name) {
  const heading = el("h3", { id: unique("model") }, name);
  const now = el("span", { class: "faint" });
  const filled = el("div", {});
  const bar = el("div", { class: "bar", role: "meter", "aria-label": `Work that waits in ${name}, seconds`, "aria-valuemin": 0 }, filled);
  const queue = el("p", { class: "queue" });
  const failed = el("ul", { class: "faint" });
  const failures = el("details", { hidden: true }, el("summary", {}, "Last errors"), failed);
  const values = FIGURES.map(() => el("dd", {}));
  const element = el("article", { class: "panel model", "aria-labelledby": heading.id },
    el("div", { class: "row apart" }, heading, now), bar, queue,
    el("dl", {}, FIGURES.map(([title], index) => el("div", {}, el("dt", {}, title), values[index]))), failures);

  // `most` is how many seconds a full bar has.
  function show(model, most) {
    const waiting = model.queued + model.quarantined;
    element.classList.toggle("idle", waiting + model.running === 0);
    say(now, `${model.running} running, ${waiting} waiting`);
    say(queue, waiting === 0 ? "Nothing waits" : model.queued_s === null ? "How long is not known yet" : `${seconds(model.queued_s)} of work`);
    filled.style.width = `${(100 * (model.queued_s ?? 0)) / most}%`;
    bar.setAttribute("aria-valuenow", Math.round(model.queued_s ?? 0));
    bar.setAttribute("aria-valuemax", Math.round(most));
    bar.setAttribute("aria-valuetext", queue.textContent);
    failures.hidden = model.failures.length === 0;
    if (model.failures[0]?.task !== failed.dataset.newest) {
      failed.dataset.newest = model.failures[0]?.task;
      failed.replaceChildren(...model.failures.map((each) => el("li", {}, `${new Date(each.at * 1000).toLocaleString()}: ${each.error} (${each.endpoint})`)));
    }
    FIGURES.forEach(([, of], index) => say(values[index], of(model)));
  }
  return { element, show };
}

export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const milliseconds = (value) => (value < 1 ? `${Math.round(1000 * value)} ms` : `${value.toFixed(1)} s`);
const states = (replicas) => (replicas ? Object.entries(replicas).map(([state, count]) => `${count} ${state.toLowerCase()}`).join(", ") || "none" : "–");
const count = (value) => (value ?? 0).toLocaleString();
export const seconds = (value) => (value === null ? "–" : value === 0 ? "0 s" : value < 10 ? `${value.toFixed(1)} s` : value < 120 ? `${Math.round(value)} s` : `${Math.round(value / 60)} min`);
