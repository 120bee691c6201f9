// An image in a frame whose edges are pulled outward, to be painted around. The numbers beside it say the same.
import { el } from "./dom.js";
import { changed, clamp, drag, keys } from "./moving.js";
import { image } from "./images.js";

const NUMBERS = ["width", "height", "reference_offset_x", "reference_offset_y"];
const STEP = 16; // pixels of an arrow key
const BIG_STEP = 128; // with shift
const LEAST = 64;
const MOST = 6256; // pixels of a side
const STAGE = 4 / 3;
const MOST_AREA = 2 ** 22;
const MORE = 1.25; // of the image, to begin with
// From the sides of an image to those of a frame.
const PRESETS = { "All around": enlarged, Square: (sides) => widened(sides, 1), "16:9": (sides) => widened(sides, 16 / 9), "9:16": (sides) => widened(sides, 9 / 16) };
const ROOM = 1.4; // how much more than the frame is seen

// Which length an edge changes, where it lies, and which way is outward.
const EDGES = [
  { name: "Left edge", axis: 0, sign: -1 },
  { name: "Right edge", axis: 0, sign: 1 },
  { name: "Top edge", axis: 1, sign: -1 },
  { name: "Bottom edge", axis: 1, sign: 1 },
];

export function outpainting(field, others) {
  const slot = image(field);
  const preview = el("img", { alt: "" });
  const edges = EDGES.map((edge) => el("div", { class: `edge axis-${edge.axis} ${edge.sign < 0 ? "before" : "after"}`, role: "slider", tabIndex: 0, "aria-label": edge.name, "aria-orientation": edge.axis ? "vertical" : "horizontal", "aria-valuemin": 0, "aria-valuemax": MOST }));
  const frame = el("div", { class: "canvas" }, edges);
  const stage = el("div", { class: "outpainting", role: "group", "aria-label": "The frame of the result", hidden: true }, frame, preview);
  const presets = el("div", { class: "row", hidden: true },
    Object.entries(PRESETS).map(([name, frame]) => el("button", { type: "button", value: name, onclick: () => surround(frame) }, name)));
  const help = el("small", { hidden: true }, "Pull the edges of the frame outward, or use the arrow keys on them.");
  let view = null; // what of the plane is seen, in pixels of the result: it stays while an edge is pulled
  let pulled = false;

  const natural = () => [preview.naturalWidth, preview.naturalHeight];
  // The frame as the numbers have it: the length of each axis, and where the image begins on it.
  const frameNow = () => [0, 1].map((axis) => {
    const length = others(NUMBERS[axis]).value() ?? natural()[axis];
    return { length, start: others(NUMBERS[axis + 2]).value() ?? Math.floor((length - natural()[axis]) / 2) };
  });
  const gap = ({ axis, sign }, frame = frameNow()) => (sign < 0 ? frame[axis].start : frame[axis].length - frame[axis].start - natural()[axis]);

  // Of a frame that holds the image, in whole steps.
  const sidesOf = (frame) => frame(natural()).map((side, axis) => Math.max(LEAST, natural()[axis], STEP * Math.floor(side / STEP)));

  // The image is in the middle of it.
  function surround(frame) {
    const lengths = sidesOf(frame);
    const starts = lengths.map((length, axis) => Math.floor((length - natural()[axis]) / 2));
    NUMBERS.forEach((name, index) => others(name).set([...lengths, ...starts][index]));
    changed(stage);
  }

  function pull(edge, pixels, from) {
    const { length, start } = from[edge.axis];
    // Inward it goes as far as the image, or into it where what sticks out is cut off.
    const inward = others("auto_crop").value() ? length - LEAST : Math.max(gap(edge, from), 0);
    const more = clamp(Math.round(pixels), -inward, MOST - length);
    const next = from.with(edge.axis, { length: length + more, start: edge.sign < 0 ? start + more : start });
    NUMBERS.forEach((name, index) => others(name).set(index < 2 ? next[index].length : next[index - 2].start));
    changed(stage);
  }

  edges.forEach((element, index) => {
    const edge = EDGES[index];
    drag(element, () => {
      const from = frameNow();
      pulled = true;
      element.focus();
      const scale = view.width / stage.clientWidth;
      return (x, y) => pull(edge, [x, y][edge.axis] * edge.sign * scale, from);
    }, () => {
      pulled = false;
      show();
    });
    keys(element, (x, y, event) => pull(edge, [x, y][edge.axis] * edge.sign * (event.shiftKey ? BIG_STEP : STEP), frameNow()));
  });

  function show() {
    stage.hidden = help.hidden = presets.hidden = !slot.data;
    if (!slot.data || !preview.naturalWidth) return;
    for (const button of presets.children) button.disabled = !fits(sidesOf(PRESETS[button.value]));
    const now = frameNow();
    const [across, down] = now;
    if (!pulled) view = viewAround(across.length, down.length);
    place(frame, 0, 0, across.length, down.length);
    place(preview, across.start, down.start, ...natural());
    EDGES.forEach((edge, index) => {
      edges[index].setAttribute("aria-valuenow", gap(edge, now));
      edges[index].setAttribute("aria-valuetext", `${gap(edge, now)} pixels beyond the image`);
    });
  }

  function place(element, x, y, width, height) {
    const parts = { left: (x - view.x) / view.width, top: (y - view.y) / view.height, width: width / view.width, height: height / view.height };
    for (const [name, part] of Object.entries(parts)) element.style[name] = `${part * 100}%`;
  }

  slot.listeners.push(async (data) => {
    if (!data) {
      NUMBERS.forEach((name) => others(name)?.set(undefined));
      return show();
    }
    preview.src = data;
    await preview.decode().catch(() => {});
    // Of a request that is run again they are there already.
    if (NUMBERS.every((name) => others(name).value() === undefined)) return surround(enlarged);
    natural().forEach((length, axis) => others(NUMBERS[axis]).value() ?? others(NUMBERS[axis]).set(length));
    changed(stage);
  });

  slot.element.append(stage);
  return { element: el("div", {}, slot.element, help, presets), input: slot.input, value: slot.value, set: slot.set, take: slot.take, heed: show };
}

// The smallest frame of the ratio that holds the image.
function widened([width, height], ratio) {
  return width < height * ratio ? [height * ratio, height] : [width, width / ratio];
}

function enlarged(sides) {
  const most = Math.sqrt(MOST_AREA / (sides[0] * sides[1]));
  return sides.map((side) => side * Math.min(MORE, most));
}

const fits = ([width, height]) => width * height <= MOST_AREA && Math.max(width, height) <= MOST;

function viewAround(width, height) {
  const across = Math.max(width, height * STAGE) * ROOM;
  return { width: across, height: across / STAGE, x: (width - across) / 2, y: (height - across / STAGE) / 2 };
}
