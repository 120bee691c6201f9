// Lanes, live: what waits, what runs, how long that takes.
import { get } from "./api.js";
import { table } from "./account_parts.js";
import { el } from "./dom.js";
import { open } from "./shell.js";

const EVERY_MS = 2000;

await open();
const holder = document.getElementById("sections");
const problem = el("p", { class: "notice", role: "status", hidden: true });
holder.before(problem);

async function refresh() {
  try {
    const fleet = await get("/v1/admin/fleet");
    problem.hidden = true;
    const busy = (lane) => lane.queued + lane.running + lane.work.tasks;
    holder.replaceChildren(
      el("section", { class: "panel wide" }, el("h2", {}, "Lanes"),
        table(["Lane", "Waits", "Runs", "Wait predicted", "Waited (half / 95 %)", "Worked (mean)", "Ready", "Failed"],
          fleet.lanes.toSorted((a, b) => busy(b) - busy(a)).map((lane) => [
            lane.lane, lane.queued + lane.suspects, lane.running, seconds(lane.predicted_wait_s),
            `${seconds(lane.wait.half)} / ${seconds(lane.wait.most)}`, seconds(lane.work.mean), lane.ended.Ready ?? 0, lane.ended.Error ?? 0,
          ]))),
      el("section", { class: "panel" }, el("h2", {}, "Task store"), el("p", { class: "figure" }, `${(fleet.store_bytes / 2 ** 20).toFixed(1)} MiB`),
        fleet.store_limit_bytes ? el("meter", { min: 0, max: fleet.store_limit_bytes, value: fleet.store_bytes, "aria-label": "Memory used" }) : null));
  } catch (refusal) {
    problem.textContent = `${refusal.message}; trying again`;
    problem.hidden = false;
  }
}

const seconds = (value) => (value === null ? "–" : value < 10 ? `${value.toFixed(1)} s` : value < 120 ? `${Math.round(value)} s` : `${Math.round(value / 60)} min`);

refresh();
setInterval(() => document.hidden || refresh(), EVERY_MS);
