// Images that are sent: dropped, pasted, picked, or a result that is used again.
import { el, unique } from "./dom.js";
import { brush } from "./brush.js";
import { changed } from "./moving.js";

export const IMAGE_TYPES = "image/jpeg,image/png,image/webp";

// One image. `change` listeners hear of a new one.
export function image(field) {
  return slot(IMAGE_TYPES, (url) => el("img", { src: url, alt: "" }), "Drop, paste or pick an image");
}

export function video() {
  return slot("video/mp4", (url) => el("video", { src: url, controls: true, muted: true }), "Drop or pick an mp4");
}

// What is wrong with the kind of a file; nothing where it fits.
export const unfit = (blob, types) =>
  types.split(",").includes(blob.type) ? "" : `${blob.name} can't be used. Send one of: ${types.replaceAll(/\w+\//g, "").replaceAll(",", ", ")}.`;

function slot(types, show, invitation) {
  const file = el("input", { type: "file", accept: types, id: unique("file") });
  const preview = el("div", { class: "shown" });
  const clear = el("button", { type: "button", hidden: true, "aria-label": "Take the image away" }, "✕");
  const wrong = el("small", { class: "bad", role: "alert", hidden: true });
  const element = el("div", { class: "slot" }, el("label", { htmlFor: file.id, class: "faint" }, invitation), file, preview, wrong, clear);
  const control = { element, input: file, data: undefined, listeners: [], value: () => control.data };
  control.set = (data) => {
    control.data = data || undefined;
    preview.replaceChildren(...(data ? [show(data)] : []));
    element.classList.toggle("full", Boolean(data));
    clear.hidden = !data;
    control.listeners.forEach((listener) => listener(control.data));
    changed(element);
  };
  control.take = async (blob) => {
    if (!blob) return;
    wrong.textContent = unfit(blob, types);
    wrong.hidden = !wrong.textContent;
    if (wrong.hidden) control.set(await asDataUrl(blob));
  };
  file.addEventListener("change", () => control.take(file.files[0]));
  clear.addEventListener("click", () => {
    file.value = "";
    control.set(undefined);
  });
  element.addEventListener("dragover", (event) => event.preventDefault());
  element.addEventListener("drop", (event) => {
    event.preventDefault();
    control.take(event.dataTransfer.files[0]);
  });
  element.addEventListener("paste", (event) => control.take(event.clipboardData.files[0]));
  return control;
}

// Several, in order: an empty slot follows the last one.
export function images(field) {
  const slots = [];
  const element = el("div", { class: "slots" });
  const add = () => {
    const control = image(field);
    control.listeners.push(() => {
      if (slots.every((each) => each.data) && slots.length < (field.items ?? 1)) add();
    });
    slots.push(control);
    element.append(control.element);
    return control;
  };
  const value = () => {
    const chosen = slots.map((each) => each.data).filter(Boolean);
    return chosen.length ? chosen : undefined;
  };
  const set = (values) => {
    slots.splice(0).forEach((each) => each.element.remove());
    for (const each of [values ?? []].flat()) add().set(each);
    if (!slots.length || slots.every((each) => each.data)) add();
  };
  set([]);
  return { element, input: slots[0].input, value, set, take: (blob) => slots.at(-1).take(blob) };
}

// Painted on the image of the field `image`, or an image of its own.
export function mask(field, others) {
  const control = image(field);
  const paint = el("button", { type: "button" }, "Paint it");
  const element = el("div", {}, control.element, paint);
  paint.addEventListener("click", async () => {
    const source = others("image")?.value();
    if (!source) return others("image")?.input?.focus();
    paint.disabled = true; // until what is painted now is there to paint on
    try {
      control.set(await brush(source, control.data));
    } finally {
      paint.disabled = false;
    }
  });
  return { ...control, element, value: control.value };
}

export const asDataUrl = (blob) =>
  new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(blob);
  });
