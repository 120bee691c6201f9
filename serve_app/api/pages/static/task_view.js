// All of a task: what came of it, how it was made, what it cost, and what can be done with it.
import { get, remove } from "./api.js";
import { sure } from "./account_parts.js";
import { SAID } from "./card.js";
import { webhook } from "./deliveries.js";
import { credits, el, moment, zoomable } from "./dom.js";
import { isEnd } from "./follow.js";
import { spoken } from "./layout.js";
import { kept, suggest } from "./requests.js";
import { sharing } from "./sharing.js";
import { may } from "./shell.js";

// `gone` is called once it was deleted. Throws where there is no such task.
export async function taskView(id, session, gone) {
  const path = `/v1/tasks/${encodeURIComponent(id)}`;
  const [task, { result, details }] = await Promise.all([get(path), get(`/v1/get_result?id=${encodeURIComponent(id)}`)]).catch((refusal) => {
    throw refusal.status === 404 ? new Error(`There is no task ${id}, or it is not kept any more.`) : refusal;
  });
  const isVideo = result && new URL(result.sample, location.href).pathname.endsWith(".mp4");
  const said = spoken(task.prompt ?? "");
  const mayGenerate = may(session, "generate");
  const again = el("a", { class: "button", href: `/?again=${encodeURIComponent(id)}` }, "Run again with changes");
  again.addEventListener("click", () => kept(id) ?? suggest(id, task.endpoint, knownFields(task)));
  const [share, shared] = result ? sharing(id, mayGenerate, task.shared) : [null, null];
  const element = el("div", { class: "task-view" },
    result ? (isVideo ? el("video", { src: result.sample, controls: true, loop: true }) : zoomable(el("img", { src: result.sample, alt: `Result: ${said || task.endpoint}` })))
      : isEnd(task.status) ? el("p", { class: "bad" }, reason(task.status, details)) : el("p", { class: "notice" }, SAID[task.status]),
    el("p", { class: "prompt" }, said),
    el("div", { class: "row" },
      result ? el("a", { class: "button", href: result.sample, download: "" }, "Download") : null, share,
      mayGenerate ? again : null,
      mayGenerate && result && !isVideo ? el("a", { class: "button", href: `/?edit=${encodeURIComponent(id)}` }, "Edit this") : null,
      mayGenerate && isEnd(task.status) ? sure("Delete", "Delete this result, its inputs and its prompt?", () => remove(`${path}/result`).then(gone)) : null),
    shared,
    el("dl", { class: "facts" }, facts(task).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
    webhook(id, mayGenerate));
  return { task, element, title: said || task.endpoint };
}

// What the service tells of a request: nothing is made up for the rest.
function knownFields(task) {
  const body = {};
  if (task.prompt) body.prompt = task.prompt;
  if (task.parameters.seed !== undefined) body.seed = task.parameters.seed;
  return body;
}

function reason(status, details) {
  const reasons = details?.["Moderation Reasons"]?.join(", ");
  return reasons ? `Not allowed here: ${reasons}` : details?.error ?? status;
}

function facts({ id, status, endpoint, created, started, finished, expires, cost, attempt, inputs, parameters }) {
  const { width, height, ...others } = parameters;
  const seconds = (from, to) => (from && to ? `${(to - from).toFixed(1)} s` : null);
  return [
    ["Status", SAID[status] ?? status], ["Endpoint", endpoint], ["Submitted", moment(created)],
    ["Waited", seconds(created, started)], ["Took", seconds(started, finished)], ["Attempts", attempt > 1 ? attempt : null],
    ["Cost", cost === null ? null : credits(cost)], ["Kept until", expires && moment(expires)],
    ["Size", width && height ? `${width} × ${height}` : null], ["Files sent", inputs || null],
    ...Object.entries(others).map(([name, value]) => [(name[0].toUpperCase() + name.slice(1)).replace("_", " "), String(value)]),
    ["Id", el("a", { href: `/t/${encodeURIComponent(id)}` }, id)],
  ].filter(([, value]) => value !== null);
}
