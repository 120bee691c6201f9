// Pictures that are sent: dropped, pasted, picked, or a result that is used again.
import { el, unique } from "./dom.js";
import { brush } from "./brush.js";
import { changed } from "./moving.js";

export const PICTURE_TYPES = "image/jpeg,image/png,image/webp";

// One picture. `change` listeners hear of a new one.
export function picture(field) {
  return slot(PICTURE_TYPES, (url) => el("img", { src: url, alt: "" }), "Drop, paste or pick a picture");
}

export function video() {
  return slot("video/mp4", (url) => el("video", { src: url, controls: true, muted: true }), "Drop or pick an mp4");
}

function slot(types, show, invitation) {
  const file = el("input", { type: "file", accept: types, id: unique("file") });
  const shown = el("div", { class: "shown" });
  const clear = el("button", { type: "button", hidden: true, "aria-label": "Take the picture away" }, "✕");
  const element = el("div", { class: "slot" }, el("label", { htmlFor: file.id, class: "faint" }, invitation), file, shown, clear);
  const made = { element, input: file, data: undefined, listeners: [], value: () => made.data };
  made.set = (data) => {
    made.data = data || undefined;
    shown.replaceChildren(...(data ? [show(data)] : []));
    element.classList.toggle("full", Boolean(data));
    clear.hidden = !data;
    made.listeners.forEach((listener) => listener(made.data));
    changed(element);
  };
  made.take = async (blob) => {
    if (blob && types.split(",").includes(blob.type)) made.set(await asDataUrl(blob));
  };
  file.addEventListener("change", () => made.take(file.files[0]));
  clear.addEventListener("click", () => {
    file.value = "";
    made.set(undefined);
  });
  element.addEventListener("dragover", (event) => event.preventDefault());
  element.addEventListener("drop", (event) => {
    event.preventDefault();
    made.take(event.dataTransfer.files[0]);
  });
  element.addEventListener("paste", (event) => made.take(event.clipboardData.files[0]));
  return made;
}

// Several, in order: an empty slot follows the last one.
export function pictures(field) {
  const slots = [];
  const element = el("div", { class: "slots" });
  const add = () => {
    const made = picture(field);
    made.listeners.push(() => {
      if (slots.every((each) => each.data) && slots.length < (field.items ?? 1)) add();
    });
    slots.push(made);
    element.append(made.element);
    return made;
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

// Painted on the picture of the field `image`, or a picture of its own.
export function mask(field, others) {
  const made = picture(field);
  const paint = el("button", { type: "button" }, "Paint it");
  const element = el("div", {}, made.element, paint);
  paint.addEventListener("click", async () => {
    const source = others("image")?.value();
    if (!source) return others("image")?.input?.focus();
    paint.disabled = true; // until what is painted now is there to paint on
    try {
      made.set(await brush(source, made.data));
    } finally {
      paint.disabled = false;
    }
  });
  return { ...made, element, value: made.value };
}

export const asDataUrl = (blob) =>
  new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(blob);
  });
