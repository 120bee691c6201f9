// The fleet page: the work in all queues, and a card for each model. Elements change in place, so nothing flickers.
import { get } from "./api.js";
import { browserStore } from "./browser_store.js";
import { el, fromTemplate, pageElements, setMessage, setText, svg, uniqueId } from "./dom.js";
import { Session } from "./session.js";

const REFRESH_MS = 2000;
const MIN_BAR_S = 60; // of work in a full bar, so that a short queue looks short
const DEFAULT_WINDOW = "5m";
const CHART_WIDTH = 120;
const CHART_HEIGHT = 28;

function formatDuration(seconds) {
  if (seconds === null) return "–";
  if (seconds === 0) return "0 s";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  return seconds < 120 ? `${Math.round(seconds)} s` : `${Math.round(seconds / 60)} min`;
}

const formatStep = (seconds) => (seconds < 1 ? `${Math.round(1000 * seconds)} ms` : `${seconds.toFixed(1)} s`);
const formatNumber = (value) => value.toLocaleString(undefined, { maximumFractionDigits: 1 });
const formatPercent = (share) => (share === null ? "–" : `${Math.round(100 * share)} %`);
const formatPair = (p50, p95) => (p50 === null ? "–" : `${formatDuration(p50)} / ${formatDuration(p95)}`);

function formatReplicas({ replicas, target_replicas: target, min_replicas: min, max_replicas: max }) {
  if (!replicas) return "–";
  const states = Object.entries(replicas).filter(([, count]) => count);
  const counts = states.map(([state, count]) => `${count} ${state.toLowerCase()}`);
  const goal = target === (replicas.RUNNING ?? 0) ? "" : `, target ${target}`;
  return (counts.join(", ") || "none") + goal + (min === null ? "" : ` (${min}–${max})`);
}

function formatErrors({ error_rate: rate, failed }) {
  return formatPercent(rate) + (failed ? ` (${failed.toLocaleString()} failed)` : "");
}

function formatWhatIf({ replicas, busy, wait_s, drain_s }, index, waiting) {
  const name = index ? `with ${replicas}` : `With ${replicas} replica${replicas === 1 ? "" : "s"}`;
  const wait = wait_s === null ? "overloaded" : `wait ${formatDuration(wait_s)}`;
  const drain = waiting && drain_s !== null ? `, queue done in ${formatDuration(drain_s)}` : "";
  return `${name}: busy ${formatPercent(busy)}, ${wait}${drain}`;
}

// The figures of a card. Each function gets the model and its statistics of the selected window.
const FIGURES = {
  estimatedWait: (model) => formatDuration(model.predicted_wait_s),
  queueWait: (model, { wait_p50, wait_p95 }) => formatPair(wait_p50, wait_p95),
  runTime: (model, { run_p50, run_p95 }) => formatPair(run_p50, run_p95),
  throughput: (model, { per_minute }) => formatNumber(per_minute),
  errorRate: (model, recent) => formatErrors(recent),
  busy: (model, { busy }) => formatPercent(busy),
  replicas: formatReplicas,
  coldStart: (model) => formatDuration(model.cold_start_s),
  batch: ({ batch, step_s }) => (batch ? `${batch}, ${formatStep(step_s)} a step` : "–"),
};

// The last hour as a line with its peak in words. A minute without a value is a gap.
class Sparkline {
  constructor(title, format) {
    this.title = title;
    this.format = format;
    this.line = svg("path", {});
    const viewBox = `-2 -2 ${CHART_WIDTH + 4} ${CHART_HEIGHT + 4}`;
    this.chart = svg("svg", { viewBox, preserveAspectRatio: "none", role: "img" }, this.line);
    this.text = el("div", { class: "faint" });
    this.element = el("div", {}, this.chart, this.text);
  }

  show(values) {
    const peak = Math.max(0, ...values);
    const text = `${this.title}, last hour: peak ${this.format(peak)}`;
    setText(this.text, text);
    this.chart.ariaLabel = text;
    this.line.setAttribute("d", values.map((value, index) => {
      if (value === null) return "";
      const x = ((index * CHART_WIDTH) / (values.length - 1)).toFixed(1);
      const y = (CHART_HEIGHT * (1 - value / (peak || 1))).toFixed(1);
      return (values[index - 1] ?? null) === null ? `M${x} ${y}h0` : `L${x} ${y}`;
    }).join(""));
  }
}

class ModelCard {
  constructor(name) {
    Object.assign(this, fromTemplate("model-card"));
    this.heading.id = uniqueId("model");
    this.heading.textContent = name;
    this.element.setAttribute("aria-labelledby", this.heading.id);
    this.bar.ariaLabel = `Work that waits in ${name}, seconds`;
    this.readyChart = new Sparkline("Ready per minute", formatNumber);
    this.waitChart = new Sparkline("Queue wait p95", formatDuration);
    this.history.append(this.readyChart.element, this.waitChart.element);
  }

  // `maxWorkS` is the work that fills the bar.
  show(model, maxWorkS, window) {
    const waiting = model.queued + model.quarantined;
    this.element.classList.toggle("idle", waiting + model.running === 0);
    setText(this.load, `${model.running} running, ${waiting} waiting`);
    setMessage(this.fault, model.fault ? `Can't be loaded: ${model.fault}` : "");
    this.#showQueue(waiting, model.queued_s, maxWorkS);
    for (const [part, format] of Object.entries(FIGURES)) setText(this[part], format(model, model.windows[window]));
    this.readyChart.show(model.history.map((minute) => minute.ready));
    this.waitChart.show(model.history.map((minute) => minute.wait_p95));
    const others = model.what_if.filter(({ replicas }) => replicas !== (model.replicas?.RUNNING ?? 0));
    setText(this.whatIf, others.map((each, index) => formatWhatIf(each, index, waiting)).join("; "));
    this.#showErrors(model.failures);
  }

  #showQueue(waiting, workS, maxWorkS) {
    const work = workS === null ? "Duration not known yet" : `${formatDuration(workS)} of work`;
    setText(this.queue, waiting ? work : "Nothing waits");
    this.fill.style.width = `${(100 * (workS ?? 0)) / maxWorkS}%`;
    this.bar.ariaValueNow = Math.round(workS ?? 0);
    this.bar.ariaValueMax = Math.round(maxWorkS);
    this.bar.ariaValueText = this.queue.textContent;
  }

  #showErrors(failures) {
    this.errors.hidden = failures.length === 0;
    const newest = failures[0]?.task;
    if (newest === this.errorList.dataset.newest) return;
    this.errorList.dataset.newest = newest;
    this.errorList.replaceChildren(...failures.map(({ at, error, endpoint }) =>
      el("li", {}, `${new Date(at * 1000).toLocaleString()}: ${error} (${endpoint})`)));
  }
}

class FleetPage {
  #window;
  #fleet = null;
  #timer = 0;
  #cards = new Map(); // by model

  constructor() {
    const ids = ["running", "waiting", "work", "memory", "store", "windows", "models", "problem", "scale", "grafana"];
    Object.assign(this, pageElements(...ids));
    const fragment = browserStore.takeFragment();
    const buttons = [...this.windows.children];
    for (const each of buttons) {
      each.onclick = () => {
        history.replaceState(null, "", `#${each.value}`); // so that the address can be shared
        this.#selectWindow(each.value);
      };
    }
    this.#selectWindow(buttons.some(({ value }) => value === fragment) ? fragment : DEFAULT_WINDOW);
  }

  start() {
    this.#timer = setInterval(() => document.hidden || this.#refresh(), REFRESH_MS);
    this.#refresh();
  }

  #selectWindow(name) {
    this.#window = name;
    for (const each of this.windows.children) each.ariaPressed = String(each.value === name);
    if (this.#fleet) this.#show(this.#fleet);
  }

  async #refresh() {
    try {
      this.#fleet = await get("/v1/admin/fleet");
      this.#show(this.#fleet);
      setMessage(this.problem);
    } catch (error) {
      const isForbidden = error.status === 403;
      if (isForbidden) clearInterval(this.#timer);
      setMessage(this.problem, isForbidden ? "Your role can't see the fleet. Ask an operator for access."
        : `${error.message}; trying again. The figures are the last ones received.`);
    }
  }

  #show(fleet) {
    const sum = (count) => fleet.models.reduce((total, model) => total + count(model), 0);
    const maxWorkS = Math.max(MIN_BAR_S, ...fleet.models.map((model) => model.queued_s ?? 0));
    setText(this.running, String(sum((model) => model.running)));
    setText(this.waiting, String(sum((model) => model.queued + model.quarantined)));
    setText(this.work, formatDuration(sum((model) => model.queued_s ?? 0)));
    setText(this.memory, `${(fleet.store_bytes / 2 ** 20).toFixed(1)} MiB`);
    this.store.hidden = !fleet.store_limit_bytes;
    this.store.max = fleet.store_limit_bytes || 1;
    this.store.value = fleet.store_bytes;
    setText(this.scale, `A full bar is ${formatDuration(maxWorkS)} of work.`);
    this.grafana.hidden = !fleet.grafana_url;
    if (fleet.grafana_url) this.grafana.href = fleet.grafana_url;
    for (const model of fleet.models) this.#card(model.model).show(model, maxWorkS, this.#window);
  }

  // Cards stay in their order, as moving cards are hard to read.
  #card(name) {
    if (!this.#cards.has(name)) {
      const card = new ModelCard(name);
      this.#cards.set(name, card);
      this.models.append(card.element);
    }
    return this.#cards.get(name);
  }
}

await Session.open();
new FleetPage().start();
