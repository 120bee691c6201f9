// The prompt field with a layout: people draw a box for each thing in a frame of the image's ratio, and describe it.
import { CanvasEditor } from "./canvas_editor.js";
import { el, fromTemplate, uniqueId } from "./dom.js";
import { BOX_SCALE, FIRST_IMAGE, boxBetween, describeBox, formatPrompt, moveBox, parsePrompt, resizeBox } from "./layout.js";

const KEY_STEP = BOX_SCALE / 100;
const NEW_BOX = [0.3, 0.3, 0.7, 0.7].map((share) => share * BOX_SCALE);
const MAX_HEIGHT_REM = 22;
const DEFAULT_RATIO = 16 / 9;

// One item of the layout: its box in the frame, and its row in the list below.
class LayoutBox {
  constructor(editor, item) {
    this.editor = editor;
    this.item = item;
    const { element: row, name, words, action, clear } = fromTemplate("layout-row");
    const { element, tag } = fromTemplate("layout-box");
    Object.assign(this, { row, words, action, element, tag });
    this.sourceElement = el("div", { class: "box before", hidden: true });
    element.setAttribute("aria-describedby", editor.help.id);
    name.textContent = `<${item.id}>`;
    words.value = item.desc;
    words.ariaLabel = `What is in ${item.id}`;
    action.ariaLabel = `What happens with ${item.id}`;
    clear.ariaLabel = `Remove ${item.id}`;
    words.oninput = () => {
      item.desc = words.value;
      this.show();
    };
    action.onchange = () => {
      const isOfImage = action.value === "moved" || action.value === "removed";
      const { box } = this;
      item.from = isOfImage ? FIRST_IMAGE : action.value === "new" ? null : action.value;
      item.source = isOfImage ? box : null;
      item.target = action.value === "removed" ? null : box;
      this.show();
      editor.notify();
    };
    clear.onclick = () => editor.remove(this);
    this.#onDrag(element, moveBox);
    for (const handle of element.querySelectorAll(".handle")) {
      this.#onDrag(handle, (box, x, y) => resizeBox(box, handle.className, x, y));
    }
    editor.onKeys(element, (x, y, { shiftKey }) => {
      const [across, down] = [x * KEY_STEP, y * KEY_STEP];
      this.setBox(shiftKey ? resizeBox(this.box, "bottom right", across, down) : moveBox(this.box, across, down));
    }, { Delete: clear.onclick, Backspace: clear.onclick });
  }

  get box() {
    return this.item.target ?? this.item.source;
  }

  setBox(box) {
    this.item[this.item.target ? "target" : "source"] = box;
    this.show();
    this.editor.notify();
  }

  // Offers the actions on the box. A thing may be taken from one of the images that are sent.
  offerImages(count) {
    const { from } = this.item;
    const images = Array.from({ length: count }, (_, index) => [`ref_image_${index}`, `from image ${index + 1}`]);
    const actions = [["new", "new"], ["moved", "moved from here"], ["removed", "taken away"], ...images];
    if (from && !images.some(([value]) => value === from)) actions.push([from, from]);
    this.action.replaceChildren(...actions.map(([value, label]) => el("option", { value }, label)));
    this.action.hidden = !count && !from;
    this.show();
  }

  show() {
    const { id, desc, from, source, target } = this.item;
    this.editor.placeBox(this.element, this.box);
    this.sourceElement.hidden = !(source && target);
    if (source) this.editor.placeBox(this.sourceElement, source);
    this.element.classList.toggle("removed", !target);
    this.tag.textContent = desc || id;
    this.element.setAttribute("aria-label", `${id}: ${desc || "no words yet"}, ${describeBox(this.box)}`);
    this.action.value = !from ? "new" : !target ? "removed" : source && from === FIRST_IMAGE ? "moved" : from;
  }

  detach() {
    for (const element of [this.element, this.sourceElement, this.row]) element.remove();
  }

  #onDrag(element, change) {
    this.editor.onDrag(element, () => {
      const start = this.box;
      this.element.focus();
      return (x, y) => this.setBox(change(start, x, y));
    });
  }
}

class LayoutEditor extends CanvasEditor {
  #boxes = [];
  #imageCount = 0;
  #drawn = null; // the box that is being drawn

  constructor() {
    const { frame, add, ...parts } = fromTemplate("layout-editor");
    super(frame, { x: 0, y: 0, width: BOX_SCALE, height: BOX_SCALE });
    Object.assign(this, parts);
    this.help.id = uniqueId("help");
    add.onclick = () => this.#add(NEW_BOX).element.focus();
    this.onDrag(frame, (event) => {
      const start = this.pointAt(event);
      return (x, y) => {
        const box = boxBetween(start, [start[0] + x, start[1] + y]);
        if (box && this.#drawn) this.#drawn.setBox(box);
        else if (box) this.#drawn = this.#add(box);
      };
    }, () => {
      this.#drawn?.words.focus();
      this.#drawn = null;
    });
  }

  get items() {
    return this.#boxes.map((box) => box.item);
  }

  set items(items) {
    this.#boxes.splice(0).forEach((box) => box.detach());
    for (const item of items) this.#insert({ ...item });
    if (items.length) this.element.open = true;
  }

  placeBox(element, [top, left, bottom, right]) {
    this.place(element, left, top, right - left, bottom - top);
  }

  remove(box) {
    const index = this.#boxes.indexOf(box);
    this.#boxes.splice(index, 1);
    box.detach();
    (this.#boxes[index] ?? this.#boxes.at(-1))?.element.focus();
    this.notify();
  }

  // Gives the frame the ratio of the result, and the first image as its background.
  showFrame(ratio, note, images) {
    const { style } = this.surface;
    style.aspectRatio = String(ratio);
    style.maxWidth = `${MAX_HEIGHT_REM * ratio}rem`;
    style.backgroundImage = images.length ? `url("${images[0]}")` : "";
    this.note.textContent = note;
    if (this.#imageCount === images.length) return;
    this.#imageCount = images.length;
    for (const box of this.#boxes) box.offerImages(images.length);
  }

  #insert(item) {
    const box = new LayoutBox(this, item);
    this.#boxes.push(box);
    this.surface.append(box.sourceElement, box.element);
    this.list.append(box.row);
    box.offerImages(this.#imageCount);
    return box;
  }

  #add(target) {
    const ids = new Set(this.items.map(({ id }) => id));
    let number = 1;
    while (ids.has(`box_${number}`)) number += 1;
    const box = this.#insert({ id: `box_${number}`, desc: "", from: null, source: null, target });
    this.notify();
    return box;
  }
}

// The widget of a prompt with a layout.
export class StructuredPrompt {
  #layout = new LayoutEditor();
  #frameInputs = [];

  // `words` is the widget of a prompt without a layout.
  constructor(words, form) {
    this.words = words;
    this.form = form;
    this.input = words.element;
    this.element = el("div", {}, words.element, this.#layout.element);
    // A pasted array becomes boxes.
    this.input.addEventListener("change", () => {
      const items = this.#setWords(this.input.value);
      if (items.length) this.#layout.items = [...this.#layout.items, ...items];
    });
  }

  value() {
    return formatPrompt(this.words.value(), this.#layout.items, this.#images.length > 0);
  }

  set(prompt) {
    this.#layout.items = this.#setWords(prompt ?? "");
  }

  // Reading an image takes time, so the frame is only updated when a field that it depends on has changed.
  async update() {
    const [width, height, ratioName] = ["width", "height", "aspect_ratio"].map((name) => this.form.value(name));
    const images = this.#images;
    const inputs = [width, height, ratioName, images[0], images.length];
    if (inputs.every((each, index) => each === this.#frameInputs[index])) return;
    this.#frameInputs = inputs;
    const [across, down] = width && height ? [width, height] : (ratioName ?? "").split(":").map(Number);
    const ratio = across && down ? across / down : images.length ? await ratioOf(images[0]) : null;
    const note = ratio ? "" : "The prompt may change the ratio. Choose one to be sure.";
    if (this.#frameInputs === inputs) this.#layout.showFrame(ratio ?? DEFAULT_RATIO, note, images);
  }

  get #images() {
    return this.form.value("images") ?? [];
  }

  #setWords(prompt) {
    const { words, items } = parsePrompt(prompt);
    this.words.set(words);
    return items;
  }
}

async function ratioOf(url) {
  const image = el("img", { src: url });
  await image.decode().catch(() => {});
  return image.naturalWidth / image.naturalHeight || DEFAULT_RATIO;
}
