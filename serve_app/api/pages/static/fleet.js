// The fleet, live: what waits and runs in all, and each model as a card.
import { get } from "./api.js";
import { el } from "./dom.js";
import { modelCard, say, seconds } from "./model.js";
import { carried, open } from "./shell.js";

const EVERY_MS = 2000;
const LEAST_S = 60; // of a full bar, so that a short queue looks short
const WINDOWS = { "5m": "5 min", "1h": "1 h", "24h": "24 h" };

await open();
const linked = carried();
let chosen = Object.hasOwn(WINDOWS, linked) ? linked : "5m";
let last; // answer
const grafana = document.getElementById("grafana");
const cards = new Map(); // by model
const problem = document.getElementById("problem");
const models = document.getElementById("models");
const store = el("meter", { min: 0, "aria-label": "Memory of the task store" });
const [running, waiting, work, memory] = ["running", "waiting", "of work that waits", "in the task store"].map(figure);
memory.element.append(store);

const buttons = Object.entries(WINDOWS).map(([name, title]) =>
  el("button", { type: "button", "aria-pressed": String(name === chosen), onclick: () => choose(name) }, title));
document.getElementById("windows").append(...buttons);

// The address names the window, so that it can be passed on.
function choose(name) {
  chosen = name;
  history.replaceState(null, "", `#${name}`);
  Object.keys(WINDOWS).forEach((each, index) => buttons[index].setAttribute("aria-pressed", String(each === name)));
  if (last) show(last);
}

function figure(title) {
  const value = el("div", { class: "figure" }, "–");
  const element = el("div", {}, value, el("div", { class: "faint" }, title));
  document.getElementById("totals").append(element);
  return { element, value };
}

async function refresh() {
  try {
    last = await get("/v1/admin/fleet");
    show(last);
    problem.hidden = true;
  } catch (refusal) {
    problem.hidden = false;
    if (refusal.status === 403) return clearInterval(timer), say(problem, "Your role can't see the fleet: ask an operator.");
    say(problem, `${refusal.message}; trying again. What is shown is what was last heard.`);
  }
}

function show(fleet) {
  const sum = (of) => fleet.models.reduce((total, model) => total + of(model), 0);
  const most = Math.max(LEAST_S, ...fleet.models.map((model) => model.queued_s ?? 0));
  say(running.value, String(sum((model) => model.running)));
  say(waiting.value, String(sum((model) => model.queued + model.quarantined)));
  say(work.value, seconds(sum((model) => model.queued_s ?? 0)));
  say(memory.value, `${(fleet.store_bytes / 2 ** 20).toFixed(1)} MiB`);
  store.hidden = !fleet.store_limit_bytes;
  store.max = fleet.store_limit_bytes || 1;
  store.value = fleet.store_bytes;
  say(document.getElementById("scale"), `A full bar is ${seconds(most)} of work.`);
  grafana.hidden = !fleet.grafana_url;
  if (fleet.grafana_url) grafana.href = fleet.grafana_url;
  for (const model of fleet.models) card(model.model).show(model, most, chosen);
}

// Models keep their places: what moves about can't be read.
function card(name) {
  if (!cards.has(name)) {
    cards.set(name, modelCard(name));
    models.append(cards.get(name).element);
  }
  return cards.get(name);
}

const timer = setInterval(() => document.hidden || refresh(), EVERY_MS);
refresh();
