// Boxes as structured prompts have them: [top, left, bottom, right] in thousandths of the image.
import { clamp } from "./moving.js";

export const FULL = 1000;
const LEAST = 20; // smaller ones can't be grasped

export function moved([top, left, bottom, right], x, y) {
  const down = clamp(Math.round(y), -top, FULL - bottom);
  const across = clamp(Math.round(x), -left, FULL - right);
  return [top + down, left + across, bottom + down, right + across];
}

// `edges` names those that go along: "top left", for instance.
export function resized([top, left, bottom, right], edges, x, y) {
  const [across, down] = [Math.round(x), Math.round(y)];
  return [
    edges.includes("top") ? clamp(top + down, 0, Math.max(bottom - LEAST, 0)) : top,
    edges.includes("left") ? clamp(left + across, 0, Math.max(right - LEAST, 0)) : left,
    edges.includes("bottom") ? clamp(bottom + down, Math.min(top + LEAST, FULL), FULL) : bottom,
    edges.includes("right") ? clamp(right + across, Math.min(left + LEAST, FULL), FULL) : right,
  ];
}

// From one corner to the one across; null where that is too small to be meant.
export function between([x, y], [otherX, otherY]) {
  const [left, right] = [x, otherX].sort((a, b) => a - b).map(within);
  const [top, bottom] = [y, otherY].sort((a, b) => a - b).map(within);
  return right - left < LEAST || bottom - top < LEAST ? null : [top, left, bottom, right];
}

const within = (value) => clamp(Math.round(value), 0, FULL);

// Puts an element where the box is in the one around it.
export function placed(element, [top, left, bottom, right]) {
  const percent = { top, left, height: bottom - top, width: right - left };
  for (const [name, value] of Object.entries(percent)) element.style[name] = `${value / 10}%`;
}

export const said = ([top, left, bottom, right]) =>
  `from ${left / 10} % to ${right / 10} % across, ${top / 10} % to ${bottom / 10} % down`;
