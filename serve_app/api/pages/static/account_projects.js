import { call, get, post } from "./api.js";
import { line, section } from "./account_parts.js";
import { el } from "./dom.js";
import { may } from "./shell.js";

// Projects with what they may spend, and what they have.
export async function projects(session) {
  if (!may(session, "read accounts")) return null;
  const list = el("div");
  const refresh = async () => {
    const { projects: found } = await get("/v1/admin/projects");
    list.replaceChildren(...found.map((project) => one(project, session, refresh)));
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
    input.addEventListener("change", () => call("PATCH", path, { [`limit_${span}`]: input.value === "" ? null : Number(input.value) }).then(refresh, (problem) => alert(problem.message)));
    return el("div", {}, el("label", {}, `A ${span}`, input), el("small", {}, `${(spent ?? 0).toLocaleString()} spent`), meter);
  });
  return el("details", { open: project.id === session.project }, el("summary", {}, project.id), el("div", { class: "sections" }, limits));
}
