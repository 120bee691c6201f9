// A task in a window of its own: what came of it, what is known of it, and what can be done with it.
import { get } from "./api.js";
import { webhook } from "./deliveries.js";
import { el } from "./dom.js";
import { spoken } from "./layout.js";
import { kept, suggest } from "./requests.js";
import { keptUntil, sharing } from "./sharing.js";
import { may } from "./shell.js";

const CUT = 500; // characters of a prompt in the list, which ends with "…" where there are more

// `task` as the list has it. Resolves once the window is closed.
export async function view(task, session) {
  const { result, details, status } = await get(`/v1/get_result?id=${encodeURIComponent(task.id)}`);
  const isVideo = result && new URL(result.sample, location.href).pathname.endsWith(".mp4");
  const said = spoken(task.prompt ?? "");
  const alt = `Result: ${said || task.endpoint}`;
  const again = el("a", { class: "button", href: `/?again=${encodeURIComponent(task.id)}` }, "Run again with changes");
  again.addEventListener("click", () => kept(task.id) ?? suggest(task.id, task.endpoint, knownFields(task, result)));
  const edit = el("a", { class: "button", href: `/?edit=${encodeURIComponent(task.id)}` }, "Edit this");
  const [share, shared] = result ? sharing(task.id) : [null, null];
  const dialog = el("dialog", { class: "task", "aria-label": said || task.endpoint },
    el("div", { class: "row apart" }, el("h2", {}, task.endpoint), el("button", { type: "button", "aria-label": "Close", onclick: () => dialog.close() }, "✕")),
    result ? (isVideo ? el("video", { src: result.sample, controls: true, loop: true }) : el("img", { src: result.sample, alt })) : el("p", { class: "bad" }, reason(status, details)),
    el("p", { class: "prompt" }, said),
    el("p", { class: "faint" }, facts(task, result)), result ? el("p", {}, keptUntil(task.id)) : null,
    el("div", { class: "row" },
      result ? el("a", { class: "button", href: result.sample, download: "" }, "Download") : null, share,
      may(session, "generate") ? again : null, may(session, "generate") && result && !isVideo ? edit : null),
    shared,
    webhook(task.id, may(session, "generate")));
  document.body.append(dialog);
  dialog.showModal();
  await new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
  dialog.remove();
}

// What the service tells of a request: nothing is made up for the rest.
function knownFields(task, result) {
  const body = {};
  if (task.prompt && task.prompt.length <= CUT) body.prompt = task.prompt;
  if (result) body.seed = result.seed;
  return body;
}

function reason(status, details) {
  const reasons = details?.["Moderation Reasons"]?.join(", ");
  return reasons ? `Not allowed here: ${reasons}` : details?.error ?? status;
}

const facts = (task, result) =>
  [task.created && new Date(task.created * 1000).toLocaleString(), task.cost === null ? null : `${task.cost} credits`, result ? `seed ${result.seed}` : null].filter(Boolean).join(" · ");
