import { put } from "./api.js";
import { line, section } from "./account_parts.js";
import { el } from "./dom.js";

// For those who sign in by a password of this service.
export async function password(session) {
  if (session.by !== "person" || session.openid) return null;
  const status = el("p", { class: "good", role: "status" });
  const fields = [
    { name: "password", title: "The one so far", type: "password", autocomplete: "current-password", required: true },
    { name: "new", title: "The new one, 10 characters or more", type: "password", autocomplete: "new-password", required: true, minLength: 10 },
  ];
  const form = line(fields, "Change it", async (values, form) => {
    await put("/v1/session/password", values);
    form.reset();
    status.textContent = "Changed. All other windows are signed out.";
  });
  return section("Your password", {}, form, status);
}
