import { get } from "./api.js";
import { section, table } from "./account_parts.js";
import { el } from "./dom.js";
import { may } from "./shell.js";

const LEDGER = 20;

// What is left, and where the rest went.
export async function credits(session) {
  if (!may(session, "read credits")) return null;
  const { credits: left } = await get("/v1/credits");
  const ledger = may(session, "read money") ? (await get(`/v1/admin/ledger?limit=${LEDGER}`)).entries : [];
  return section("Credits", {}, el("p", { class: "figure" }, left.toLocaleString()),
    ledger.length ? el("details", {}, el("summary", {}, "Ledger"), table(["When", "What", "Credits", "Balance"], ledger.map((entry) => [new Date(entry.at).toLocaleString(), `${entry.kind} ${entry.about ?? ""}`, entry.credits, entry.balance]))) : null);
}

// This month by day, endpoint and project.
export async function usage(session) {
  if (!may(session, "read money")) return null;
  const { usage: found } = await get("/v1/usage");
  const total = (rows, of) => rows.reduce((sums, row) => sums.set(of(row), (sums.get(of(row)) ?? 0) + row.cost), new Map());
  const by = (title, of) => el("div", {}, table([title, "Credits"], [...total(found, of)].sort((a, b) => b[1] - a[1]).map(([name, cost]) => [name, cost.toFixed(1)])));
  return section("Usage this month", { wide: true },
    found.length ? [chart([...total(found, (row) => row.day)].sort()), el("div", { class: "sections" }, by("Endpoint", (row) => row.endpoint), by("Project", (row) => row.project))] : el("p", { class: "faint" }, "Nothing yet."),
    el("p", {}, el("a", { href: "/v1/usage?format=csv" }, "As CSV")));
}

function chart(days) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const most = Math.max(...days.map(([, cost]) => cost));
  svg.setAttribute("viewBox", `0 0 ${Math.max(days.length, 7) * 10} 40`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("class", "chart");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `Credits by day: ${days.map(([day, cost]) => `${day} ${cost.toFixed(1)}`).join(", ")}`);
  days.forEach(([, cost], index) => {
    const bar = document.createElementNS(svg.namespaceURI, "rect");
    const height = (38 * cost) / most;
    for (const [name, value] of Object.entries({ x: index * 10 + 1, y: 40 - height, width: 8, height })) bar.setAttribute(name, value);
    svg.append(bar);
  });
  return svg;
}
