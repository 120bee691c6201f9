// The form of an endpoint, built from its description.
import { el } from "./dom.js";
import { promptWords } from "./layout.js";
import { LabelledWidget, createWidget } from "./widgets.js";

// Optional fields that are not listed are under "Advanced", like the sizes.
const FIELD_ORDER = [
  "prompt", "image", "images", "input_image", "person", "garment", "mask", "control_image", "image_prompt", "keyframes",
  "start_video", "draft_cache", "finetune_id", "finetune_strength", "aspect_ratio", "resolution", "duration", "width",
  "height", "reference_offset_x", "reference_offset_y", "seed",
];
const SIZE_FIELDS = ["width", "height"];
const IMAGE_FIELDS = ["images", "input_image", "image"];

export class RequestForm {
  // `fields` are those of a form in schema.js.
  constructor(fields) {
    this.fields = fields.filter((field) => field.name !== "mode" && field.constant === undefined);
    const constants = fields.filter((field) => field.constant !== undefined);
    this.constants = Object.fromEntries(constants.map((field) => [field.name, field.constant]));
    this.widgets = new Map();
    this.labels = new Map();
    for (const field of this.fields) {
      const widget = createWidget(field, this);
      this.widgets.set(field.name, widget);
      this.labels.set(field.name, new LabelledWidget(field, widget));
    }
    this.element = this.#arrange();
    this.element.addEventListener("input", (event) => {
      this.labels.get(event.target.closest("[data-name]")?.dataset.name)?.showProblem();
      this.#update();
    });
    this.#update();
  }

  value(name) {
    return this.widgets.get(name)?.value();
  }

  set(name, value) {
    this.widgets.get(name)?.set(value);
  }

  // Returns the fields that differ from the service's defaults.
  body() {
    const values = [...this.widgets].map(([name, widget]) => [name, widget.value()]);
    return { ...this.constants, ...Object.fromEntries(values.filter(([, value]) => value !== undefined)) };
  }

  fill(body) {
    for (const [name, widget] of this.widgets) widget.set(body[name]);
    this.#update();
  }

  // Takes over the values of another endpoint's form that fit here.
  adopt(body) {
    const fits = ({ name, type, choices }) =>
      body[name] !== undefined && type !== "tuned" && !SIZE_FIELDS.includes(name) && (!choices || choices.includes(body[name]));
    const values = Object.fromEntries(this.fields.filter(fits).map(({ name }) => [name, body[name]]));
    const hasLayout = this.fields.some(({ type }) => type === "structured");
    if (values.prompt && !hasLayout) values.prompt = promptWords(values.prompt);
    const images = [body[IMAGE_FIELDS.find((name) => body[name])] ?? []].flat();
    const imageField = IMAGE_FIELDS.find((name) => this.widgets.has(name));
    if (images.length && imageField) values[imageField] ??= imageField === "images" ? images : images[0];
    this.fill(values);
  }

  // Maps required fields that are empty to their problem.
  missing() {
    const empty = this.fields.filter(({ name, required }) => required && ["", undefined].includes(this.value(name)));
    return Object.fromEntries(empty.map(({ name, title }) => [name, `${title} is required.`]));
  }

  // Shows problems by field and focuses the first. Returns true if there are problems and all have a field here.
  showProblems(problems) {
    for (const [name, label] of this.labels) label.showProblem(problems[name]);
    const first = [...this.labels].find(([name]) => problems[name])?.[1];
    first?.element.closest("details")?.setAttribute("open", "");
    first?.input.focus();
    return Boolean(first) && Object.keys(problems).every((name) => this.labels.has(name));
  }

  #update() {
    for (const widget of this.widgets.values()) widget.update?.();
  }

  #arrange() {
    const rank = ({ name }) => FIELD_ORDER.indexOf(name);
    const isMain = (field) => field.required || (rank(field) >= 0 && !SIZE_FIELDS.includes(field.name));
    const elementOf = ({ name }) => this.labels.get(name).element;
    const main = this.fields.filter(isMain).sort((a, b) => rank(a) - rank(b));
    const advanced = this.fields.filter((field) => !isMain(field));
    return el("div", { class: "fields" }, main.map(elementOf),
      advanced.length > 0 && el("details", {}, el("summary", {}, "Advanced"), advanced.map(elementOf)));
  }
}
