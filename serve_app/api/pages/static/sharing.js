// A link to a result that can be passed on: whoever has it needs no key, until it expires.
import { sure } from "./account_parts.js";
import { get, post, remove } from "./api.js";
import { el, moment } from "./dom.js";

const SECONDS = 7 * 24 * 3600;

// Shows when a result will be deleted.
export function keptUntil(id) {
  const text = el("span", { class: "faint" });
  get(`/v1/tasks/${encodeURIComponent(id)}`).then(({ expires }) => (text.textContent = `Kept until ${moment(expires)}`)).catch(() => {});
  return text;
}

// `shared`: by earlier links.
export function sharing(id, mayRevoke, shared = false) {
  const path = `/v1/tasks/${encodeURIComponent(id)}/links`;
  const status = el("div", { role: "status" });
  const button = el("button", { type: "button" }, "Share");
  const revoke = () => sure("Revoke", "Revoke all links to this page?", async () => {
    await remove(path);
    status.replaceChildren(el("p", {}, "All links to this page are revoked."));
    button.focus();
  });
  if (shared && mayRevoke) status.replaceChildren(el("p", { class: "row" }, "It is shared by a link.", revoke()));
  button.addEventListener("click", async () => {
    try {
      const { page, expires } = await post(path, { expires_in: SECONDS });
      status.replaceChildren(
        el("p", {}, `Whoever has this link sees it and its prompt, until ${moment(expires)}${mayRevoke ? " or until you revoke it" : ""}.`),
        el("p", { class: "row" }, el("a", { class: "secret", href: page }, page), el("button", { type: "button", onclick: () => navigator.clipboard.writeText(page) }, "Copy"),
          mayRevoke ? revoke() : null));
    } catch (problem) {
      status.replaceChildren(el("p", { class: "bad" }, problem.message));
    }
  });
  return [button, status];
}
