// What is said, and where a prompt may place things: boxes beside the words.
import { el } from "./dom.js";
import { join, split } from "./layout.js";
import { regions } from "./regions.js";

export function prompt(field) {
  const area = el("textarea", { maxLength: field.longest, placeholder: field.required ? field.example ?? "" : "" });
  area.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.repeat && (event.ctrlKey || event.metaKey)) area.form.requestSubmit();
  });
  return { element: area, value: () => area.value || (field.required ? "" : undefined), set: (value) => (area.value = value ?? "") };
}

export function structured(field, others) {
  const words = prompt(field);
  const boxes = regions();
  const sent = () => others("images")?.value() ?? [];
  let known = [];
  const take = (text) => {
    const { words: said, rows } = split(text);
    words.set(said);
    return rows;
  };
  // An array that was pasted becomes boxes.
  words.element.addEventListener("change", () => {
    const rows = take(words.element.value);
    if (rows.length) boxes.set([...boxes.rows(), ...rows]);
  });
  return {
    element: el("div", {}, words.element, boxes.element),
    input: words.element,
    value: () => join(words.value(), boxes.rows(), sent().length > 0),
    set: (value) => boxes.set(take(value ?? "")),
    heed,
  };

  // Pictures are large: they are looked at again only where something has changed that the frame depends on.
  async function heed() {
    const now = [...SHAPING.map((name) => others(name)?.value()), sent()[0], sent().length];
    if (now.every((each, index) => each === known[index])) return;
    known = now;
    const found = await shape(others, sent()[0]);
    if (known === now) boxes.frame({ ...found, sent: sent() });
  }
}

const USUAL = 16 / 9;
const SHAPING = ["width", "height", "aspect_ratio"];

// The ratio of width to height that the picture is going to have, as far as it is known before it is made.
async function shape(others, picture) {
  const [width, height, named] = SHAPING.map((name) => others(name)?.value());
  const [across, down] = (named ?? "").split(":").map(Number);
  if (width && height) return { ratio: width / height, told: "" };
  if (across && down) return { ratio: across / down, told: "" };
  if (picture) return { ratio: await ratioOf(picture), told: "" };
  return { ratio: USUAL, told: "The prompt may ask for another ratio; choose one to be sure." };
}

async function ratioOf(url) {
  const image = new Image();
  image.src = url;
  await image.decode().catch(() => {});
  return image.naturalWidth / image.naturalHeight || USUAL;
}
