import { get, post, remove } from "./api.js";
import { day, line, section, sure, table } from "./account_parts.js";
import { el } from "./dom.js";
import { may } from "./shell.js";

// Keys of the project. A new one is shown once.
export async function keys(session) {
  if (!may(session, "manage keys of the own project")) return null;
  const list = el("div");
  const fresh = el("div", { role: "status" });
  const refresh = async () => {
    const { keys: entries } = await get(`/v1/admin/keys?project=${encodeURIComponent(session.project)}`);
    list.replaceChildren(table(["Name", "Role", "Begins with", "Last used", ""], entries.map((key) => [key.name, key.role, el("code", {}, `${key.hint}…`), day(key.used), sure("Revoke", `Revoke the key ${key.name}? Whoever uses it is refused within ten seconds.`, () => remove(`/v1/admin/keys/${key.id}`).then(refresh))])));
  };
  const roles = session.role === "developer" ? ["developer"] : ["developer", "viewer", "administrator", "billing_manager"];
  const make = line([{ name: "name", title: "Name of the key", required: true, maxLength: 100 }, { name: "role", title: "Role", choices: roles }], "Make a key", async (values, form) => {
    const key = await post("/v1/admin/keys", { ...values, project: session.project });
    fresh.replaceChildren(el("p", {}, "Copy it now: it is not shown again."), el("p", { class: "secret" }, key.key), el("button", { type: "button", onclick: () => navigator.clipboard.writeText(key.key) }, "Copy"));
    form.reset();
    await refresh();
  });
  await refresh();
  return section("Keys", { wide: true }, make, fresh, list);
}
