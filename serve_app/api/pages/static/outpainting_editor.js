// The image field of outpainting: people pull the edges of a frame around the image. The number fields show the same.
import { CanvasEditor, clamp } from "./canvas_editor.js";
import { button, fromTemplate } from "./dom.js";
import { ImageSlot } from "./images.js";

const LENGTH_FIELDS = ["width", "height"];
const START_FIELDS = ["reference_offset_x", "reference_offset_y"];
const KEY_STEP = 16; // pixels
const LARGE_KEY_STEP = 128; // with the Shift key
const SIDE_STEP = 16;
const MIN_SIDE = 64;
const MAX_SIDE = 6256;
const MAX_AREA = 2 ** 22;
const INITIAL_FACTOR = 1.25; // of the image's sides
const VIEW_FACTOR = 1.4; // of the frame's sides
const VIEW_RATIO = 4 / 3; // of the stage, as the style sheet has it

// Each function returns the sides of a frame from those of the image.
const PRESETS = {
  "All around": enlarge,
  Square: (sides) => widen(sides, 1),
  "16:9": (sides) => widen(sides, 16 / 9),
  "9:16": (sides) => widen(sides, 9 / 16),
};

// The edges in their order in the page. `outward` is the direction away from the image.
const EDGES = [
  { axis: 0, outward: -1 },
  { axis: 0, outward: 1 },
  { axis: 1, outward: -1 },
  { axis: 1, outward: 1 },
];

export class OutpaintingEditor extends CanvasEditor {
  #isPulling = false;

  constructor(form) {
    const { element, stage, ...parts } = fromTemplate("outpainting-editor");
    super(stage);
    Object.assign(this, parts, { form, element });
    this.slot = new ImageSlot((data) => this.#showImage(data));
    this.input = this.slot.input;
    this.slot.element.append(stage);
    element.prepend(this.slot.element);
    EDGES.forEach((edge, index) => this.#listen(this.frame.children[index], edge));
    this.presets.append(...Object.entries(PRESETS).map(([name, sides]) =>
      button(name, () => this.#surround(sides), { value: name })));
  }

  value() {
    return this.slot.value();
  }

  set(data) {
    this.slot.set(data);
  }

  update() {
    const isEmpty = !this.value();
    for (const element of [this.surface, this.help, this.presets]) element.hidden = isEmpty;
    if (isEmpty || !this.preview.naturalWidth) return;
    for (const preset of this.presets.children) preset.disabled = !isAllowed(this.#roundSides(PRESETS[preset.value]));
    const axes = this.#axes;
    const [across, down] = axes;
    if (!this.#isPulling) {
      const width = Math.max(across.length, down.length * VIEW_RATIO) * VIEW_FACTOR;
      const height = width / VIEW_RATIO;
      this.view = { width, height, x: (across.length - width) / 2, y: (down.length - height) / 2 };
    }
    this.place(this.frame, 0, 0, across.length, down.length);
    this.place(this.preview, across.start, down.start, ...this.#imageSides);
    EDGES.forEach((edge, index) => {
      const gap = this.#gap(edge, axes);
      Object.assign(this.frame.children[index], { ariaValueNow: gap, ariaValueText: `${gap} pixels beyond the image` });
    });
  }

  #listen(element, edge) {
    const { axis, outward } = edge;
    element.ariaValueMax = MAX_SIDE;
    this.onDrag(element, () => {
      const axes = this.#axes;
      this.#isPulling = true; // the view stays, so that the edge follows the pointer
      element.focus();
      return (x, y) => this.#pull(edge, [x, y][axis] * outward, axes);
    }, () => {
      this.#isPulling = false;
      this.update();
    });
    this.onKeys(element, (x, y, { shiftKey }) =>
      this.#pull(edge, [x, y][axis] * outward * (shiftKey ? LARGE_KEY_STEP : KEY_STEP), this.#axes));
  }

  get #imageSides() {
    return [this.preview.naturalWidth, this.preview.naturalHeight];
  }

  // The frame on each axis, from the number fields: its length, and where the image starts.
  get #axes() {
    return this.#imageSides.map((side, axis) => {
      const length = this.form.value(LENGTH_FIELDS[axis]) ?? side;
      return { length, start: this.form.value(START_FIELDS[axis]) ?? Math.floor((length - side) / 2) };
    });
  }

  set #axes(axes) {
    axes.forEach(({ length, start }, axis) => {
      this.form.set(LENGTH_FIELDS[axis], length);
      this.form.set(START_FIELDS[axis], start);
    });
    this.notify();
  }

  // Returns the pixels between the image and an edge of the frame.
  #gap({ axis, outward }, axes) {
    const { length, start } = axes[axis];
    return outward < 0 ? start : length - start - this.#imageSides[axis];
  }

  #pull(edge, pixels, axes) {
    const { axis, outward } = edge;
    const { length, start } = axes[axis];
    // Inward an edge moves as far as the image, or into it if the service crops what sticks out.
    const maxInward = this.form.value("auto_crop") ? length - MIN_SIDE : Math.max(this.#gap(edge, axes), 0);
    const change = clamp(Math.round(pixels), -maxInward, MAX_SIDE - length);
    this.#axes = axes.with(axis, { length: length + change, start: outward < 0 ? start + change : start });
  }

  #roundSides(preset) {
    const imageSides = this.#imageSides;
    return preset(imageSides).map((side, axis) => Math.max(MIN_SIDE, imageSides[axis], SIDE_STEP * Math.floor(side / SIDE_STEP)));
  }

  // Puts the image in the middle of a frame.
  #surround(preset) {
    const imageSides = this.#imageSides;
    this.#axes = this.#roundSides(preset).map((length, axis) => ({ length, start: Math.floor((length - imageSides[axis]) / 2) }));
  }

  async #showImage(data) {
    const fields = [...LENGTH_FIELDS, ...START_FIELDS];
    if (!data) {
      for (const name of fields) this.form.set(name, undefined);
      return this.update();
    }
    this.preview.src = data;
    await this.preview.decode().catch(() => {});
    // A request that is run again has its numbers already.
    if (fields.every((name) => this.form.value(name) === undefined)) return this.#surround(enlarge);
    this.#imageSides.forEach((side, axis) => this.form.value(LENGTH_FIELDS[axis]) ?? this.form.set(LENGTH_FIELDS[axis], side));
    this.notify();
  }
}

// Returns the sides of the smallest frame of the ratio that holds the image.
function widen([width, height], ratio) {
  return width < height * ratio ? [height * ratio, height] : [width, width / ratio];
}

function enlarge(sides) {
  const factor = Math.min(INITIAL_FACTOR, Math.sqrt(MAX_AREA / (sides[0] * sides[1])));
  return sides.map((side) => side * factor);
}

const isAllowed = ([width, height]) => width * height <= MAX_AREA && Math.max(width, height) <= MAX_SIDE;
