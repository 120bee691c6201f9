// Widgets for the fields of requests: {element, value(), set(value)}. value() is undefined if nothing is to be sent.
// `input` gets the focus if that is not the element. update() is called when any field of the form has changed.
import { get } from "./api.js";
import { button, el, setMessage, svg, uniqueId } from "./dom.js";
import { ImageList, ImageSlot, VideoSlot, maskField } from "./images.js";
import { KeyframeEditor } from "./keyframe_editor.js";
import { StructuredPrompt } from "./layout_editor.js";
import { OutpaintingEditor } from "./outpainting_editor.js";

const WIDGETS = {
  prompt,
  structured: (field, form) => new StructuredPrompt(prompt(field), form),
  switch: toggle,
  choice,
  integer: number,
  number,
  seed,
  aspect_ratio: ratio,
  image: () => new ImageSlot(),
  images: (field) => new ImageList(field),
  mask: maskField,
  outpainting: (field, form) => new OutpaintingEditor(form),
  keyframes: (field, form) => new KeyframeEditor(field, form),
  video: () => new VideoSlot(),
  tuned: tunedModel,
};

export const createWidget = (field, form) => (WIDGETS[field.type] ?? text)(field, form);

function prompt({ maxLength, required, example }) {
  const area = el("textarea", { maxLength, placeholder: required ? example ?? "" : "" });
  area.addEventListener("keydown", ({ key, repeat, ctrlKey, metaKey }) => {
    if (key === "Enter" && !repeat && (ctrlKey || metaKey)) area.form.requestSubmit();
  });
  const value = () => area.value || (required ? "" : undefined);
  return { element: area, value, set: (next) => (area.value = next ?? "") };
}

function text({ name, maxLength, defaultValue, acceptsInteger }) {
  const type = name === "webhook_secret" ? "password" : "text";
  const input = el("input", { type, autocomplete: "off", maxLength, placeholder: defaultValue ?? "" });
  const value = () => {
    const trimmed = input.value.trim();
    return (acceptsInteger && /^\d+$/.test(trimmed) ? Number(trimmed) : trimmed) || undefined;
  };
  return { element: input, value, set: (next) => (input.value = next ?? "") };
}

function toggle({ defaultValue }) {
  const standard = defaultValue === true;
  const box = el("input", { type: "checkbox", checked: standard });
  const value = () => (box.checked === standard ? undefined : box.checked);
  return { element: box, value, set: (next) => (box.checked = next ?? standard) };
}

function choice({ defaultValue, choices }) {
  const standard = String(defaultValue ?? "");
  const automatic = defaultValue === null && el("option", { value: "" }, "automatic");
  const select = el("select", {}, automatic, choices.map((each) => el("option", { value: each }, each)));
  select.value = standard;
  const value = () => (select.value === standard ? undefined : select.value);
  return { element: select, value, set: (next) => (select.value = next ?? standard) };
}

const MAX_SLIDER_RANGE = 100; // beyond, neighbouring values are hard to tell apart on a slider

function number({ type, defaultValue, min, max }) {
  const isInteger = type === "integer";
  const hasSlider = defaultValue !== null && max !== undefined && max - (min ?? 0) <= MAX_SLIDER_RANGE;
  const input = el("input", { type: "number", min, max, step: isInteger ? 1 : "any",
    inputMode: isInteger ? "numeric" : "decimal", placeholder: defaultValue ?? "automatic" });
  const value = () => (input.value === "" ? undefined : Number(input.value));
  if (!hasSlider) return { element: input, value, set: (next) => (input.value = next ?? "") };
  const slider = el("input", { type: "range", min, max, step: isInteger ? 1 : 0.05, value: defaultValue,
    tabIndex: -1, "aria-hidden": "true" });
  slider.addEventListener("input", () => (input.value = slider.value));
  input.addEventListener("input", () => (slider.value = input.value || defaultValue));
  const set = (next) => {
    input.value = next ?? "";
    slider.value = next ?? defaultValue;
  };
  return { element: el("div", { class: "slider" }, slider, input), input, value, set };
}

function seed() {
  const input = el("input", { type: "text", inputMode: "numeric", pattern: "-?[0-9]*", placeholder: "random" });
  const draw = () => (input.value = String(Math.floor(Math.random() * 2 ** 32)));
  const dice = button("⚄", draw, { "aria-label": "Another seed", title: "Another seed" });
  const value = () => (input.value.trim() === "" ? undefined : Number(input.value));
  return { element: el("div", { class: "row seed" }, input, dice), input, value, set: (next) => (input.value = next ?? "") };
}

// One of the project's tuned models. An id that is set stays, even if the project has no such model.
function tunedModel({ base }) {
  const select = el("select", {}, el("option", { value: "" }, "Choose a tuned model"));
  const optionOf = (value) => {
    const find = () => [...select.options].find((option) => option.value === value);
    return find() ?? (select.add(new Option(value, value)), find());
  };
  get("/v1/my_finetunes").then(({ finetunes }) => {
    const models = finetunes.filter((model) => model.base === base);
    for (const { finetune_id: id, name } of models) optionOf(id).textContent = name;
    if (select.options.length < 2) select.options[0].textContent = "None yet: upload one on the account page";
  }, () => {});
  return { element: select, value: () => select.value || undefined, set: (value) => (optionOf(value ?? "").selected = true) };
}

const COMMON_RATIOS = ["auto", "1:1", "4:3", "3:4", "16:9", "9:16"];

function ratio({ title, choices, defaultValue }) {
  const name = uniqueId("ratio");
  const standard = defaultValue ?? "auto";
  const radios = choices.map((value) => el("input", { type: "radio", name, value, checked: value === standard }));
  const labels = radios.map((radio) =>
    el("label", { class: "ratio", title: radio.value }, radio, ratioIcon(radio.value), el("span", {}, radio.value)));
  const [common, rare] = [true, false].map((isCommon) =>
    el("div", { class: "ratios" }, labels.filter((label) => COMMON_RATIOS.includes(label.title) === isCommon)));
  const more = el("details", {}, el("summary", {}, "More ratios"), rare);
  const value = () => {
    const checked = radios.find((radio) => radio.checked)?.value;
    return checked === defaultValue ? undefined : checked;
  };
  const set = (next) => {
    for (const radio of radios) radio.checked = radio.value === (next ?? defaultValue);
    more.open ||= !COMMON_RATIOS.includes(next ?? standard);
  };
  return { element: el("div", { role: "radiogroup", "aria-label": title }, common, more), value, set };
}

const ICON_SIZE = 26;
const MAX_FRAME_SIDE = ICON_SIZE - 4;
const AUTO_FRAME_SIDE = 18;

function ratioIcon(name) {
  const [across, down] = name.split(":").map(Number);
  const unit = MAX_FRAME_SIDE / Math.max(across, down);
  const [width, height] = down ? [across * unit, down * unit] : [AUTO_FRAME_SIDE, AUTO_FRAME_SIDE];
  const frame = svg("rect", { x: (ICON_SIZE - width) / 2, y: (ICON_SIZE - height) / 2, width, height, rx: 2,
    ...(down ? {} : { "stroke-dasharray": "3 2" }) });
  return svg("svg", { viewBox: `0 0 ${ICON_SIZE} ${ICON_SIZE}`, "aria-hidden": "true" }, frame);
}

// A widget with its label, its help and its problem.
export class LabelledWidget {
  constructor(field, widget) {
    this.input = widget.input ?? widget.element;
    this.input.id ||= uniqueId(field.name);
    this.problem = el("small", { id: uniqueId("problem"), class: "bad", hidden: true, role: "alert" });
    const help = el("small", { id: uniqueId("help") }, field.help.replaceAll("`", ""));
    this.input.setAttribute("aria-describedby", `${this.problem.id} ${help.id}`);
    const helpToggle = field.help && el("details", { class: "help" }, el("summary", { "aria-label": "Help" }, "?"), help);
    const label = el("label", { htmlFor: this.input.id }, field.title,
      !field.required && el("span", { class: "faint optional" }, " optional"));
    const isSwitch = field.type === "switch";
    this.element = el("div", { class: isSwitch ? "field switch" : "field", "data-name": field.name },
      el("div", { class: "row caption" }, isSwitch && this.input, label, helpToggle),
      !isSwitch && widget.element, this.problem);
  }

  showProblem(message) {
    setMessage(this.problem, message);
    this.input.setAttribute("aria-invalid", String(Boolean(message)));
  }
}
