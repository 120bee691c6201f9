// What the project has asked for, newest first: images as they come, the queue with them.
import { get, remove } from "./api.js";
import { SAID } from "./card.js";
import { announce, el, moment } from "./dom.js";
import { isEnd } from "./follow.js";
import { spoken } from "./layout.js";
import { endpoints } from "./schema.js";
import { may, open } from "./shell.js";
import { taskView } from "./task_view.js";

const EVERY_MS = 3000;
const LIMIT = 40;
const TYPED_MS = 300;
const STATUSES = { active: "active=true", refused: "status=Request+Moderated&status=Content+Moderated" };

const session = await open();
const list = document.getElementById("tasks");
const filters = document.getElementById("filters");
const more = document.getElementById("more");
const problem = document.getElementById("problem");
const missing = document.getElementById("missing");
const nothing = document.getElementById("nothing");
const selection = document.getElementById("selection");
const entries = new Map(); // by id: what is on the page of it
const days = new Map(); // by name: a section, and its list
let following; // the cursor of older ones, null where there are none; undefined before anything is known

for (const each of await endpoints()) filters.elements.endpoint.append(el("option", { value: each.name }, each.name));
for (const [name, value] of new URLSearchParams(location.search)) if (filters.elements.namedItem(name)) filters.elements[name].value = value;
for (const select of filters.elements) if (select.selectedIndex < 0) select.value = "";

function query(cursor) {
  const { status, endpoint, prompt } = filters.elements;
  const chosen = new URLSearchParams(status.value ? STATUSES[status.value] ?? { status: status.value } : {});
  chosen.set("limit", LIMIT);
  if (endpoint.value) chosen.set("endpoint", endpoint.value);
  if (prompt.value) chosen.set("prompt", prompt.value);
  if (cursor) chosen.set("cursor", cursor);
  return `/v1/tasks?${chosen}`;
}

async function refresh() {
  const url = query();
  try {
    const page = await get(url);
    if (url !== query()) return; // other filters by now
    problem.hidden = true;
    page.tasks.toReversed().forEach((task) => place(task, true));
    if (filters.elements.status.value === "active" && !page.next) leave(new Set(page.tasks.map((task) => task.id)));
    if (following === undefined) following = page.next;
    more.hidden = !following;
    nothing.hidden = entries.size > 0;
  } catch (refusal) {
    problem.textContent = `${refusal.message}; trying again`;
    problem.hidden = false;
  }
}

// Links are signed anew each time: an image that is there stays as it is until its task moves on.
function place(task, first) {
  const previous = entries.get(task.id);
  const kind = [task.status, Boolean(task.thumbnail)].join();
  if (previous?.kind === kind) return previous.update(task);
  const entry = { kind, task, ...item(task) };
  if (previous) previous.element.replaceWith(entry.element);
  else if (first) dayOf(task, first).prepend(entry.element);
  else dayOf(task, first).append(entry.element);
  entries.set(task.id, entry);
}

// The list of the day on which it was submitted.
function dayOf(task, first) {
  const name = new Date(task.created * 1000).toDateString();
  if (!days.has(name)) {
    const [items, id] = [el("ul", { class: "gallery" }), `day-${name.replaceAll(" ", "-")}`];
    const section = el("section", { "aria-labelledby": id }, el("h2", { id }, dayNamed(task.created * 1000)), items);
    if (first) list.prepend(section);
    else list.append(section);
    days.set(name, items);
  }
  return days.get(name);
}

function dayNamed(ms) {
  const ago = Math.round((new Date().setHours(0, 0, 0, 0) - new Date(ms).setHours(0, 0, 0, 0)) / 864e5);
  return ["Today", "Yesterday"][ago] ?? new Date(ms).toLocaleDateString("en", { weekday: "short", month: "short", day: "numeric" });
}

function drop(id) {
  entries.get(id)?.element.remove();
  entries.delete(id);
  for (const [name, items] of days) {
    if (items.children.length) continue;
    items.parentElement.remove();
    days.delete(name);
  }
  select();
}

// What has ended is no longer in the queue.
function leave(waiting) {
  for (const id of [...entries.keys()]) if (!waiting.has(id)) drop(id);
}

function item(task) {
  const said = spoken(task.prompt ?? "");
  const image = task.thumbnail
    ? el("img", { class: "thumb", src: task.thumbnail, alt: said || task.endpoint, loading: "lazy" })
    : el("span", { class: "thumb" });
  const over = isEnd(task.status);
  const bar = over ? null : el("progress", { max: 1, value: task.progress ?? undefined, "aria-label": "Progress" });
  const state = el("span", { class: over && task.status !== "Ready" ? "bad" : "" }, over ? (task.status === "Ready" ? "" : SAID[task.status]) : SAID[task.status]);
  const element = el("li", {}, el("figure", {},
    over ? el("a", { href: `#${task.id}`, "aria-label": `Open: ${said || task.endpoint}` }, image) : image,
    over ? el("input", { type: "checkbox", value: task.id, "aria-label": `Select: ${said || task.endpoint}`, onchange: select }) : null,
    el("figcaption", {}, bar,
      el("div", { class: "told" }, said),
      el("div", { class: "row apart faint" }, el("span", {}, task.endpoint), state),
      task.expires === null ? null : el("div", { class: "faint" }, `Kept until ${moment(task.expires)}`),
      over || !may(session, "generate") ? null : el("button", { type: "button", onclick: () => cancel(task.id) }, "Cancel"))));
  let progress = task.progress;
  const update = (now) => {
    if (over || now.progress === progress) return;
    progress = now.progress;
    bar.value = progress ?? 0;
    if (now.thumbnail) image.src = now.thumbnail;
  };
  return { element, update };
}

async function cancel(id) {
  await remove(`/v1/tasks/${id}`).catch(() => {});
  refresh();
}

const selected = () => [...list.querySelectorAll(":checked")].map((box) => box.value);

function select() {
  const count = selected().length;
  selection.hidden = count === 0;
  selection.replaceChildren(el("span", {}, `${count} selected`),
    el("button", { type: "button", onclick: () => forSelected("Downloaded", download) }, "Download"),
    may(session, "generate") ? el("button", { type: "button", onclick: () => confirm(`Delete ${count}: results, inputs and prompts?`) && forSelected("Deleted", erase) }, "Delete") : null,
    el("button", { type: "button", onclick: clear }, "Clear"));
}

function clear() {
  for (const box of list.querySelectorAll(":checked")) box.checked = false;
  select();
}

async function forSelected(done, act) {
  const ids = selected();
  try {
    for (const id of ids) await act(id);
    announce(`${done}: ${ids.length}`);
    clear();
  } catch (refusal) {
    problem.textContent = refusal.message;
    problem.hidden = false;
  }
}

async function download(id) {
  const { result } = await get(`/v1/get_result?id=${encodeURIComponent(id)}`);
  if (result) el("a", { href: result.sample, download: "" }).click();
}

const erase = (id) => remove(`/v1/tasks/${encodeURIComponent(id)}/result`).then(() => drop(id));

// The address names the task that is open, so that going back closes it. An older one isn't in the list.
async function openNamed() {
  const id = location.hash.slice(1);
  missing.hidden = true;
  if (!id || document.getElementById(id)) return; // "#main" is a place on the page
  try {
    await showDialog(id);
  } catch (refusal) {
    missing.textContent = refusal.message;
    missing.hidden = false;
  }
  if (location.hash.slice(1) === id) history.replaceState(null, "", location.pathname + location.search);
}

async function showDialog(id) {
  const { task, element, title } = await taskView(id, session, () => (drop(id), dialog.close()));
  if (location.hash.slice(1) !== id) return;
  const close = el("button", { type: "button", "aria-label": "Close", onclick: () => dialog.close() }, "✕");
  const dialog = el("dialog", { class: "task", "aria-label": title }, el("div", { class: "row apart" }, el("h2", {}, task.endpoint), close), element);
  dialog.addEventListener("keydown", ({ key, target }) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[key];
    if (!step || target.tagName === "VIDEO") return;
    const open = [...list.querySelectorAll("figure > a")];
    const next = open[open.findIndex((link) => link.hash === `#${id}`) + step];
    if (next) location.replace(next.href);
  });
  document.body.append(dialog);
  dialog.showModal();
  await new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
  dialog.remove();
}

more.addEventListener("click", async () => {
  if (more.disabled) return;
  more.disabled = true;
  const url = query(following);
  const page = await get(url).catch(() => null);
  more.disabled = false;
  if (!page || url !== query(following)) return; // other filters by now
  page.tasks.forEach((task) => place(task, false));
  following = page.next;
  more.hidden = !following;
});
new IntersectionObserver(([{ isIntersecting }]) => isIntersecting && more.click(), { rootMargin: "50%" }).observe(more);

let typed = 0;
let filtered; // the query that the list is of
// What is being pressed stays where it is until that is over.
const refilterSoon = () => (typed = setTimeout(() => (list.matches(":active") ? refilterSoon() : refilter()), TYPED_MS));
filters.elements.prompt.addEventListener("input", () => {
  clearTimeout(typed);
  refilterSoon();
});
for (const name of ["status", "endpoint"]) filters.elements[name].addEventListener("change", refilter);
filters.addEventListener("submit", (event) => {
  event.preventDefault();
  filtered = undefined; // once more, where nothing was changed
  refilter();
});

function refilter() {
  if (filtered === query()) return;
  filtered = query();
  const chosen = new URLSearchParams([...new FormData(filters)].filter(([, value]) => value));
  history.replaceState(null, "", (chosen.size ? `?${chosen}` : location.pathname) + location.hash);
  entries.clear();
  days.clear();
  list.replaceChildren();
  select();
  following = undefined;
  return refresh();
}

addEventListener("hashchange", () => {
  document.querySelectorAll("dialog[open]").forEach((dialog) => dialog.close());
  openNamed();
});

await refilter(); // by what was typed meanwhile, too
openNamed();
// A search reads up to a thousand prompts: it is made when asked for.
setInterval(() => document.hidden || filters.elements.prompt.value || refresh(), EVERY_MS);
