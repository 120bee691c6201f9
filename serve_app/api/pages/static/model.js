// A model as its card: what waits as a bar of seconds, and what is known of it. It is changed in place, so nothing flickers.
import { el, unique } from "./dom.js";

// Of a model, and of its window.
const FIGURES = [
  ["Estimated wait", (model) => seconds(model.predicted_wait_s)],
  ["Queue wait p50 / p95", (_, recent) => pair(recent.wait_p50, recent.wait_p95)],
  ["Run time p50 / p95", (_, recent) => pair(recent.run_p50, recent.run_p95)],
  ["Ready per min", (_, recent) => round(recent.per_minute)],
  ["Error rate", (_, recent) => percent(recent.error_rate) + (recent.failed ? ` (${recent.failed.toLocaleString()} failed)` : "")],
  ["Busy", (_, recent) => percent(recent.busy)],
  ["Replicas", (model) => states(model)],
  ["Cold start", (model) => seconds(model.cold_start_s)],
  ["Batch", (model) => (model.batch ? `${model.batch}, ${milliseconds(model.step_s)} a step` : "–")],
];

export function modelCard(name) {
  const heading = el("h3", { id: unique("model") }, name);
  const now = el("span", { class: "faint" });
  const filled = el("div", {});
  const bar = el("div", { class: "bar", role: "meter", "aria-label": `Work that waits in ${name}, seconds`, "aria-valuemin": 0 }, filled);
  const queue = el("p", { class: "queue" });
  const fault = el("p", { class: "fault", hidden: true });
  const failed = el("ul", { class: "faint" });
  const failures = el("details", { hidden: true }, el("summary", {}, "Last errors"), failed);
  const values = FIGURES.map(() => el("dd", {}));
  const [ready, wait] = [sparkline("Ready per minute", round), sparkline("Queue wait p95", seconds)];
  const others = el("p", { class: "faint what-if" });
  const element = el("article", { class: "panel model", "aria-labelledby": heading.id },
    el("div", { class: "row apart" }, heading, now), fault, bar, queue,
    el("dl", {}, FIGURES.map(([title], index) => el("div", {}, el("dt", {}, title), values[index]))),
    el("div", { class: "history" }, ready.element, wait.element), others, failures);

  // `most` is how many seconds a full bar has, `window` the name of one.
  function show(model, most, window) {
    const waiting = model.queued + model.quarantined;
    element.classList.toggle("idle", waiting + model.running === 0);
    say(now, `${model.running} running, ${waiting} waiting`);
    say(queue, waiting === 0 ? "Nothing waits" : model.queued_s === null ? "How long is not known yet" : `${seconds(model.queued_s)} of work`);
    fault.hidden = model.fault === null;
    say(fault, model.fault === null ? "" : `Can't be loaded: ${model.fault}`);
    filled.style.width = `${(100 * (model.queued_s ?? 0)) / most}%`;
    bar.setAttribute("aria-valuenow", Math.round(model.queued_s ?? 0));
    bar.setAttribute("aria-valuemax", Math.round(most));
    bar.setAttribute("aria-valuetext", queue.textContent);
    failures.hidden = model.failures.length === 0;
    if (model.failures[0]?.task !== failed.dataset.newest) {
      failed.dataset.newest = model.failures[0]?.task;
      failed.replaceChildren(...model.failures.map((each) => el("li", {}, `${new Date(each.at * 1000).toLocaleString()}: ${each.error} (${each.endpoint})`)));
    }
    FIGURES.forEach(([, of], index) => say(values[index], of(model, model.windows[window])));
    ready.show(model.history.map((minute) => minute.ready));
    wait.show(model.history.map((minute) => minute.wait_p95));
    const running = model.replicas?.RUNNING ?? 0;
    say(others, model.what_if.filter((each) => each.replicas !== running).map((each, index) => whatIf(each, index, waiting)).join("; "));
  }
  return { element, show };
}

const WIDTH = 120;
const HEIGHT = 28;

// The last hour as a line, a minute without a value as a gap, and its peak in words.
function sparkline(title, format) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const line = document.createElementNS(svg.namespaceURI, "path");
  for (const [name, value] of Object.entries({ viewBox: `-2 -2 ${WIDTH + 4} ${HEIGHT + 4}`, preserveAspectRatio: "none", role: "img" })) svg.setAttribute(name, value);
  svg.append(line);
  const words = el("div", { class: "faint" });
  function show(values) {
    const peak = Math.max(0, ...values);
    const text = `${title}, last hour: peak ${format(peak)}`;
    say(words, text);
    svg.setAttribute("aria-label", text);
    line.setAttribute("d", values.map((value, at) => {
      if (value === null) return "";
      const [x, y] = [(at * WIDTH) / (values.length - 1), HEIGHT * (1 - value / (peak || 1))].map((each) => each.toFixed(1));
      return (values[at - 1] ?? null) === null ? `M${x} ${y}h0` : `L${x} ${y}`;
    }).join(""));
  }
  return { element: el("div", {}, svg, words), show };
}

function whatIf({ replicas, busy, wait_s, drain_s }, index, waiting) {
  const name = index ? `with ${replicas}` : `With ${replicas} replica${replicas === 1 ? "" : "s"}`;
  const wait = wait_s === null ? "overloaded" : `wait ${seconds(wait_s)}`;
  return `${name}: busy ${percent(busy)}, ${wait}${waiting && drain_s !== null ? `, queue done in ${seconds(drain_s)}` : ""}`;
}

export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function states({ replicas, target_replicas: target, min_replicas, max_replicas }) {
  if (!replicas) return "–";
  const counts = Object.entries(replicas).filter(([, count]) => count).map(([state, count]) => `${count} ${state.toLowerCase()}`);
  const wanted = target === (replicas.RUNNING ?? 0) ? "" : `, target ${target}`;
  return (counts.join(", ") || "none") + wanted + (min_replicas === null ? "" : ` (${min_replicas}–${max_replicas})`);
}

const milliseconds = (value) => (value < 1 ? `${Math.round(1000 * value)} ms` : `${value.toFixed(1)} s`);
const round = (value) => value.toLocaleString(undefined, { maximumFractionDigits: 1 });
const percent = (share) => (share === null ? "–" : `${Math.round(100 * share)} %`);
const pair = (half, most) => (half === null ? "–" : `${seconds(half)} / ${seconds(most)}`);
export const seconds = (value) => (value === null ? "–" : value === 0 ? "0 s" : value < 10 ? `${value.toFixed(1)} s` : value < 120 ? `${Math.round(value)} s` : `${Math.round(value / 60)} min`);
