// What the project has asked for, newest first: pictures as they come, the queue with them.
import { get, remove } from "./api.js";
import { el } from "./dom.js";
import { isEnd } from "./follow.js";
import { endpoints } from "./schema.js";
import { may, open } from "./shell.js";

const EVERY_MS = 3000;
const LIMIT = 40;

const session = await open();
const list = document.getElementById("tasks");
const filters = document.getElementById("filters");
const more = document.getElementById("more");
const problem = document.getElementById("problem");
const shown = new Map(); // by id: what is on the page of it, as it was told
let following = null;

for (const each of await endpoints()) filters.elements.endpoint.append(el("option", { value: each.name }, each.name));

function query(cursor) {
  const chosen = new URLSearchParams({ limit: LIMIT });
  for (const name of ["status", "endpoint"]) if (filters.elements[name].value) chosen.set(name, filters.elements[name].value);
  if (cursor) chosen.set("cursor", cursor);
  return `/v1/tasks?${chosen}`;
}

async function refresh() {
  try {
    const page = await get(query());
    problem.hidden = true;
    page.tasks.toReversed().forEach((task) => place(task, true));
    if (following === null) following = page.next;
    more.hidden = !following;
  } catch (refusal) {
    problem.textContent = `${refusal.message}; trying again`;
    problem.hidden = false;
  }
}

// Links are signed anew each time: a picture that is there stays as it is until its task changes.
function place(task, first) {
  const told = [task.status, task.progress, Boolean(task.thumbnail)].join();
  const known = shown.get(task.id);
  if (known?.told === told) return;
  const element = item(task);
  if (known) known.element.replaceWith(element);
  else if (first) list.prepend(element);
  else list.append(element);
  shown.set(task.id, { told, element });
}

function item(task) {
  const picture = task.thumbnail
    ? el("img", { class: "thumb", src: task.thumbnail, alt: task.prompt ?? task.endpoint, loading: "lazy" })
    : el("div", { class: "thumb" });
  const open = el("a", { href: "#", onclick: (event) => show(event, task.id) }, picture);
  return el("li", {}, el("figure", {}, task.status === "Ready" ? open : picture,
    el("figcaption", {},
      el("div", { class: "told" }, task.prompt ?? ""),
      el("div", { class: "row apart faint" }, el("span", {}, task.endpoint), el("span", {}, task.cost === null ? "" : `${task.cost}`)),
      isEnd(task.status)
        ? task.status === "Ready" ? null : el("span", { class: "bad" }, task.status)
        : el("div", {}, el("progress", { max: 1, value: task.progress ?? undefined, "aria-label": "Progress" }),
            may(session, "generate") ? el("button", { type: "button", onclick: () => cancel(task.id) }, "Cancel") : null))));
}

async function show(event, id) {
  event.preventDefault();
  const task = await get(`/v1/get_result?id=${id}`);
  if (task.result) window.open(task.result.sample, "_blank", "noopener");
}

async function cancel(id) {
  await remove(`/v1/tasks/${id}`).catch(() => {});
  refresh();
}

more.addEventListener("click", async () => {
  const page = await get(query(following));
  page.tasks.forEach((task) => place(task, false));
  following = page.next;
  more.hidden = !following;
});

filters.addEventListener("change", () => {
  shown.clear();
  list.replaceChildren();
  following = null;
  refresh();
});

refresh();
setInterval(() => document.hidden || refresh(), EVERY_MS);
