// The gallery: the project's tasks by day, newest first, with those that wait.
import { get, remove, taskPath } from "./api.js";
import { announce, button, downloadResult, el, formatTime, onSubmit, pageElements, runDialog, setMessage, showErrors } from "./dom.js";
import { promptWords } from "./layout.js";
import { listEndpoints } from "./schema.js";
import { Session } from "./session.js";
import { STATUS_LABELS, isFinal } from "./task_follower.js";
import { TaskView } from "./task_view.js";

const REFRESH_MS = 3000;
const TYPING_PAUSE_MS = 300;
const PAGE_SIZE = 40;
const DAY_MS = 24 * 3600 * 1000;
const STATUS_QUERIES = { active: "active=true", refused: "status=Request+Moderated&status=Content+Moderated" };

class GalleryItem {
  constructor(task, { mayGenerate, onSelect, onCancel }) {
    this.task = task;
    const { id, status, endpoint, thumbnail, progress, expires } = task;
    const words = promptWords(task.prompt);
    const title = words || endpoint;
    this.isFinal = isFinal(status);
    const lazyImage = { src: thumbnail, alt: title, loading: "lazy" };
    this.image = el(thumbnail ? "img" : "span", { class: "thumb", ...(thumbnail && lazyImage) });
    this.bar = el("progress", { max: 1, value: progress ?? undefined, "aria-label": "Progress" });
    const label = status === "Ready" ? "" : STATUS_LABELS[status];
    this.element = el("li", {}, el("figure", {},
      this.isFinal ? el("a", { href: `#${id}`, "aria-label": `Open: ${title}` }, this.image) : this.image,
      this.isFinal && el("input", { type: "checkbox", value: id, "aria-label": `Select: ${title}`, onchange: onSelect }),
      el("figcaption", {}, !this.isFinal && this.bar,
        el("div", { class: "prompt" }, words),
        el("div", { class: "row apart faint" }, el("span", {}, endpoint), el("span", { class: this.isFinal && "bad" }, label)),
        expires !== null && el("div", { class: "faint" }, `Kept until ${formatTime(expires)}`),
        !this.isFinal && mayGenerate && button("Cancel", () => onCancel(id)))));
  }

  // Changes the element in place, as links are signed anew each time. Returns false if the task needs a new element.
  update(task) {
    const { status, thumbnail, progress } = this.task;
    if (task.status !== status || Boolean(task.thumbnail) !== Boolean(thumbnail)) return false;
    if (this.isFinal || task.progress === progress) return true;
    this.task = task;
    this.bar.value = task.progress ?? 0;
    if (task.thumbnail) this.image.src = task.thumbnail;
    return true;
  }
}

class Gallery {
  #items = new Map(); // by id
  #days = new Map(); // lists by date
  #cursor; // of older tasks; null if there are none, undefined before the first page
  #loadedQuery;
  #typingTimer = 0;

  constructor(session, endpoints) {
    this.session = session;
    Object.assign(this, pageElements("tasks", "filters", "more", "problem", "missing", "nothing", "selection"));
    const { elements } = this.filters;
    elements.endpoint.append(...endpoints.map(({ name }) => el("option", { value: name }, name)));
    for (const [name, value] of new URLSearchParams(location.search)) {
      if (elements.namedItem(name)) elements[name].value = value;
    }
    for (const element of elements) if (element.selectedIndex < 0) element.value = "";
    elements.prompt.oninput = () => this.#filterSoon();
    elements.status.onchange = elements.endpoint.onchange = () => this.#filter();
    onSubmit(this.filters, () => {
      this.#loadedQuery = undefined; // searches again, even if nothing was changed
      this.#filter();
    });
    this.more.onclick = () => this.#loadMore();
    const loadVisible = ([{ isIntersecting }]) => isIntersecting && this.more.click();
    new IntersectionObserver(loadVisible, { rootMargin: "50%" }).observe(this.more);
    addEventListener("hashchange", () => {
      document.querySelectorAll("dialog[open]").forEach((dialog) => dialog.close());
      this.#openFromAddress();
    });
  }

  async start() {
    await this.#filter();
    this.#openFromAddress();
    // The service reads up to a thousand prompts for a search, so searches are not repeated.
    setInterval(() => document.hidden || this.filters.elements.prompt.value || this.#refresh(), REFRESH_MS);
  }

  #query(cursor) {
    const { status, endpoint, prompt } = this.filters.elements;
    const query = new URLSearchParams(status.value ? STATUS_QUERIES[status.value] ?? { status: status.value } : {});
    query.set("limit", PAGE_SIZE);
    for (const [name, value] of Object.entries({ endpoint: endpoint.value, prompt: prompt.value, cursor })) {
      if (value) query.set(name, value);
    }
    return `/v1/tasks?${query}`;
  }

  // Waits while an element of the list is being pressed, as it would vanish under the pointer.
  #filterSoon() {
    clearTimeout(this.#typingTimer);
    const filter = () => (this.tasks.matches(":active") ? this.#filterSoon() : this.#filter());
    this.#typingTimer = setTimeout(filter, TYPING_PAUSE_MS);
  }

  #filter() {
    const query = this.#query();
    if (this.#loadedQuery === query) return;
    this.#loadedQuery = query;
    const filters = new URLSearchParams([...new FormData(this.filters)].filter(([, value]) => value));
    history.replaceState(null, "", (filters.size ? `?${filters}` : location.pathname) + location.hash);
    this.#items.clear();
    this.#days.clear();
    this.tasks.replaceChildren();
    this.#showSelection();
    this.#cursor = undefined;
    return this.#refresh();
  }

  async #refresh() {
    const query = this.#query();
    try {
      const { tasks, next } = await get(query);
      if (query !== this.#query()) return; // the filters have changed
      setMessage(this.problem);
      for (const task of tasks.toReversed()) this.#place(task, "prepend");
      if (this.filters.elements.status.value === "active" && !next) {
        const waiting = new Set(tasks.map(({ id }) => id));
        [...this.#items.keys()].filter((id) => !waiting.has(id)).forEach((id) => this.#drop(id));
      }
      this.#setCursor(this.#cursor === undefined ? next : this.#cursor);
      this.nothing.hidden = this.#items.size > 0;
    } catch (error) {
      setMessage(this.problem, `${error.message}; trying again`);
    }
  }

  async #loadMore() {
    if (this.more.disabled) return;
    this.more.disabled = true;
    const query = this.#query(this.#cursor);
    const page = await get(query).catch(() => null);
    this.more.disabled = false;
    if (!page || query !== this.#query(this.#cursor)) return; // the filters have changed
    for (const task of page.tasks) this.#place(task, "append");
    this.#setCursor(page.next);
  }

  #setCursor(cursor) {
    this.#cursor = cursor;
    this.more.hidden = !cursor;
  }

  // `method` says at which end of its day a new task goes: "prepend" or "append".
  #place(task, method) {
    const item = this.#items.get(task.id);
    if (item?.update(task)) return;
    const next = new GalleryItem(task, {
      mayGenerate: this.session.may("generate"),
      onSelect: () => this.#showSelection(),
      onCancel: (id) => remove(taskPath(id)).catch(() => {}).then(() => this.#refresh()),
    });
    if (item) item.element.replaceWith(next.element);
    else this.#dayList(task.created * 1000, method)[method](next.element);
    this.#items.set(task.id, next);
  }

  #dayList(ms, method) {
    const date = new Date(ms).toDateString();
    if (!this.#days.has(date)) {
      const list = el("ul", { class: "gallery" });
      const id = `day-${date.replaceAll(" ", "-")}`;
      this.tasks[method](el("section", { "aria-labelledby": id }, el("h2", { id }, dayTitle(ms)), list));
      this.#days.set(date, list);
    }
    return this.#days.get(date);
  }

  #drop(id) {
    this.#items.get(id)?.element.remove();
    this.#items.delete(id);
    for (const [date, list] of this.#days) {
      if (list.children.length) continue;
      list.parentElement.remove();
      this.#days.delete(date);
    }
    this.#showSelection();
  }

  get #selected() {
    return [...this.tasks.querySelectorAll(":checked")];
  }

  #showSelection() {
    const count = this.#selected.length;
    const erase = async (id) => {
      await remove(`${taskPath(id)}/result`);
      this.#drop(id);
    };
    const confirmErase = () => confirm(`Delete ${count}: results, inputs and prompts?`) && this.#forSelected("Deleted", erase);
    this.selection.hidden = count === 0;
    this.selection.replaceChildren(el("span", {}, `${count} selected`),
      button("Download", () => this.#forSelected("Downloaded", downloadResult)),
      this.session.may("generate") ? button("Delete", confirmErase) : "",
      button("Clear", () => this.#clearSelection()));
  }

  #clearSelection() {
    for (const box of this.#selected) box.checked = false;
    this.#showSelection();
  }

  #forSelected(done, act) {
    return showErrors(this.problem, async () => {
      const ids = this.#selected.map((box) => box.value);
      for (const id of ids) await act(id);
      announce(`${done}: ${ids.length}`);
      this.#clearSelection();
    });
  }

  // The address names the open task, so going back closes it. The list may lack the task.
  async #openFromAddress() {
    const id = location.hash.slice(1);
    setMessage(this.missing);
    if (!id || document.getElementById(id)) return; // "#main" is an element of the page
    await showErrors(this.missing, () => this.#showDialog(id));
    if (location.hash.slice(1) === id) history.replaceState(null, "", location.pathname + location.search);
  }

  async #showDialog(id) {
    const close = () => dialog.close();
    const { task, element, title } = await TaskView.load(id, this.session, () => {
      this.#drop(id);
      close();
    });
    if (location.hash.slice(1) !== id) return;
    const onkeydown = ({ key, target }) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[key];
      const links = [...this.tasks.querySelectorAll("figure > a")];
      const neighbour = links[links.findIndex((link) => link.hash === `#${id}`) + step];
      if (neighbour && target.tagName !== "VIDEO") location.replace(neighbour.href);
    };
    const closeButton = button("✕", close, { "aria-label": "Close" });
    const dialog = el("dialog", { class: "task", "aria-label": title, onkeydown },
      el("div", { class: "row apart" }, el("h2", {}, task.endpoint), closeButton), element);
    await runDialog(dialog);
  }
}

function dayTitle(ms) {
  const midnight = (time) => new Date(time).setHours(0, 0, 0, 0);
  const days = Math.round((midnight(Date.now()) - midnight(ms)) / DAY_MS);
  const format = { weekday: "short", month: "short", day: "numeric" };
  return ["Today", "Yesterday"][days] ?? new Date(ms).toLocaleDateString("en", format);
}

await new Gallery(await Session.open(), await listEndpoints()).start();
