// A form for every endpoint, and what comes of it beside it.
import { get, post } from "./api.js";
import { asDataUrl } from "./pictures.js";
import { card } from "./card.js";
import { programs } from "./code.js";
import { el } from "./dom.js";
import { RequestForm } from "./form.js";
import { keep, kept } from "./requests.js";
import { endpoints } from "./schema.js";
import { may, open } from "./shell.js";

// By the name of a picture that came of it.
const EXAMPLES = {
  heart: "a large pink heart on a gradient from white to light blue",
  two: "a red circle on the left and a blue square on the right on a white background",
  star: "a large yellow star on a black background",
  corners: "a red triangle in the top left and a green circle in the bottom right on a yellow background",
};
const PRICE_AFTER_MS = 500;

const holder = document.getElementById("form");
const results = document.getElementById("results");
const [session, offered] = await Promise.all([open(), endpoints()]);

let endpoint = null;
let request = null;

const choose = el("select", { id: "endpoint" }, offered.map((each) => el("option", { value: each.name }, each.name)));
const summary = el("p", { class: "faint" });
const modes = el("div", { class: "row" });
const earlier = el("p", { class: "notice", role: "status", hidden: true });
const fields = el("div");
const price = el("span", { class: "faint", "aria-live": "polite" });
const problem = el("p", { class: "bad", role: "alert", hidden: true });
const submit = el("button", { class: "main", disabled: !may(session, "generate") }, "Generate");
const code = el("details", { class: "code" }, el("summary", {}, "Code"));
holder.append(el("label", { htmlFor: "endpoint" }, "Endpoint"), choose, summary, modes, earlier, fields, problem, el("div", { class: "row apart send" }, submit, price), code);
results.append(el("div", { class: "examples", role: "group", "aria-label": "Examples" },
  Object.entries(EXAMPLES).map(([name, prompt]) =>
    el("button", { type: "button", disabled: !may(session, "generate"), onclick: () => run({ prompt }, "gen-3-image-klein") },
      el("img", { src: `/pages/examples/${name}.jpeg`, alt: "", width: 200, height: 150 }), el("span", {}, prompt)))));

function select(name, mode = 0) {
  endpoint = offered.find((each) => each.name === name) ?? offered[0];
  choose.value = endpoint.name;
  summary.textContent = endpoint.summary;
  request = new RequestForm(endpoint.forms[mode].fields);
  fields.replaceChildren(request.element);
  modes.replaceChildren(...(endpoint.forms.length < 2 ? [] : endpoint.forms.map((form, index) =>
    el("button", { type: "button", "aria-pressed": String(index === mode), onclick: () => select(name, index) }, form.title))));
  asked();
}

let timer = 0;
// The price, and the request as a program, once nothing was typed for a while.
function asked() {
  clearTimeout(timer);
  timer = setTimeout(async () => {
    const body = request.body();
    code.replaceChildren(code.firstChild, ...Object.entries(programs(endpoint.name, body)).map(([language, text]) =>
      el("div", {}, el("div", { class: "row apart" }, el("strong", {}, language), el("button", { type: "button", onclick: () => navigator.clipboard.writeText(text) }, "Copy")), el("pre", { tabIndex: 0 }, text))));
    try {
      const quote = await post("/v1/pricing", { path: endpoint.path, body });
      price.textContent = `${quote.cost} credits`;
    } catch {
      price.textContent = "";
    }
  }, PRICE_AFTER_MS);
}

async function send() {
  if (submit.disabled) return; // one at a time, however it is asked for
  const body = request.body();
  problem.hidden = true;
  request.show({});
  submit.disabled = true;
  try {
    const task = await post(endpoint.path, body);
    const name = endpoint.name;
    keep(task.id, name, body);
    const before = body.images?.[0] ?? body.input_image ?? body.image;
    const shown = card({ id: task.id, endpoint: name, body, before, cost: task.cost }, { again: (next) => run(next, name), use });
    results.querySelector(".examples").after(shown);
  } catch (refusal) {
    request.show(refusal.fields ?? {});
    refuse(refusal);
  } finally {
    submit.disabled = !may(session, "generate");
  }
}

function refuse({ message }) {
  problem.textContent = message;
  problem.hidden = false;
}

async function run(body, name = endpoint.name) {
  select(name, formOf(name, body));
  request.fill(body);
  await send();
}

// The result of a task becomes the picture of the next request.
const use = (id) => edit(id).catch(refuse);

// By a link of now: earlier ones end.
async function edit(id) {
  const { result } = await get(`/v1/get_result?id=${encodeURIComponent(id)}`);
  const answer = result && (await fetch(result.sample));
  if (!answer?.ok) throw new Error("This picture is not kept any more");
  const data = await asDataUrl(await answer.blob());
  const field = ["images", "input_image", "image"].find((name) => request.widgets.has(name));
  if (!field) select("gen-3-image-klein");
  request.widgets.get(field ?? "images").set(field && field !== "images" ? data : [data]);
  const prompt = request.widgets.get("prompt");
  (prompt?.input ?? prompt?.element)?.focus();
  asked();
}

// An earlier request, with all that is known of it.
function recall({ endpoint: name, body, missing, known }) {
  select(name, formOf(name, body));
  request.fill(body);
  const lost = missing.length ? ` Not kept: ${missing.join(", ")}.` : "";
  earlier.textContent = known ? `This is the earlier request. Change what you like.${lost}`
    : `Another browser or program sent this request. ${Object.keys(body).join(" and ") || "Nothing"} can be known of it; all other fields are as usual.`;
  earlier.hidden = false;
}

// A video's form is told by its mode.
function formOf(name, body) {
  const forms = offered.find((each) => each.name === name)?.forms ?? [];
  return Math.max(0, forms.findIndex((form) => form.fields.some((field) => field.name === "mode" && field.constant === body.mode)));
}

holder.addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
holder.addEventListener("input", asked);
choose.addEventListener("change", () => select(choose.value));
const asks = new URLSearchParams(location.search);
const former = asks.has("again") && kept(asks.get("again"));
if (former) recall(former);
else select(asks.get("endpoint") ?? "gen-3-image-klein");
if (asks.has("finetune_id")) request.fill({ finetune_id: asks.get("finetune_id") });
if (asks.has("edit")) await use(asks.get("edit"));
if (asks.has("again") && !former) {
  earlier.textContent = "What that request was is not known in this window.";
  earlier.hidden = false;
}
