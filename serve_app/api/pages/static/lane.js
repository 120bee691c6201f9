// A lane as its card: what waits as a bar of seconds, and what is known of it. It is changed in place, so nothing flickers.
import { el, unique } from "./dom.js";

const FIGURES = [
  ["Next waits", (lane) => seconds(lane.predicted_wait_s)],
  ["Waited, half", (lane) => seconds(lane.wait.half)],
  ["Waited, 95 %", (lane) => seconds(lane.wait.most)],
  ["Worked, mean", (lane) => seconds(lane.work.mean)],
  ["Ready", (lane) => count(lane.ended.Ready)],
  ["Failed", (lane) => count(lane.ended.Error)],
  ["Batch", (lane) => (lane.batch ? `${lane.batch}, ${milliseconds(lane.step_s)} a step` : "–")],
  ["Replicas", (lane) => states(lane.replicas)],
];

export function laneCard(name) {
  const heading = el("h3", { id: unique("lane") }, name);
  const now = el("span", { class: "faint" });
  const filled = el("div", {});
  const bar = el("div", { class: "bar", role: "meter", "aria-label": `Work that waits in ${name}, seconds`, "aria-valuemin": 0 }, filled);
  const queue = el("p", { class: "queue" });
  const failed = el("ul", { class: "faint" });
  const failures = el("details", { hidden: true }, el("summary", {}, "Last errors"), failed);
  const values = FIGURES.map(() => el("dd", {}));
  const element = el("article", { class: "panel lane", "aria-labelledby": heading.id },
    el("div", { class: "row apart" }, heading, now), bar, queue,
    el("dl", {}, FIGURES.map(([title], index) => el("div", {}, el("dt", {}, title), values[index]))), failures);

  // `most` is how many seconds a full bar has.
  function show(lane, most) {
    const waiting = lane.queued + lane.suspects;
    element.classList.toggle("idle", waiting + lane.running === 0);
    say(now, `${lane.running} running, ${waiting} waiting`);
    say(queue, waiting === 0 ? "Nothing waits" : lane.queued_s === null ? "How long is not known yet" : `${seconds(lane.queued_s)} of work`);
    filled.style.width = `${(100 * (lane.queued_s ?? 0)) / most}%`;
    bar.setAttribute("aria-valuenow", Math.round(lane.queued_s ?? 0));
    bar.setAttribute("aria-valuemax", Math.round(most));
    bar.setAttribute("aria-valuetext", queue.textContent);
    failures.hidden = lane.failures.length === 0;
    if (lane.failures[0]?.task !== failed.dataset.newest) {
      failed.dataset.newest = lane.failures[0]?.task;
      failed.replaceChildren(...lane.failures.map((each) => el("li", {}, `${new Date(each.at * 1000).toLocaleString()}: ${each.error} (${each.endpoint})`)));
    }
    FIGURES.forEach(([, of], index) => say(values[index], of(lane)));
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
