// A form for every endpoint, and what comes of it beside it.
import { get, post } from "./api.js";
import { asDataUrl } from "./images.js";
import { card } from "./card.js";
import { programs } from "./code.js";
import { credits, el } from "./dom.js";
import { RequestForm } from "./form.js";
import { draft, keep, keepDraft, kept, shown } from "./requests.js";
import { endpoints, GROUPS } from "./schema.js";
import { may, open } from "./shell.js";

// By the name of an image that came of it.
const EXAMPLES = {
  heart: "a large pink heart on a gradient from white to light blue",
  two: "a red circle on the left and a blue square on the right on a white background",
  star: "a large yellow star on a black background",
  corners: "a red triangle in the top left and a green circle in the bottom right on a yellow background",
};
const MOVING = "a red circle moves to the right on a white background";
const PRICE_AFTER_MS = 500;
const MOST = 4; // results of one press of the button
const BELOW = matchMedia("(max-width: 50rem)"); // where results are below the form

const holder = document.getElementById("form");
const results = document.getElementById("results");
const [session, available] = await Promise.all([open(), endpoints()]);
const demos = get("/v1/models").then(({ data }) => new Set(data.filter((model) => model.demo).map((model) => model.id)), () => new Set());

let endpoint = null;
let request = null;

const choose = el("select", { id: "endpoint" }, GROUPS.map((group) =>
  el("optgroup", { label: group }, available.filter((each) => each.group === group).map((each) => el("option", { value: each.name }, each.title)))));
const summary = el("p", { class: "faint" });
const demo = el("p", { class: "notice", hidden: true }, "Demo model: it draws coloured shapes, such as a star, a heart or a moon, and knows little else.");
const modes = el("div", { class: "row" });
const earlier = el("p", { class: "notice", role: "status", hidden: true });
const fields = el("div");
const price = el("span", { class: "faint", "aria-live": "polite" });
const warnings = el("div", { "aria-live": "polite" });
const count = el("input", { type: "number", min: 1, max: MOST, value: 1, "aria-label": "How many" });
const problem = el("p", { class: "bad", role: "alert", hidden: true });
const submit = el("button", { class: "main", disabled: !may(session, "generate") }, "Generate");
const code = el("details", { class: "code" }, el("summary", {}, "Code"));
holder.append(el("label", { htmlFor: "endpoint" }, "Endpoint"), choose, summary, demo, modes, earlier, fields,
  el("div", { class: "send" }, problem, warnings, el("div", { class: "row apart" }, el("div", { class: "row" }, submit, "×", count), price)), code);
const examples = el("div", { class: "examples", role: "group", "aria-label": "Examples" },
  Object.entries(EXAMPLES).map(([name, prompt]) =>
    el("button", { type: "button", onclick: () => run({ prompt }, "gen-3-image-klein") },
      el("img", { src: new URL(`examples/${name}.jpeg`, import.meta.url).href, alt: "", width: 200, height: 150 }), el("span", {}, prompt))));
results.append(examples);
if (!may(session, "generate")) refuse({ message: `Your role, ${session.role.replace("_", " ")}, can look but not generate.` });

function select(name, mode = 0) {
  endpoint = available.find((each) => each.name === name) ?? available[0];
  choose.value = endpoint.name;
  summary.textContent = `${endpoint.summary} · ${endpoint.name}`;
  demos.then((names) => (demo.hidden = !names.has(endpoint.name)));
  const before = request?.body();
  request = new RequestForm(suggesting(endpoint.forms[mode].fields));
  if (before) request.carry(before);
  fields.replaceChildren(request.element);
  modes.replaceChildren(...(endpoint.forms.length < 2 ? [] : endpoint.forms.map((form, index) =>
    el("button", { type: "button", "aria-pressed": String(index === mode), onclick: () => select(name, index) }, form.title))));
  examples.hidden = endpoint.group !== "Generate" || !may(session, "generate") || results.children.length > 1;
  schedulePrice();
}

// With a prompt that any model can follow, the bundled ones, too; where it is about an image, the service's own.
function suggesting(all) {
  if (all.some((field) => field.required && field.name !== "prompt" && field.constant === undefined)) return all;
  const example = all.some((field) => field.name === "duration") ? MOVING : EXAMPLES.heart;
  return all.map((field) => (field.name === "prompt" ? { ...field, example } : field));
}

let timer = 0;
// The price, and the request as a program, once nothing was typed for a while.
function schedulePrice() {
  clearTimeout(timer);
  timer = setTimeout(async () => {
    const body = request.body();
    keepDraft(endpoint.name, body);
    code.replaceChildren(code.firstChild, ...Object.entries(programs(endpoint.name, body)).map(([language, text]) =>
      el("div", {}, el("div", { class: "row apart" }, el("strong", {}, language), el("button", { type: "button", onclick: () => navigator.clipboard.writeText(text) }, "Copy")), el("pre", { tabIndex: 0 }, text))));
    price.textContent = "";
    warnings.replaceChildren();
    if (Object.keys(request.missing()).length) return;
    try {
      const quote = await post("/v1/pricing", { path: endpoint.path, body });
      price.textContent = credits(Number((quote.cost * count.value).toFixed(3)));
      warnings.replaceChildren(...quote.warnings.map((each) => el("p", { class: "notice" }, each)));
    } catch {} // what is wrong is said once it is sent
  }, PRICE_AFTER_MS);
}

async function send(times) {
  if (submit.disabled) return; // one at a time, however it is asked for
  const missing = request.missing();
  problem.hidden = true;
  request.show(missing);
  if (Object.keys(missing).length) return;
  submit.disabled = true;
  try {
    for (let index = 0; index < times; index++) await sendOne(index, times);
  } catch (refusal) {
    if (!request.show(refusal.fields ?? {})) refuse(refusal);
  } finally {
    submit.disabled = !may(session, "generate");
  }
}

// Of several with a seed, each has the next one.
async function sendOne(index, times) {
  const [name, body] = [endpoint.name, request.body()];
  if (body.seed !== undefined) body.seed += index;
  const task = await post(endpoint.path, body);
  keep(task.id, name, body);
  const taskCard = show(task.id, name, body, task.cost);
  taskCard.classList.toggle("single", times === 1);
  examples.hidden = true;
  examples.after(taskCard);
  if (index === 0) taskCard.scrollIntoView({ block: BELOW.matches ? "start" : "nearest" });
}

function show(id, name, body, cost) {
  const before = body.images?.[0] ?? body.input_image ?? body.image;
  return card({ id, endpoint: name, body, before, cost }, { again: (next) => run(next, name), use, reseed, mayRevoke: may(session, "generate") });
}

// What this window has asked for before the page was loaded again, as far as it is still there.
async function showEarlier() {
  const found = await Promise.all(shown().filter(kept).map((id) => get(`/v1/get_result?id=${encodeURIComponent(id)}`).catch(() => null)));
  results.append(...found.filter(Boolean).map(({ id, cost }) => show(id, kept(id).endpoint, kept(id).body, cost)));
  examples.hidden ||= results.children.length > 1;
}

function reseed(seed) {
  const control = request.widgets.get("seed");
  control?.set(seed);
  control?.input.focus();
  schedulePrice();
}

function refuse({ message }) {
  problem.textContent = message;
  problem.hidden = false;
}

async function run(body, name = endpoint.name) {
  select(name, formOf(name, body));
  request.fill(body);
  await send(1);
}

// The result of a task becomes the image of the next request.
const use = (id) => edit(id).catch(refuse);

// By a link of now: earlier ones end.
async function edit(id) {
  const { result } = await get(`/v1/get_result?id=${encodeURIComponent(id)}`);
  const answer = result && (await fetch(result.sample));
  if (!answer?.ok) throw new Error("This image is not kept any more");
  const data = await asDataUrl(await answer.blob());
  const field = ["images", "input_image", "image"].find((name) => request.widgets.has(name));
  if (!field) select("gen-3-image-klein");
  request.widgets.get(field ?? "images").set(field && field !== "images" ? data : [data]);
  const prompt = request.widgets.get("prompt");
  prompt?.set(""); // what it showed is no instruction of what to change
  (prompt?.input ?? prompt?.element)?.focus();
  schedulePrice();
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
  const forms = available.find((each) => each.name === name)?.forms ?? [];
  return Math.max(0, forms.findIndex((form) => form.fields.some((field) => field.name === "mode" && field.constant === body.mode)));
}

holder.addEventListener("submit", (event) => {
  event.preventDefault();
  send(Math.min(count.value, MOST));
});
holder.addEventListener("input", schedulePrice);
count.addEventListener("change", () => (count.value = Math.min(MOST, Math.max(1, Math.round(count.value) || 1))));
choose.addEventListener("change", () => select(choose.value));
// Coming back, whatever the address asked for at first may have been changed since.
const isBack = location.search === "" || performance.getEntriesByType("navigation")[0]?.type !== "navigate";
const unsent = isBack && draft();
const asks = new URLSearchParams(location.search);
const former = asks.has("again") && kept(asks.get("again"));
if (unsent) {
  select(unsent.endpoint, formOf(unsent.endpoint, unsent.body));
  request.fill(unsent.body);
} else if (former) recall(former);
else select(asks.get("endpoint") ?? "gen-3-image-klein");
showEarlier();
for (const name of ["finetune_id", "prompt"]) if (!unsent && asks.has(name)) request.fill({ ...request.body(), [name]: asks.get(name) });
if (!unsent && asks.has("edit")) await use(asks.get("edit"));
if (!unsent && asks.has("again") && !former) {
  earlier.textContent = "What that request was is not known in this window.";
  earlier.hidden = false;
}
