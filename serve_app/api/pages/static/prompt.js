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
  const referenceImages = () => others("images")?.value() ?? [];
  let lastInputs = [];
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
    value: () => join(words.value(), boxes.rows(), referenceImages().length > 0),
    set: (value) => boxes.set(take(value ?? "")),
    heed,
  };

  // Images are large: they are looked at again only where something has changed that the frame depends on.
  async function heed() {
    const now = [...SHAPING.map((name) => others(name)?.value()), referenceImages()[0], referenceImages().length];
    if (now.every((each, index) => each === lastInputs[index])) return;
    lastInputs = now;
    const frame = await shape(others, referenceImages()[0]);
    if (lastInputs === now) boxes.frame({ ...frame, sent: referenceImages() });
  }
}

const USUAL = 16 / 9;
const SHAPING = ["width", "height", "aspect_ratio"];

// The ratio of width to height that the image is going to have, as far as it is known before it is made.
async function shape(others, image) {
  const [width, height, ratioName] = SHAPING.map((name) => others(name)?.value());
  const [across, down] = (ratioName ?? "").split(":").map(Number);
  if (width && height) return { ratio: width / height, told: "" };
  if (across && down) return { ratio: across / down, told: "" };
  if (image) return { ratio: await ratioOf(image), told: "" };
  return { ratio: USUAL, told: "The prompt may ask for another ratio; choose one to be sure." };
}

async function ratioOf(url) {
  const image = new Image();
  image.src = url;
  await image.decode().catch(() => {});
  return image.naturalWidth / image.naturalHeight || USUAL;
}
