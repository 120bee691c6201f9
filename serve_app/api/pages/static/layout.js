// Structured prompts: words, followed by a JSON array that says where each thing goes.
// An item is {id, desc, from, source, target}: a thing of the image `from`, or a new one if that is null. `source` and
// `target` are boxes: [top, left, bottom, right] in thousandths of the image.
import { clamp } from "./canvas_editor.js";

export const BOX_SCALE = 1000;
export const FIRST_IMAGE = "ref_image_0";
const MIN_SIDE = 20; // a smaller box is hard to grasp

// An array that is not valid stays in the words, so that the service explains the error.
export function parsePrompt(prompt) {
  if (prompt.trimEnd().endsWith("]")) {
    for (const { index } of prompt.matchAll(/\[(?=\s*\{)/g)) {
      const items = parseItems(prompt.slice(index));
      if (items) return { words: prompt.slice(0, index).trimEnd(), items };
    }
  }
  return { words: prompt, items: [] };
}

export const promptWords = (prompt) => parsePrompt(prompt ?? "").words;

// All items of a prompt have the same form. Only the form of edits can refer to input images.
export function formatPrompt(words, items, hasImages) {
  if (!items.length) return words;
  const edit = ({ id, from, source, target, desc }) => ({ id, from, src_bbox: source, tgt_bbox: target, desc });
  const generation = ({ id, target, desc }) => ({ id, bbox: target, desc });
  const format = hasImages || items.some((item) => item.from) ? edit : generation;
  return `${words ?? ""} ${JSON.stringify(items.map(format))}`.trimStart();
}

function parseItems(text) {
  try {
    const items = JSON.parse(text).map(parseItem);
    return items.every(Boolean) ? items : null;
  } catch {
    return null;
  }
}

function parseItem(item) {
  const { id, desc, bbox, from = null, src_bbox: source = null, tgt_bbox: target = bbox ?? null } = item ?? {};
  const boxes = [source, target].filter((box) => box !== null);
  const isValid = [id, desc, from ?? ""].every((each) => typeof each === "string") && boxes.length && boxes.every(isBox);
  return isValid ? { id, desc, from: from?.replace(/^<(.*)>$/, "$1") ?? null, source, target } : null;
}

const isBox = (box) =>
  Array.isArray(box) && box.length === 4 && box.every(Number.isInteger) && box[0] < box[2] && box[1] < box[3];

export function moveBox([top, left, bottom, right], x, y) {
  const down = clamp(Math.round(y), -top, BOX_SCALE - bottom);
  const across = clamp(Math.round(x), -left, BOX_SCALE - right);
  return [top + down, left + across, bottom + down, right + across];
}

// `edges` contains the names of the edges that move: "top left", for example.
export function resizeBox([top, left, bottom, right], edges, x, y) {
  const [across, down] = [Math.round(x), Math.round(y)];
  return [
    edges.includes("top") ? clamp(top + down, 0, Math.max(bottom - MIN_SIDE, 0)) : top,
    edges.includes("left") ? clamp(left + across, 0, Math.max(right - MIN_SIDE, 0)) : left,
    edges.includes("bottom") ? clamp(bottom + down, Math.min(top + MIN_SIDE, BOX_SCALE), BOX_SCALE) : bottom,
    edges.includes("right") ? clamp(right + across, Math.min(left + MIN_SIDE, BOX_SCALE), BOX_SCALE) : right,
  ];
}

// Returns null if the box would be too small to be meant.
export function boxBetween(start, end) {
  const [[left, right], [top, bottom]] = [0, 1].map((axis) =>
    [start[axis], end[axis]].sort((a, b) => a - b).map((value) => clamp(Math.round(value), 0, BOX_SCALE)));
  return right - left < MIN_SIDE || bottom - top < MIN_SIDE ? null : [top, left, bottom, right];
}

export const describeBox = ([top, left, bottom, right]) =>
  `from ${left / 10} % to ${right / 10} % across, ${top / 10} % to ${bottom / 10} % down`;
