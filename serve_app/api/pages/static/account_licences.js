import { get } from "./api.js";
import { day, section, table } from "./account_parts.js";
import { may } from "./shell.js";

// Models that the organization runs on its own machines; nothing where it has none.
export async function licences(session) {
  if (!may(session, "read accounts")) return null;
  const { licences: found } = await get("/v1/admin/licences");
  if (!found.length) return null;
  const reported = new Map();
  if (may(session, "read money")) {
    const { usage } = await get("/v1/admin/licences/usage");
    for (const each of usage) reported.set(each.model, (reported.get(each.model) ?? 0) + each.generations);
  }
  const rows = found.map((each) => [each.model, day(each.since), (reported.get(each.model) ?? 0).toLocaleString()]);
  return section("Licences", {}, table(["Model", "Since", "Generated this month"], rows));
}
