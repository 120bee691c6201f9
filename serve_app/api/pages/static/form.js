// The form of an endpoint, made from its description.
import { el } from "./dom.js";
import { spoken } from "./layout.js";
import { labelled, widget } from "./widgets.js";

const FIRST = ["prompt", "image", "images", "input_image", "person", "garment", "mask", "control_image", "image_prompt", "keyframes", "start_video", "draft_cache", "finetune_id", "finetune_strength", "aspect_ratio", "resolution", "duration", "width", "height", "reference_offset_x", "reference_offset_y", "seed"];
const EXACT = new Set(["width", "height"]); // for few, where they needn't be given
const HIDDEN = new Set(["mode"]);
const IMAGES = ["images", "input_image", "image"]; // names of the image that is worked on

export class RequestForm {
  // `fields` as schema.js has them.
  constructor(fields) {
    this.fields = fields.filter((field) => !HIDDEN.has(field.name) && field.constant === undefined);
    this.constants = Object.fromEntries(fields.filter((field) => field.constant !== undefined).map((field) => [field.name, field.constant]));
    this.widgets = new Map();
    this.labels = new Map();
    for (const field of this.fields) {
      const control = widget(field, (name) => this.widgets.get(name));
      this.widgets.set(field.name, control);
      this.labels.set(field.name, labelled(field, control));
    }
    const [first, more] = this._parted();
    this.element = el("div", { class: "fields" }, first.map((field) => this.labels.get(field.name).element),
      more.length ? el("details", {}, el("summary", {}, "Advanced"), more.map((field) => this.labels.get(field.name).element)) : null);
    this.element.addEventListener("input", (event) => {
      this.labels.get(event.target.closest("[data-name]")?.dataset.name)?.problem();
      this.heed();
    });
    this.heed();
  }

  // Only what differs from what the service takes by itself.
  body() {
    const body = { ...this.constants };
    for (const [name, control] of this.widgets) {
      const value = control.value();
      if (value !== undefined) body[name] = value;
    }
    return body;
  }

  fill(body) {
    for (const [name, control] of this.widgets) control.set(body[name]);
    this.heed();
  }

  // Takes over what another form said in fields that are here, too, and its first image where this one is named differently.
  carry(body) {
    const fits = ({ name, kind, choices }) => body[name] !== undefined && kind !== "tuned" && !EXACT.has(name) && (!choices || choices.includes(body[name]));
    const next = Object.fromEntries(this.fields.filter(fits).map(({ name }) => [name, body[name]]));
    if (next.prompt && this.fields.some(({ name, kind }) => name === "prompt" && kind === "prompt")) next.prompt = spoken(next.prompt);
    const image = body[IMAGES.find((each) => body[each])];
    const name = IMAGES.find((each) => this.widgets.has(each));
    if (image && name) next[name] ??= name === "images" ? [image].flat() : [image].flat()[0];
    this.fill(next);
  }

  // Some widgets show what other fields say.
  heed() {
    for (const control of this.widgets.values()) control.heed?.();
  }

  // What is to be said of fields that must not be empty, and are.
  missing() {
    const empty = this.fields.filter((field) => field.required && ["", undefined].includes(this.widgets.get(field.name).value()));
    return Object.fromEntries(empty.map((field) => [field.name, `${field.title} is required.`]));
  }

  // What is wrong with fields; the first one gets the focus. Returns whether all of it is said here.
  show(problems) {
    let first = null;
    for (const [name, label] of this.labels) {
      label.problem(problems[name]);
      if (problems[name] && !first) first = label;
    }
    first?.element.closest("details")?.setAttribute("open", "");
    first?.focus();
    return Boolean(first) && Object.keys(problems).every((name) => this.labels.has(name));
  }

  _parted() {
    const rank = (field) => FIRST.indexOf(field.name);
    const first = this.fields.filter((field) => field.required || (rank(field) >= 0 && !EXACT.has(field.name))).sort((a, b) => rank(a) - rank(b));
    return [first, this.fields.filter((field) => !first.includes(field))];
  }
}
