// The form of an endpoint, made from its description.
import { el } from "./dom.js";
import { labelled, widget } from "./widgets.js";

const FIRST = ["prompt", "image", "images", "input_image", "person", "garment", "mask", "control_image", "image_prompt", "keyframes", "start_video", "draft_cache", "finetune_id", "finetune_strength", "aspect_ratio", "resolution", "duration", "width", "height", "reference_offset_x", "reference_offset_y", "seed"];
const EXACT = new Set(["width", "height"]); // for few, where they needn't be given
const HIDDEN = new Set(["mode"]);

export class RequestForm {
  // `fields` as schema.js has them.
  constructor(fields) {
    this.fields = fields.filter((field) => !HIDDEN.has(field.name) && field.constant === undefined);
    this.constants = Object.fromEntries(fields.filter((field) => field.constant !== undefined).map((field) => [field.name, field.constant]));
    this.widgets = new Map();
    this.labels = new Map();
    for (const field of this.fields) {
      const made = widget(field, (name) => this.widgets.get(name));
      this.widgets.set(field.name, made);
      this.labels.set(field.name, labelled(field, made));
    }
    const [first, more] = this._parted();
    this.element = el("div", { class: "fields" }, first.map((field) => this.labels.get(field.name).element),
      more.length ? el("details", {}, el("summary", {}, "Advanced"), more.map((field) => this.labels.get(field.name).element)) : null);
    this.element.addEventListener("input", () => this.heed());
    this.heed();
  }

  // Only what differs from what the service takes by itself.
  body() {
    const body = { ...this.constants };
    for (const [name, made] of this.widgets) {
      const value = made.value();
      if (value !== undefined) body[name] = value;
    }
    return body;
  }

  fill(body) {
    for (const [name, made] of this.widgets) made.set(body[name]);
    this.heed();
  }

  // Some widgets show what other fields say.
  heed() {
    for (const made of this.widgets.values()) made.heed?.();
  }

  // What the service says of fields; the first one gets the focus.
  show(problems) {
    let first = null;
    for (const [name, label] of this.labels) {
      label.problem(problems[name]);
      if (problems[name] && !first) first = label;
    }
    first?.element.closest("details")?.setAttribute("open", "");
    first?.focus();
  }

  _parted() {
    const rank = (field) => FIRST.indexOf(field.name);
    const first = this.fields.filter((field) => field.required || (rank(field) >= 0 && !EXACT.has(field.name))).sort((a, b) => rank(a) - rank(b));
    return [first, this.fields.filter((field) => !first.includes(field))];
  }
}
