// The session of the person who uses the page, and the header that depends on it.
import { get, post, put, remove } from "./api.js";
import { browserStore } from "./browser_store.js";
import { button, el } from "./dom.js";

const PERMISSION_BY_PATH = { "/account": "read accounts", "/fleet": "operate" };

export class Session {
  // Signs in where that needs no credentials. Otherwise the browser goes to the sign-in page and comes back afterwards.
  static async open() {
    let answer = await get("/v1/session");
    if (!answer.signed_in && answer.local) answer = await post("/v1/session", { local: true });
    if (!answer.signed_in) {
      browserStore.saveFragment();
      location.replace(`/sign-in?to=${encodeURIComponent(location.pathname + location.search)}`);
      return new Promise(() => {});
    }
    const session = new Session(answer);
    session.#fillHeader(document.querySelector("header.top"));
    return session;
  }

  constructor(answer) {
    Object.assign(this, answer);
  }

  may(permission) {
    return this.permissions.includes(permission);
  }

  #fillHeader(header) {
    for (const link of header.querySelectorAll("nav a")) {
      const path = link.getAttribute("href");
      link.hidden = path in PERMISSION_BY_PATH && !this.may(PERMISSION_BY_PATH[path]);
      if (path === location.pathname) link.ariaCurrent = "page";
    }
    const signOut = this.name === "local" ? null : button("Sign out", async () => {
      await remove("/v1/session");
      browserStore.forgetRequests();
      location.assign("/sign-in");
    });
    header.querySelector(".row").append(el("div", { class: "row" }, this.#projectPicker(), themeButton(), signOut));
  }

  #projectPicker() {
    if (this.projects.length < 2) return el("span", { class: "faint" }, this.project);
    const onchange = async ({ target }) => {
      await put("/v1/session", { project: target.value });
      location.reload();
    };
    return el("select", { "aria-label": "Project", onchange }, this.projects.map((name) =>
      el("option", { value: name, selected: name === this.project }, name)));
  }
}

function themeButton() {
  const root = document.documentElement;
  const systemTheme = () => (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const isDark = () => (root.dataset.theme ?? systemTheme()) === "dark";
  const toggle = ({ currentTarget }) => {
    root.dataset.theme = isDark() ? "light" : "dark";
    browserStore.saveTheme(root.dataset.theme);
    currentTarget.setAttribute("aria-pressed", String(isDark()));
  };
  return button("◐", toggle, { class: "plain", "aria-label": "Dark", "aria-pressed": String(isDark()) });
}
