// What is around every page: the way to the others, the project, and signing in.
import { get, post, put, remove } from "./api.js";
import { el } from "./dom.js";
import { forget } from "./requests.js";

const CARRIED = "carried";
const NEEDED = { "/account": "read accounts", "/fleet": "operate" }; // to see a page

// The session, signed in where that needs nothing; else the browser goes to sign in, and comes back afterwards.
export async function open() {
  let session = await get("/v1/session");
  if (!session.signed_in && session.local) session = await post("/v1/session", { local: true });
  if (!session.signed_in) {
    if (location.hash) sessionStorage.setItem(CARRIED, location.hash);
    location.replace(`/sign-in?to=${encodeURIComponent(location.pathname + location.search)}`);
    return new Promise(() => {});
  }
  showIn(document.querySelector("header.top"), session);
  return session;
}

// What is behind the #, also where somebody had to sign in first: that is never sent along.
export function carried() {
  const saved = location.hash || (sessionStorage.getItem(CARRIED) ?? "");
  sessionStorage.removeItem(CARRIED);
  return saved.slice(1);
}

export const may = (session, permission) => session.permissions.includes(permission);

function showIn(header, session) {
  for (const link of header.querySelectorAll("nav a")) {
    const path = link.getAttribute("href");
    link.hidden = path in NEEDED && !may(session, NEEDED[path]);
    if (path === location.pathname) link.ariaCurrent = "page";
  }
  header.querySelector(".row").append(el("div", { class: "row" }, projects(session), theme(), signOut(session)));
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
