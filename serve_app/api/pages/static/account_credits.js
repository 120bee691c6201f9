import { get } from "./api.js";
import { section, table } from "./account_parts.js";
import { el, moment } from "./dom.js";
import { may } from "./shell.js";

const LEDGER = 50; // entries that are asked for at once
const DAY_MS = 24 * 3600 * 1000;
const SAID = { grant: "Granted", hold: "On hold", settle: "Charged", return: "Not charged" };

// What is left, and where the rest went.
export async function credits(session) {
  if (!may(session, "read credits")) return null;
  const { credits: left } = await get("/v1/credits");
  return section("Credits", {}, el("p", { class: "figure" }, left.toLocaleString()), may(session, "read money") ? await ledger() : null);
}

async function ledger() {
  const entries = [];
  const rows = el("div");
  let before;
  const more = el("button", { type: "button", onclick: () => load().catch((problem) => rows.append(el("p", { class: "bad", role: "alert" }, problem.message))) }, "Load more");
  const load = async () => {
    const page = await get(`/v1/admin/ledger?limit=${LEDGER}${before ? `&before=${encodeURIComponent(before)}` : ""}`);
    entries.push(...page.entries);
    before = page.next;
    more.hidden = !before;
    rows.replaceChildren(table(["When", "What", "Credits", "Balance"], byTask(entries).map(row)));
  };
  await load();
  return entries.length ? el("details", {}, el("summary", {}, "Ledger"), rows, more) : null;
}

// Of a task that has ended, its end says all: the hold before it is left out.
function byTask(entries) {
  const ended = new Set(entries.filter((entry) => entry.kind !== "hold").map((entry) => entry.about.task));
  return entries.filter((entry) => entry.kind !== "hold" || !ended.has(entry.about.task));
}

function row({ at, kind, credits: change, balance, about }) {
  const own = about.task && !about.task.startsWith("sha256:");
  const task = own ? el("a", { href: `/gallery#${about.task}` }, about.task.slice(0, 8)) : about.project;
  const what = about.task ? [`${SAID[kind]} · ${about.endpoint} · `, task] : [SAID[kind], about.note].filter(Boolean).join(" · ");
  const sum = about.cost === undefined ? change : -Number(about.cost);
  return [moment(at), el("span", {}, what), signed(sum), balance.toLocaleString()];
}

const signed = (sum) => sum.toLocaleString("en", { signDisplay: "exceptZero" }).replace("-", "−");

// This month by day, endpoint and project.
export async function usage(session) {
  if (!may(session, "read money")) return null;
  const { usage: entries } = await get("/v1/usage");
  const total = (rows, of) => rows.reduce((sums, row) => sums.set(of(row), (sums.get(of(row)) ?? 0) + row.cost), new Map());
  const by = (title, of) => el("div", {}, table([title, "Credits"], [...total(entries, of)].sort((a, b) => b[1] - a[1]).map(([name, cost]) => [name, cost.toFixed(1)])));
  return section("Usage this month", { wide: true },
    entries.length ? [chart(total(entries, (row) => row.day)), el("div", { class: "sections" }, by("Endpoint", (row) => row.endpoint), by("Project", (row) => row.project))] : el("p", { class: "faint" }, "Nothing yet."),
    el("p", {}, el("a", { href: "/v1/usage?format=csv" }, "As CSV")));
}

// A bar for each day of the month so far, UTC; `costs` by days on which there was any.
function chart(costs) {
  const today = new Date();
  const first = Date.UTC(today.getUTCFullYear(), today.getUTCMonth(), 1);
  const days = Array.from({ length: today.getUTCDate() }, (_, index) => new Date(first + index * DAY_MS).toISOString().slice(0, 10));
  const most = Math.max(...costs.values());
  const named = (day) => new Date(day).toLocaleDateString("en", { month: "short", day: "numeric", timeZone: "UTC" });
  const said = (day) => `${named(day)}: ${(costs.get(day) ?? 0).toFixed(1)} credits`;
  const bars = days.map((day) => {
    const bar = el("div", { title: said(day) });
    bar.style.height = `${(100 * (costs.get(day) ?? 0)) / (most || 1)}%`;
    return bar;
  });
  const peak = [...costs].find(([, cost]) => cost === most)[0];
  return el("figure", {},
    el("figcaption", { class: "faint" }, `Credits by day. Most on ${said(peak)}; today ${(costs.get(days.at(-1)) ?? 0).toFixed(1)}.`),
    el("div", { class: "chart", "data-most": most.toLocaleString(), role: "img", "aria-label": `Credits by day: ${days.filter((day) => costs.has(day)).map(said).join(", ")}` }, bars),
    el("div", { class: "row apart faint" }, el("span", {}, named(days[0])), days.length > 1 ? el("span", {}, named(days.at(-1))) : null));
}
