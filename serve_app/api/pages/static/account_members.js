import { get, post, put, remove } from "./api.js";
import { line, section, sure, table } from "./account_parts.js";
import { el } from "./dom.js";
import { may } from "./shell.js";

const ROLES = ["developer", "viewer", "billing_manager", "administrator"];

// Who belongs to the organization, and links that make others do.
export async function members(session) {
  if (!may(session, "read accounts")) return null;
  const manages = may(session, "manage members");
  const list = el("div");
  const refresh = async () => {
    const { members: entries } = await get("/v1/admin/members");
    list.replaceChildren(entries.length ? table(["Person", "Role", ""], entries.map((member) => [member.person, role(member), manages ? sure("Take out", `Take ${member.person} out of the organization?`, () => remove(path(member)).then(refresh)) : ""])) : el("p", { class: "faint" }, "No members yet."));
  };
  const path = (member) => `/v1/admin/members/${encodeURIComponent(member.person)}`;
  const role = (member) => {
    if (!manages) return member.role;
    const select = el("select", { "aria-label": `Role of ${member.person}` }, ROLES.map((each) => el("option", { value: each, selected: each === member.role }, each.replace("_", " "))));
    select.addEventListener("change", () => put(path(member), { role: select.value }).catch((problem) => alert(problem.message)).then(refresh));
    return select;
  };
  const link = el("div", { role: "status" });
  const invite = manages ? line([{ name: "role", title: "Role", choices: ROLES }], "Invite someone", async (values) => {
    const invitation = await post("/v1/invitations", values);
    link.replaceChildren(el("p", {}, `Send this link to one person; it serves once, within ${Math.round(invitation.expires_in / 86400)} days.`), el("p", { class: "secret" }, invitation.link), el("button", { type: "button", onclick: () => navigator.clipboard.writeText(invitation.link) }, "Copy"));
  }) : null;
  await refresh();
  return section("Members", {}, invite, link, list);
}
