import { call, get, post } from "./api.js";
import { line, section } from "./account_parts.js";
import { el } from "./dom.js";
import { may } from "./shell.js";

const LIMITS = { day: "Daily", week: "Weekly", month: "Monthly" };

// Projects with what they may spend, and what they have.
export async function projects(session) {
  if (!may(session, "read accounts")) return null;
  const list = el("div");
  const refresh = async () => {
    const { projects: entries } = await get("/v1/admin/projects");
    list.replaceChildren(...entries.map((project) => one(project, session, refresh)));
  };
  const make = may(session, "manage projects") ? line([{ name: "id", title: "Name of a project", required: true, maxLength: 64 }], "New project", (values) => post("/v1/admin/projects", values).then(refresh)) : null;
  await refresh();
  return section("Projects and limits", { wide: true }, make, list);
}

function one(project, session, refresh) {
  const path = `/v1/admin/projects/${encodeURIComponent(project.id)}`;
  const limits = project.spending.map(({ window: span, limit, spent }) => {
    const meter = limit == null ? null : el("meter", { min: 0, max: limit || 1, value: spent ?? 0, "aria-label": `Spent of the limit of a ${span}` });
    const input = el("input", { type: "number", min: 0, step: "any", value: limit ?? "", placeholder: "no limit", "aria-label": `Limit of a ${span}, credits`, disabled: !may(session, "set limits") });
    const told = el("small", { role: "status" }, `${(spent ?? 0).toLocaleString()} spent`);
    input.addEventListener("change", async () => {
      input.setAttribute("aria-invalid", String(!input.checkValidity()));
      const say = ({ message }) => {
        told.textContent = `Not saved: ${message}`;
        told.scrollIntoView({ block: "nearest" });
      };
      if (!input.checkValidity()) return say({ message: "a limit is a number, 0 or more." });
      await call("PATCH", path, { [`limit_${span}`]: input.value === "" ? null : Number(input.value) }).then(refresh, say);
    });
    return el("div", {}, el("label", {}, `${LIMITS[span]} limit, credits`, input), told, meter);
  });
  return el("details", { open: project.id === session.project }, el("summary", {}, project.id), el("div", { class: "sections" }, limits));
}
