import { get, post, remove } from "./api.js";
import { day, line, section, sure, table } from "./account_parts.js";
import { el, moment } from "./dom.js";
import { may } from "./shell.js";

const VALID = { "no expiry": null, "30 days": 30, "90 days": 90, "1 year": 365 };

// Keys of the project. A new one is shown once.
export async function keys(session) {
  if (!may(session, "manage keys of the own project")) return null;
  const roles = session.role === "developer" ? ["developer"] : ["developer", "viewer", "administrator", "billing_manager"];
  const revocable = (key) => session.role === "operator" || roles.includes(key.role);
  const list = el("div");
  const fresh = el("div", { role: "status" });
  const refresh = async () => {
    const { keys: entries } = await get(`/v1/admin/keys?project=${encodeURIComponent(session.project)}`);
    list.replaceChildren(table(["Name", "Role", "Begins with", "Last used", "Expires", ""], entries.map((key) => [key.name, key.role, el("code", {}, `${key.hint}…`), key.used && moment(key.used), day(key.expires), revocable(key) && sure("Revoke", `Revoke the key ${key.name}? Whoever uses it is refused within ten seconds.`, () => remove(`/v1/admin/keys/${key.id}`).then(() => (fresh.replaceChildren(), refresh())))])));
  };
  const make = line([{ name: "name", title: "Name of the key", required: true, maxLength: 100 }, { name: "role", title: "Role", choices: roles }, { name: "valid", title: "Valid for", choices: Object.keys(VALID) }], "Make a key", async ({ name, role, valid }, form) => {
    const expires = VALID[valid] && Date.now() / 1000 + VALID[valid] * 86_400;
    const key = await post("/v1/admin/keys", { name, role, expires, project: session.project });
    fresh.replaceChildren(el("p", {}, "Copy it now: it is not shown again."), el("p", { class: "secret" }, key.key), el("button", { type: "button", onclick: () => navigator.clipboard.writeText(key.key) }, "Copy"));
    form.reset();
    await refresh();
  });
  await refresh();
  return section("Keys", { wide: true }, make, fresh, list);
}
