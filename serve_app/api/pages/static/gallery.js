// What the project has asked for, newest first: pictures as they come, the queue with them.
import { get, remove } from "./api.js";
import { SAID } from "./card.js";
import { el } from "./dom.js";
import { isEnd } from "./follow.js";
import { spoken } from "./layout.js";
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
const nothing = document.getElementById("nothing");
const shown = new Map(); // by id: what is on the page of it
let following; // the cursor of older ones, null where there are none; undefined before anything is known

for (const each of await endpoints()) filters.elements.endpoint.append(el("option", { value: each.name }, each.name));

function query(cursor) {
  const { status, endpoint } = filters.elements;
  const chosen = new URLSearchParams(status.value ? STATUSES[status.value] ?? { status: status.value } : {});
  chosen.set("limit", LIMIT);
  if (endpoint.value) chosen.set("endpoint", endpoint.value);
  if (cursor) chosen.set("cursor", cursor);
  return `/v1/tasks?${chosen}`;
}

async function refresh() {
  const asked = query();
  try {
    const page = await get(asked);
    if (asked !== query()) return; // other filters by now
    problem.hidden = true;
    page.tasks.toReversed().forEach((task) => place(task, true));
    if (filters.elements.status.value === "active" && !page.next) leave(new Set(page.tasks.map((task) => task.id)));
    if (following === undefined) following = page.next;
    more.hidden = !following;
    nothing.hidden = shown.size > 0;
  } catch (refusal) {
    problem.textContent = `${refusal.message}; trying again`;
    problem.hidden = false;
  }
}

// Links are signed anew each time: a picture that is there stays as it is until its task moves on.
function place(task, first) {
  const known = shown.get(task.id);
  const kind = [task.status, Boolean(task.thumbnail)].join();
  if (known?.kind === kind) return known.update(task);
  const made = { kind, task, ...item(task) };
  if (known) known.element.replaceWith(made.element);
  else if (first) list.prepend(made.element);
  else list.append(made.element);
  shown.set(task.id, made);
}

// What has ended is no longer in the queue.
function leave(waiting) {
  for (const [id, { element }] of shown) {
    if (waiting.has(id)) continue;
    element.remove();
    shown.delete(id);
  }
}

function item(task) {
  const said = spoken(task.prompt ?? "");
  const picture = task.thumbnail
    ? el("img", { class: "thumb", src: task.thumbnail, alt: said || task.endpoint, loading: "lazy" })
    : el("span", { class: "thumb" });
  const over = isEnd(task.status);
  const bar = over ? null : el("progress", { max: 1, value: task.progress ?? undefined, "aria-label": "Progress" });
  const state = el("span", { class: over && task.status !== "Ready" ? "bad" : "" }, over ? (task.status === "Ready" ? "" : SAID[task.status]) : SAID[task.status]);
  const element = el("li", {}, el("figure", {},
    over ? el("a", { href: `#${task.id}`, "aria-label": `Open: ${said || task.endpoint}` }, picture) : picture,
    el("figcaption", {}, bar,
      el("div", { class: "told" }, said),
      el("div", { class: "row apart faint" }, el("span", {}, task.endpoint), state),
      over || !may(session, "generate") ? null : el("button", { type: "button", onclick: () => cancel(task.id) }, "Cancel"))));
  let progress = task.progress;
  const update = (now) => {
    if (over || now.progress === progress) return;
    progress = now.progress;
    bar.value = progress ?? 0;
    if (now.thumbnail) picture.src = now.thumbnail;
  };
  return { element, update };
}

async function cancel(id) {
  await remove(`/v1/tasks/${id}`).catch(() => {});
  refresh();
}

// The address names the task that is open, so that going back closes it.
async function openNamed() {
  const known = shown.get(location.hash.slice(1));
  if (!known) return;
  await view(known.task, session).catch((refusal) => {
    problem.textContent = refusal.message;
    problem.hidden = false;
  });
  if (location.hash.slice(1) === known.task.id) history.replaceState(null, "", location.pathname);
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
