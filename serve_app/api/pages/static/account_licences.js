import { get } from "./api.js";
import { day, section, table } from "./account_parts.js";
import { may } from "./shell.js";

// Models that the organization runs on its own machines; nothing where it has none.
export async function licences(session) {
  if (!may(session, "read accounts")) return null;
  const { licences: entries } = await get("/v1/admin/licences");
  if (!entries.length) return null;
  const countByModel = new Map();
  if (may(session, "read money")) {
    const { usage } = await get("/v1/admin/licences/usage");
    for (const each of usage) countByModel.set(each.model, (countByModel.get(each.model) ?? 0) + each.generations);
  }
  const rows = entries.map((each) => [each.model, day(each.since), (countByModel.get(each.model) ?? 0).toLocaleString()]);
  return section("Licences", {}, table(["Model", "Since", "Generated this month"], rows));
}
