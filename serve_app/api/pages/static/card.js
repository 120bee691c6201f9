// A task on the page: its progress, previews, result, and what can be done with it.
import { get, remove } from "./api.js";
import { announce, credits, el, zoomable } from "./dom.js";
import { foretell } from "./estimate.js";
import { follow } from "./follow.js";
import { compare } from "./compare.js";
import { spoken } from "./layout.js";
import { keptUntil, sharing } from "./sharing.js";

export const SAID = { Pending: "Queued", Reasoning: "Preparing", Generating: "Generating", Ready: "Done", "Request Moderated": "Blocked", "Content Moderated": "Blocked", Error: "Failed" };
const CANCELLED = "Cancelled by the client"; // what the service says of it

// `again` is called with the request to run once more, `use` with the id of a task whose result is to be worked on,
// `reseed` with a seed to be used again. `mayRevoke`: links to the result.
export function card({ id, endpoint, body, before, cost }, { again, use, reseed, mayRevoke }) {
  const said = spoken(body.prompt ?? "");
  const stage = el("div", { class: "stage" });
  const ratio = body.width && body.height ? `${body.width} / ${body.height}` : body.aspect_ratio?.replace(":", " / ");
  if (ratio) stage.style.aspectRatio = ratio; // as long as it is empty: an image has its own
  const bar = el("progress", { max: 1, "aria-label": "Progress" });
  const state = el("span", { class: "faint" }, SAID.Pending);
  const price = el("span", {}, cost == null ? "" : ` · ${credits(cost)}`);
  const notes = el("div");
  const actions = el("div", { class: "row" });
  const cancel = el("button", { type: "button", onclick: () => remove(`/v1/tasks/${id}`).catch(() => {}) }, "Cancel");
  const element = el("article", { class: "card appears", "aria-label": said || endpoint },
    stage, bar,
    el("p", { class: "prompt" }, said),
    el("div", { class: "row apart faint" }, el("span", {}, endpoint, price), state),
    notes, actions);
  actions.append(cancel);

  follow(id, (task) => {
    const percent = task.status === "Generating" && task.progress !== null ? ` ${Math.round(100 * task.progress)} %` : "";
    state.textContent = foretell((SAID[task.status] ?? task.status) + percent, task.details);
    if (task.progress === null) bar.removeAttribute("value");
    else bar.value = task.progress;
    if (task.preview) stage.style.aspectRatio = "", stage.replaceChildren(el("img", { src: task.preview.sample, alt: "How far it is" }));
    if (task.status === "Ready") ready(task);
    else if (SAID[task.status] === "Blocked" || SAID[task.status] === "Failed") failed(task);
  }, (lost) => (state.textContent = lost ? "The service is out of reach; trying again" : state.textContent));

  function ready(task) {
    bar.remove();
    cancel.remove();
    price.textContent = task.cost === undefined ? "" : ` · ${credits(task.cost)}`;
    const url = task.result.sample;
    const isVideo = new URL(url, location.href).pathname.endsWith(".mp4");
    const alt = `Result: ${said || endpoint}`;
    const image = isVideo ? null : el("img", { src: url, alt });
    stage.style.aspectRatio = "";
    stage.replaceChildren(isVideo ? el("video", { src: url, controls: true, loop: true }) : before ? compare(before, image) : zoomable(image));
    warn(task.details?.warnings);
    const [share, shared] = sharing(id, mayRevoke);
    actions.append(
      el("a", { class: "button", href: url, download: "", onclick: download }, "Download"),
      el("button", { type: "button", onclick: () => again({ ...body, seed: undefined }) }, "Run again"),
      ...(isVideo ? [] : [el("button", { type: "button", onclick: () => use(id) }, "Edit this")]),
      share,
      el("button", { type: "button", title: "Use this seed again", onclick: () => reseed(task.result.seed) }, `Seed ${task.result.seed}`),
      el("a", { href: `/t/${id}` }, "Details"),
      keptUntil(id),
    );
    actions.after(shared);
    announce(`Done: ${said || endpoint}`);
  }

  // Links end: by a new one.
  async function download(event) {
    event.preventDefault();
    const { result } = await get(`/v1/get_result?id=${encodeURIComponent(id)}`).catch(() => ({}));
    el("a", { href: result?.sample ?? event.target.href, download: "" }).click();
  }

  function failed(task) {
    bar.remove();
    cancel.remove();
    price.textContent = " · not charged";
    const reasons = task.details?.["Moderation Reasons"]?.join(", ");
    if (task.details?.error === CANCELLED) state.textContent = "Cancelled";
    else notes.append(el("p", { class: "bad" }, reasons ? `Not allowed here: ${reasons}` : task.details?.error ?? task.status));
    actions.append(el("button", { type: "button", onclick: () => again(body) }, "Run again"));
    announce(`${state.textContent}: ${said || endpoint}`);
  }

  function warn(warnings) {
    for (const each of warnings ?? []) notes.append(el("p", { class: "notice" }, each));
  }

  return element;
}
