// A widget of each kind of field: {element, value(), set(value)}; value() is undefined where nothing is to be sent.
// `input` is what gets the focus where that is not the element; `heed()` is told that some field has changed.
import { get } from "./api.js";
import { el, unique } from "./dom.js";
import { outpainting } from "./outpainting.js";
import { mask, image, images, video } from "./images.js";
import { prompt, structured } from "./prompt.js";
import { ratio } from "./ratio.js";
import { keyframes } from "./timeline.js";

// `others` finds the widget of another field by its name.
export function widget(field, others) {
  const make = { prompt, structured, switch: toggle, choice, integer: number, number, seed, aspect_ratio: ratio, image, outpainting, images, mask, keyframes, video, tuned }[field.kind];
  return (make ?? text)(field, others);
}

function text(field) {
  const secret = field.name === "webhook_secret";
  const input = el("input", { type: secret ? "password" : "text", autocomplete: "off", maxLength: field.longest, placeholder: field.standard ?? "" });
  const value = () => (field.counts && /^\d+$/.test(input.value.trim()) ? Number(input.value) : input.value.trim());
  return { element: input, value: () => value() || undefined, set: (next) => (input.value = next ?? "") };
}

function toggle(field) {
  const box = el("input", { type: "checkbox", checked: field.standard === true });
  return { element: box, value: () => (box.checked === (field.standard === true) ? undefined : box.checked), set: (value) => (box.checked = value ?? field.standard === true) };
}

// Where nothing is the default, the first choice is none.
function choice(field) {
  const standard = String(field.standard ?? "");
  const none = field.standard === null ? [el("option", { value: "" }, "automatic")] : [];
  const select = el("select", {}, none, field.choices.map((each) => el("option", { value: each }, each)));
  select.value = standard;
  return { element: select, value: () => (select.value === standard ? undefined : select.value), set: (value) => (select.value = value ?? standard) };
}

const WIDEST_SLIDER = 100;

// A slider where every value can be told apart on it, and it has one to begin with.
function number(field) {
  const whole = field.kind === "integer";
  const slides = field.standard !== null && field.most !== undefined && field.most - (field.least ?? 0) <= WIDEST_SLIDER;
  const input = el("input", { type: "number", min: field.least, max: field.most, step: whole ? 1 : "any", inputMode: whole ? "numeric" : "decimal", placeholder: field.standard ?? "automatic" });
  const value = () => (input.value === "" ? undefined : Number(input.value));
  if (!slides) return { element: input, value, set: (next) => (input.value = next ?? "") };
  const slider = el("input", { type: "range", min: field.least, max: field.most, step: whole ? 1 : 0.05, value: field.standard, tabIndex: -1, "aria-hidden": "true" });
  slider.addEventListener("input", () => (input.value = slider.value));
  input.addEventListener("input", () => (slider.value = input.value || field.standard));
  const set = (next) => {
    input.value = next ?? "";
    slider.value = next ?? field.standard;
  };
  return { element: el("div", { class: "slider" }, slider, input), input, value, set };
}

// One of the project's tuned models. An id that is filled in stays, even if it is not in the list.
function tuned({ base }) {
  const select = el("select", {}, el("option", { value: "" }, "Choose a tuned model"));
  const find = (value) => [...select.options].find((each) => each.value === value);
  const option = (value) => find(value) ?? (select.add(new Option(value, value)), find(value));
  get("/v1/my_finetunes").then(({ finetunes }) => {
    const mine = finetunes.filter((each) => each.base === base);
    mine.forEach(({ finetune_id: id, name }) => (option(id).textContent = name));
    if (select.options.length < 2) select.options[0].textContent = "None yet: upload one on the account page";
  }, () => {});
  return { element: select, value: () => select.value || undefined, set: (value) => (option(value ?? "").selected = true) };
}

function seed() {
  const input = el("input", { type: "text", inputMode: "numeric", pattern: "-?[0-9]*", placeholder: "random" });
  const dice = el("button", { type: "button", "aria-label": "Another seed", title: "Another seed" }, "⚄");
  dice.addEventListener("click", () => (input.value = String(Math.floor(Math.random() * 2 ** 32))));
  const value = () => (input.value.trim() === "" ? undefined : Number(input.value));
  return { element: el("div", { class: "row seed" }, input, dice), input, value, set: (next) => (input.value = next ?? "") };
}

// A label, the widget, what it does and what is wrong with it.
export function labelled(field, control) {
  const input = control.input ?? control.element;
  input.id ||= unique(field.name);
  const help = el("small", { id: unique("help") }, plain(field.help));
  const about = field.help && el("details", { class: "help" }, el("summary", { "aria-label": "Help" }, "?"), help);
  const wrong = el("small", { id: unique("wrong"), class: "bad", hidden: true, role: "alert" });
  input.setAttribute("aria-describedby", `${wrong.id} ${help.id}`);
  const label = el("label", { htmlFor: input.id }, field.title, field.required ? "" : el("span", { class: "faint optional" }, " optional"));
  const box = field.kind === "switch";
  const element = el("div", { class: box ? "field switch" : "field", "data-name": field.name }, box ? el("div", { class: "row caption" }, input, label, about) : [el("div", { class: "row caption" }, label, about), control.element], wrong);
  const problem = (message) => {
    wrong.textContent = message ?? "";
    wrong.hidden = !message;
    input.setAttribute("aria-invalid", String(Boolean(message)));
  };
  return { element, problem, focus: () => input.focus() };
}

const plain = (text) => text.replaceAll("`", "");
