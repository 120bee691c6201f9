import { get, remove } from "./api.js";
import { day, section, sure, table } from "./account_parts.js";
import { el } from "./dom.js";

// Programs that were let in; nothing where there are none.
export async function programs() {
  const list = el("div");
  const refresh = async () => {
    const { authorizations } = await get("/v1/authorizations");
    list.replaceChildren(table(["Program", "Let in by", "Project", "Role", "Since", ""], authorizations.map((each) => [
      each.client, each.by, each.everywhere ? `${each.project} and others` : each.project, each.role, day(each.created),
      sure("Revoke", `Revoke the access of ${each.client}? It is refused within ten seconds.`, () => remove(`/v1/authorizations/${each.id}`).then(refresh))])));
    return authorizations.length;
  };
  return (await refresh()) ? section("OAuth clients", { wide: true }, list) : null;
}
