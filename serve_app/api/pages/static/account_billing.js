// Sections of the account page on money: credits with their ledger, usage, limits, licences.
import { get, patch, post } from "./api.js";
import { button, el, errorText, formatDate, formatTime, inlineForm, onSubmit, panel, table } from "./dom.js";

const LEDGER_PAGE_SIZE = 50;
const DAY_MS = 24 * 3600 * 1000;
const ENTRY_LABELS = { grant: "Granted", hold: "On hold", settle: "Charged", return: "Not charged" };
const LIMIT_LABELS = { day: "Daily", week: "Weekly", month: "Monthly" };

const formatChange = (sum) => sum.toLocaleString("en", { signDisplay: "exceptZero" }).replace("-", "−");

export async function creditsSection(session) {
  if (!session.may("read credits")) return null;
  const { credits } = await get("/v1/credits");
  const ledger = session.may("read money") && (await new Ledger().build());
  return panel("Credits", {}, el("p", { class: "figure" }, credits.toLocaleString()), ledger);
}

class Ledger {
  #entries = [];
  #cursor;

  constructor() {
    this.rows = el("div");
    this.more = button("Load more", () => this.#load().catch((error) => this.rows.append(errorText(error))));
  }

  async build() {
    await this.#load();
    return this.#entries.length ? el("details", {}, el("summary", {}, "Ledger"), this.rows, this.more) : null;
  }

  async #load() {
    const cursor = this.#cursor ? `&before=${encodeURIComponent(this.#cursor)}` : "";
    const { entries, next } = await get(`/v1/admin/ledger?limit=${LEDGER_PAGE_SIZE}${cursor}`);
    this.#entries.push(...entries);
    this.#cursor = next;
    this.more.hidden = !next;
    this.rows.replaceChildren(table(["When", "What", "Credits", "Balance"], withoutSettledHolds(this.#entries).map(ledgerRow)));
  }
}

// The entry at the end of a task replaces the hold at its start.
function withoutSettledHolds(entries) {
  const settled = new Set(entries.filter(({ kind }) => kind !== "hold").map(({ about }) => about.task));
  return entries.filter(({ kind, about }) => kind !== "hold" || !settled.has(about.task));
}

function ledgerRow({ at, kind, credits, balance, about: { task, endpoint, project, note, cost } }) {
  const label = ENTRY_LABELS[kind];
  const isConcealed = task?.startsWith("sha256:");
  const link = task && !isConcealed ? el("a", { href: `/gallery#${task}` }, task.slice(0, 8)) : project;
  const what = task ? [`${label} · ${endpoint} · `, link] : [label, note].filter(Boolean).join(" · ");
  const change = cost === undefined ? credits : -Number(cost);
  return [formatTime(at), el("span", {}, what), formatChange(change), balance.toLocaleString()];
}

export async function usageSection(session) {
  if (!session.may("read money")) return null;
  const { usage } = await get("/v1/usage");
  const tables = [costTable("Endpoint", costBy(usage, "endpoint")), costTable("Project", costBy(usage, "project"))];
  return panel("Usage this month", { wide: true },
    usage.length ? [costChart(costBy(usage, "day")), el("div", { class: "sections" }, tables)]
      : el("p", { class: "faint" }, "No usage this month."),
    el("p", {}, el("a", { href: "/v1/usage?format=csv" }, "Download as CSV")));
}

function costBy(usage, key) {
  const costs = new Map();
  for (const row of usage) costs.set(row[key], (costs.get(row[key]) ?? 0) + row.cost);
  return costs;
}

function costTable(title, costs) {
  const rows = [...costs].sort((a, b) => b[1] - a[1]).map(([name, cost]) => [name, cost.toFixed(1)]);
  return el("div", {}, table([title, "Credits"], rows));
}

// Draws a bar for each day of the month up to today, in UTC.
function costChart(costs) {
  const today = new Date();
  const first = Date.UTC(today.getUTCFullYear(), today.getUTCMonth(), 1);
  const isoDay = (_, index) => new Date(first + index * DAY_MS).toISOString().slice(0, 10);
  const days = Array.from({ length: today.getUTCDate() }, isoDay);
  const max = Math.max(...costs.values());
  const formatDay = (day) => new Date(day).toLocaleDateString("en", { month: "short", day: "numeric", timeZone: "UTC" });
  const formatCost = (day) => (costs.get(day) ?? 0).toFixed(1);
  const describe = (day) => `${formatDay(day)}: ${formatCost(day)} credits`;
  const bars = days.map((day) => {
    const bar = el("div", { title: describe(day) });
    bar.style.height = `${(100 * (costs.get(day) ?? 0)) / (max || 1)}%`;
    return bar;
  });
  const [peakDay] = [...costs].find(([, cost]) => cost === max);
  const label = `Credits by day: ${days.filter((day) => costs.has(day)).map(describe).join(", ")}`;
  return el("figure", {},
    el("figcaption", { class: "faint" }, `Credits by day. Most on ${describe(peakDay)}; today ${formatCost(days.at(-1))}.`),
    el("div", { class: "chart", "data-max": max.toLocaleString(), role: "img", "aria-label": label }, bars),
    el("div", { class: "row apart faint" }, [...new Set([days[0], days.at(-1)])].map((day) => el("span", {}, formatDay(day)))));
}

export async function limitsSection(session) {
  if (!session.may("read accounts")) return null;
  const list = el("div");

  async function refresh(savedId) {
    const { projects } = await get("/v1/admin/projects");
    list.replaceChildren(...projects.map(({ id, spending }) =>
      el("details", { open: id === session.project }, el("summary", {}, id), limitsForm(id, spending, id === savedId && "Saved."))));
  }

  function limitsForm(id, spending, message) {
    const maySet = session.may("set limits");
    const limits = spending.map((limit) => spendingLimit(limit, maySet));
    const status = el("span", { role: "status" }, message);
    const form = el("form", { noValidate: true }, el("div", { class: "sections" }, limits.map(({ element }) => element)),
      maySet && el("p", { class: "row" }, el("button", {}, "Save limits"), status));
    onSubmit(form, () => save(id, limits.map(({ input }) => input), status));
    return form;
  }

  async function save(id, inputs, status) {
    for (const input of inputs) input.ariaInvalid = String(!input.checkValidity());
    const invalid = inputs.find((input) => !input.checkValidity());
    if (invalid) {
      status.textContent = "Not saved: a limit is a number, 0 or more.";
      invalid.focus({ preventScroll: true });
      return status.scrollIntoView({ block: "nearest" });
    }
    const values = Object.fromEntries(inputs.map(({ name, value }) => [name, value === "" ? null : Number(value)]));
    await patch(`/v1/admin/projects/${encodeURIComponent(id)}`, values)
      .then(() => refresh(id), (error) => (status.textContent = `Not saved: ${error.message}`));
  }

  await refresh();
  const fields = [{ name: "id", title: "Name of a project", required: true, maxLength: 64 }];
  const create = (values) => post("/v1/admin/projects", values).then(() => refresh());
  const form = session.may("manage projects") && inlineForm(fields, "New project", create);
  return panel("Projects and limits", { wide: true }, form, list);
}

function spendingLimit({ window, limit, spent }, maySet) {
  const input = el("input", { name: `limit_${window}`, type: "number", min: 0, step: "any", value: limit ?? "",
    placeholder: "no limit", "aria-label": `Limit of a ${window}, credits`, disabled: !maySet });
  const label = `Spent of the limit of a ${window}`;
  const meter = limit !== null && el("meter", { min: 0, max: limit || 1, value: spent ?? 0, "aria-label": label });
  const element = el("div", {}, el("label", {}, `${LIMIT_LABELS[window]} limit, credits`, input),
    el("small", {}, `${(spent ?? 0).toLocaleString()} spent`), meter);
  return { input, element };
}

export async function licencesSection(session) {
  if (!session.may("read accounts")) return null;
  const { licences } = await get("/v1/admin/licences");
  if (!licences.length) return null;
  const { usage } = session.may("read money") ? await get("/v1/admin/licences/usage") : { usage: [] };
  const countOf = (model) => usage.filter((row) => row.model === model).reduce((sum, row) => sum + row.generations, 0);
  const rows = licences.map(({ model, since }) => [model, formatDate(since), countOf(model).toLocaleString()]);
  return panel("Licences", {}, table(["Model", "Since", "Generated this month"], rows));
}
