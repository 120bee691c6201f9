// Fields for files: dropped, pasted or picked images and videos.
import { notifyChange } from "./canvas_editor.js";
import { button, el, fromTemplate, setMessage, uniqueId } from "./dom.js";
import { MaskEditor } from "./mask_editor.js";

export const IMAGE_TYPES = "image/jpeg,image/png,image/webp";

// Returns a message if the type of a file is not accepted.
export function typeProblem(file, types) {
  if (types.split(",").includes(file.type)) return "";
  return `${file.name} can't be used. Send one of: ${types.replaceAll(/\w+\//g, "").replaceAll(",", ", ")}.`;
}

export const readDataUrl = (blob) =>
  new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(blob);
  });

// Calls `handle` with files that are picked in `input` or dropped on `target`.
export function onFiles(target, input, handle) {
  input.onchange = () => {
    handle([...input.files]);
    input.value = ""; // so that the same file can be picked again
  };
  target.ondragover = (event) => event.preventDefault();
  target.ondrop = (event) => {
    event.preventDefault();
    handle([...event.dataTransfer.files], event);
  };
}

// A place for one file; its value is a data URL.
class FileSlot {
  #data;

  // `createPreview` shows a data URL; `onChange` gets a new one, or undefined.
  constructor({ types, invitation, createPreview, onChange = () => {} }) {
    Object.assign(this, fromTemplate("file-slot"), { types, createPreview, onChange });
    this.input.id = this.label.htmlFor = uniqueId("file");
    this.input.accept = types;
    this.label.textContent = invitation;
    this.clear.onclick = () => this.set(undefined);
    onFiles(this.element, this.input, ([file]) => this.#read(file));
    this.element.onpaste = ({ clipboardData }) => this.#read(clipboardData.files[0]);
  }

  value() {
    return this.#data;
  }

  set(data) {
    this.#data = data || undefined;
    this.preview.replaceChildren(...(data ? [this.createPreview(data)] : []));
    this.element.classList.toggle("full", Boolean(data));
    this.clear.hidden = !data;
    this.onChange(this.#data);
    notifyChange(this.element);
  }

  async #read(file) {
    if (!file) return;
    setMessage(this.problem, typeProblem(file, this.types));
    if (this.problem.hidden) this.set(await readDataUrl(file));
  }
}

export class ImageSlot extends FileSlot {
  constructor(onChange) {
    const createPreview = (src) => el("img", { src, alt: "" });
    super({ types: IMAGE_TYPES, invitation: "Drop, paste or pick an image", createPreview, onChange });
  }
}

export class VideoSlot extends FileSlot {
  constructor() {
    const createPreview = (src) => el("video", { src, controls: true, muted: true });
    super({ types: "video/mp4", invitation: "Drop or pick an mp4", createPreview });
  }
}

// Several images in order. An empty slot follows the last one.
export class ImageList {
  #slots = [];

  constructor({ maxItems = 1 }) {
    this.maxItems = maxItems;
    this.element = el("div", { class: "slots" });
    this.input = this.#add().input;
  }

  value() {
    const images = this.#slots.map((slot) => slot.value()).filter(Boolean);
    return images.length ? images : undefined;
  }

  set(images) {
    this.#slots.splice(1).forEach((slot) => slot.element.remove());
    this.#slots[0].set(undefined);
    for (const image of [images ?? []].flat()) (this.#slots.find((slot) => !slot.value()) ?? this.#add()).set(image);
  }

  #add() {
    const slot = new ImageSlot(() => {
      if (this.#slots.every((each) => each.value()) && this.#slots.length < this.maxItems) this.#add();
    });
    this.#slots.push(slot);
    this.element.append(slot.element);
    return slot;
  }
}

// A mask: painted on the image of the field `image`, or an image of its own.
export function maskField(field, form) {
  const slot = new ImageSlot();
  const paint = button("Paint it", async () => {
    const image = form.value("image");
    if (!image) return form.widgets.get("image")?.input.focus();
    paint.disabled = true; // a second editor would start without this one's mask
    try {
      slot.set(await MaskEditor.edit(image, slot.value()));
    } finally {
      paint.disabled = false;
    }
  });
  const element = el("div", {}, slot.element, paint);
  return { element, input: slot.input, value: () => slot.value(), set: (data) => slot.set(data) };
}
