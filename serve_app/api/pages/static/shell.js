// What is around every page: the way to the others, the project, and signing in.
import { get, post, put, remove } from "./api.js";
import { el } from "./dom.js";
import { forget } from "./requests.js";

const CARRIED = "carried";
const PAGES = [["/", "Playground"], ["/gallery", "Gallery"], ["/account", "Account", "read accounts"], ["/fleet", "Fleet", "operate"]];

// The session, signed in where that needs nothing; else the browser goes to sign in, and comes back afterwards.
export async function open() {
  let session = await get("/v1/session");
  if (!session.signed_in && session.local) session = await post("/v1/session", { local: true });
  if (!session.signed_in) {
    if (location.hash) sessionStorage.setItem(CARRIED, location.hash);
    location.replace(`/sign-in?to=${encodeURIComponent(location.pathname + location.search)}`);
    return new Promise(() => {});
  }
  document.querySelector("header.top").replaceWith(header(session));
  return session;
}

// What is behind the #, also where somebody had to sign in first: that is never sent along.
export function carried() {
  const saved = location.hash || (sessionStorage.getItem(CARRIED) ?? "");
  sessionStorage.removeItem(CARRIED);
  return saved.slice(1);
}

export const may = (session, permission) => session.permissions.includes(permission);

function header(session) {
  const links = PAGES.filter(([, , permission]) => !permission || may(session, permission)).map(([path, name]) =>
    el("a", { href: path, "aria-current": location.pathname === path ? "page" : null }, name),
  );
  return el("header", { class: "top" },
    el("a", { class: "skip", href: "#main" }, "To the content"),
    el("div", { class: "row apart" },
      el("nav", { class: "row", "aria-label": "Pages" }, el("strong", {}, "gen-serve"), links, el("a", { href: "/guide/quickstart" }, "Docs")),
      el("div", { class: "row" }, projects(session), theme(), signOut(session)),
    ),
  );
}

function projects(session) {
  if (session.projects.length < 2) return el("span", { class: "faint" }, session.project);
  const choose = el("select", { "aria-label": "Project" },
    session.projects.map((name) => el("option", { value: name, selected: name === session.project }, name)),
  );
  choose.addEventListener("change", async () => {
    await put("/v1/session", { project: choose.value });
    location.reload();
  });
  return choose;
}

function theme() {
  const saved = localStorage.getItem("theme");
  if (saved) document.documentElement.dataset.theme = saved;
  const dark = () => (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const button = el("button", { class: "plain", type: "button", "aria-label": "Dark", "aria-pressed": String(dark()) }, "◐");
  button.addEventListener("click", () => {
    const next = dark() ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    localStorage.setItem("theme", next);
    button.setAttribute("aria-pressed", String(next === "dark"));
  });
  return button;
}

function signOut(session) {
  if (session.name === "local") return null;
  const button = el("button", { type: "button" }, "Sign out");
  button.addEventListener("click", async () => {
    await remove("/v1/session");
    forget();
    location.assign("/sign-in");
  });
  return button;
}
