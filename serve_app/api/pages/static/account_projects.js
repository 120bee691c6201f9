import { call, get, post } from "./api.js";
import { line, section } from "./account_parts.js";
import { el } from "./dom.js";
import { may } from "./shell.js";

const LIMITS = { day: "Daily", week: "Weekly", month: "Monthly" };

// Projects with what they may spend, and what they have.
export async function projects(session) {
  if (!may(session, "read accounts")) return null;
  const list = el("div");
  const refresh = async (saved) => {
    const { projects: entries } = await get("/v1/admin/projects");
    list.replaceChildren(...entries.map((project) => one(project, session, refresh, project.id === saved ? "Saved." : "")));
  };
  const make = may(session, "manage projects") ? line([{ name: "id", title: "Name of a project", required: true, maxLength: 64 }], "New project", (values) => post("/v1/admin/projects", values).then(() => refresh())) : null;
  await refresh();
  return section("Projects and limits", { wide: true }, make, list);
}

function one(project, session, refresh, said) {
  const mayset = may(session, "set limits");
  const status = el("span", { role: "status" }, said);
  const limits = project.spending.map(({ window: span, limit, spent }) => {
    const input = el("input", { name: `limit_${span}`, type: "number", min: 0, step: "any", value: limit ?? "", placeholder: "no limit", "aria-label": `Limit of a ${span}, credits`, disabled: !mayset });
    const meter = limit == null ? null : el("meter", { min: 0, max: limit || 1, value: spent ?? 0, "aria-label": `Spent of the limit of a ${span}` });
    return { input, element: el("div", {}, el("label", {}, `${LIMITS[span]} limit, credits`, input), el("small", {}, `${(spent ?? 0).toLocaleString()} spent`), meter) };
  });
  const form = el("form", { noValidate: true }, el("div", { class: "sections" }, limits.map(({ element }) => element)),
    mayset ? el("p", { class: "row" }, el("button", {}, "Save limits"), status) : null);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const wrong = limits.filter(({ input }) => !input.checkValidity());
    for (const { input } of limits) input.setAttribute("aria-invalid", String(!input.checkValidity()));
    status.textContent = "Not saved: a limit is a number, 0 or more.";
    wrong[0]?.input.focus({ preventScroll: true });
    if (wrong.length) return status.scrollIntoView({ block: "nearest" });
    const values = Object.fromEntries(limits.map(({ input }) => [input.name, input.value === "" ? null : Number(input.value)]));
    await call("PATCH", `/v1/admin/projects/${encodeURIComponent(project.id)}`, values).then(() => refresh(project.id), (problem) => (status.textContent = `Not saved: ${problem.message}`));
  });
  return el("details", { open: project.id === session.project }, el("summary", {}, project.id), form);
}
