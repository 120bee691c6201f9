// A link to a result that can be passed on: whoever has it needs no key, until it expires.
import { post } from "./api.js";
import { el } from "./dom.js";

const DAYS = 7;

export function sharing(id) {
  const told = el("div", { role: "status" });
  const button = el("button", { type: "button" }, "Share");
  button.addEventListener("click", async () => {
    try {
      const { url, expires } = await post(`/v1/tasks/${encodeURIComponent(id)}/links`, { expires_in: DAYS * 24 * 3600 });
      told.replaceChildren(
        el("p", {}, `Whoever has this link sees it, until ${new Date(expires * 1000).toLocaleString()}.`),
        el("p", { class: "row" }, el("code", { class: "secret" }, url), el("button", { type: "button", onclick: () => navigator.clipboard.writeText(url) }, "Copy")));
    } catch (problem) {
      told.replaceChildren(el("p", { class: "bad" }, problem.message));
    }
  });
  return [button, told];
}
