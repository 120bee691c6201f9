// What the project has asked for, newest first: images as they come, the queue with them.
import { get, remove } from "./api.js";
import { SAID } from "./card.js";
import { el } from "./dom.js";
import { isEnd } from "./follow.js";
import { spoken } from "./layout.js";
import { kept } from "./requests.js";
import { endpoints } from "./schema.js";
import { may, open } from "./shell.js";
import { view } from "./task_view.js";

const EVERY_MS = 3000;
const LIMIT = 40;
const STATUSES = { active: "active=true", refused: "status=Request+Moderated&status=Content+Moderated" };

const session = await open();
const list = document.getElementById("tasks");
const filters = document.getElementById("filters");
const more = document.getElementById("more");
const problem = document.getElementById("problem");
const missing = document.getElementById("missing");
const nothing = document.getElementById("nothing");
const entries = new Map(); // by id: what is on the page of it
let following; // the cursor of older ones, null where there are none; undefined before anything is known

for (const each of await endpoints()) filters.elements.endpoint.append(el("option", { value: each.name }, each.name));
for (const [name, value] of new URLSearchParams(location.search)) if (filters.elements.namedItem(name)) filters.elements[name].value = value;
for (const select of filters.elements) if (select.selectedIndex < 0) select.value = "";

function query(cursor) {
  const { status, endpoint } = filters.elements;
  const chosen = new URLSearchParams(status.value ? STATUSES[status.value] ?? { status: status.value } : {});
  chosen.set("limit", LIMIT);
  if (endpoint.value) chosen.set("endpoint", endpoint.value);
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
  else if (first) list.prepend(entry.element);
  else list.append(entry.element);
  entries.set(task.id, entry);
}

// What has ended is no longer in the queue.
function leave(waiting) {
  for (const [id, { element }] of entries) {
    if (waiting.has(id)) continue;
    element.remove();
    entries.delete(id);
  }
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
    el("figcaption", {}, bar,
      el("div", { class: "told" }, said),
      el("div", { class: "row apart faint" }, el("span", {}, task.endpoint), state),
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

// The address names the task that is open, so that going back closes it. An older one isn't in the list.
async function openNamed() {
  const id = location.hash.slice(1);
  missing.hidden = true;
  if (!id || document.getElementById(id)) return; // "#main" is a place on the page
  try {
    await view(entries.get(id)?.task ?? (await find(id)), session);
  } catch (refusal) {
    missing.textContent = refusal.message;
    missing.hidden = false;
  }
  if (location.hash.slice(1) === id) history.replaceState(null, "", location.pathname + location.search);
}

async function find(id) {
  const { result, cost } = await get(`/v1/get_result?id=${encodeURIComponent(id)}`).catch((refusal) => {
    throw refusal.status === 404 ? new Error(`There is no task ${id}, or it is not kept any more.`) : refusal;
  });
  return { id, endpoint: kept(id)?.endpoint ?? "Task", prompt: result?.prompt, cost: cost ?? null };
}

more.addEventListener("click", async () => {
  const page = await get(query(following));
  page.tasks.forEach((task) => place(task, false));
  following = page.next;
  more.hidden = !following;
});

filters.addEventListener("change", () => {
  const chosen = new URLSearchParams([...new FormData(filters)].filter(([, value]) => value));
  history.replaceState(null, "", chosen.size ? `?${chosen}` : location.pathname);
  entries.clear();
  list.replaceChildren();
  following = undefined;
  refresh();
});

addEventListener("hashchange", () => {
  document.querySelector("dialog[open]")?.close();
  openNamed();
});

await refresh();
openNamed();
setInterval(() => document.hidden || refresh(), EVERY_MS);
