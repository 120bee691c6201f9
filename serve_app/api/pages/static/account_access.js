// Sections of the account page on access: members, API keys, OAuth clients, the password.
import { get, post, put, remove } from "./api.js";
import { confirmButton, copyButton, el, formatDate, formatTime, inlineForm, options, panel, table } from "./dom.js";

const DAY_S = 86_400;
const VALIDITY_DAYS = { "no expiry": null, "30 days": 30, "90 days": 90, "1 year": 365 };
const MEMBER_ROLES = ["developer", "viewer", "billing_manager", "administrator"];
const KEY_ROLES = ["developer", "viewer", "administrator", "billing_manager"];

const secret = (instruction, text) => [el("p", {}, instruction), el("p", { class: "secret" }, text), copyButton(text)];

export async function membersSection(session) {
  if (!session.may("read accounts")) return null;
  const mayManage = session.may("manage members");
  const list = el("div");
  const invitation = el("div", { role: "status" });

  async function refresh() {
    const { members } = await get("/v1/admin/members");
    list.replaceChildren(members.length ? table(["Person", "Role", ""], members.map(row)) : el("p", { class: "faint" }, "No members yet."));
  }

  function row({ person, role }) {
    if (!mayManage) return [person, role, ""];
    const path = `/v1/admin/members/${encodeURIComponent(person)}`;
    const onchange = ({ target }) => put(path, { role: target.value }).catch((error) => alert(error.message)).then(refresh);
    return [person, el("select", { "aria-label": `Role of ${person}`, onchange }, options(MEMBER_ROLES, role)),
      confirmButton("Remove", `Remove ${person} from the organization?`, () => remove(path).then(refresh))];
  }

  async function invite(values) {
    const { link, expires_in } = await post("/v1/invitations", values);
    const days = Math.round(expires_in / DAY_S);
    invitation.replaceChildren(...secret(`Send this link to one person. It works once, within ${days} days.`, link));
  }

  await refresh();
  const form = mayManage && inlineForm([{ name: "role", title: "Role", choices: MEMBER_ROLES }], "Invite someone", invite);
  return panel("Members", {}, form, invitation, list);
}

export async function keysSection(session) {
  if (!session.may("manage keys of the own project")) return null;
  const roles = session.role === "developer" ? ["developer"] : KEY_ROLES;
  const list = el("div");
  const newKey = el("div", { role: "status" });

  async function refresh() {
    const { keys } = await get(`/v1/admin/keys?project=${encodeURIComponent(session.project)}`);
    list.replaceChildren(table(["Name", "Role", "Begins with", "Last used", "Expires", ""], keys.map(row)));
  }

  function row({ id, name, role, hint, used, expires }) {
    const mayRevoke = session.role === "operator" || roles.includes(role);
    const question = `Revoke the key ${name}? Requests with it are refused within ten seconds.`;
    return [name, role, el("code", {}, `${hint}…`), used && formatTime(used), formatDate(expires),
      mayRevoke && confirmButton("Revoke", question, async () => {
        await remove(`/v1/admin/keys/${id}`);
        newKey.replaceChildren();
        await refresh();
      })];
  }

  async function create({ name, role, validity }) {
    const days = VALIDITY_DAYS[validity];
    const expires = days && Date.now() / 1000 + days * DAY_S;
    const { key } = await post("/v1/admin/keys", { name, role, expires, project: session.project });
    newKey.replaceChildren(...secret("Copy it now: it is not shown again.", key));
    await refresh();
  }

  await refresh();
  const form = inlineForm([
    { name: "name", title: "Name of the key", required: true, maxLength: 100 },
    { name: "role", title: "Role", choices: roles },
    { name: "validity", title: "Valid for", choices: Object.keys(VALIDITY_DAYS) },
  ], "Make a key", create);
  return panel("Keys", { wide: true }, form, newKey, list);
}

export async function oauthClientsSection() {
  const list = el("div");

  async function refresh() {
    const { authorizations } = await get("/v1/authorizations");
    list.replaceChildren(table(["Program", "Allowed by", "Project", "Role", "Since", ""], authorizations.map(row)));
    return authorizations.length;
  }

  const row = ({ id, client, by, project, everywhere, role, created }) => [
    client, by, everywhere ? `${project} and others` : project, role, formatDate(created),
    confirmButton("Revoke", `Revoke the access of ${client}? Its requests are refused within ten seconds.`,
      () => remove(`/v1/authorizations/${id}`).then(refresh)),
  ];

  return (await refresh()) ? panel("OAuth clients", { wide: true }, list) : null;
}

export function passwordSection(session) {
  if (session.by !== "person" || session.openid) return null;
  const status = el("p", { class: "good", role: "status" });
  const input = { type: "password", required: true };
  const form = inlineForm([
    { name: "password", title: "Current password", autocomplete: "current-password", ...input },
    { name: "new", title: "New password, at least 10 characters", autocomplete: "new-password", minLength: 10, ...input },
  ], "Change password", async (values) => {
    await put("/v1/session/password", values);
    status.textContent = "Changed. All other windows are signed out.";
  });
  return panel("Your password", {}, form, status);
}
