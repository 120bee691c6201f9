// Boxes that say where each thing goes: drawn in a frame of the image's ratio, each with words of its own.
import { FULL, between } from "./boxes.js";
import { el, unique } from "./dom.js";
import { changed, drag } from "./moving.js";
import { MIDDLE, region } from "./region.js";

const TALLEST_REM = 22;

export function regions() {
  let all = [];
  let images = 0;
  const help = el("p", { id: unique("help"), class: "faint" }, "Draw a box and say what goes there; the prompt is for the rest. Arrow keys move a box, with shift they resize it, Delete removes it.");
  const frame = el("div", { class: "frame", role: "group", "aria-label": "Where things go" });
  const list = el("ol", { class: "placed" });
  const note = el("small", {});
  const element = el("details", { class: "regions" }, el("summary", {}, "Layout"), help, frame, note, list,
    el("button", { type: "button", onclick: () => add(MIDDLE).elements.at(-1).focus() }, "Add a box"));

  const scale = () => [FULL / frame.clientWidth, FULL / frame.clientHeight];

  function insert(row) {
    const handle = region(row, { scale, help: help.id, remove: () => remove(handle) });
    all.push(handle);
    frame.append(...handle.elements);
    list.append(handle.item);
    handle.offer(images);
    return handle;
  }

  function add(target) {
    let number = 1;
    while (all.some((each) => each.row.id === `box_${number}`)) number += 1;
    const handle = insert({ id: `box_${number}`, desc: "", from: null, source: null, target });
    changed(frame);
    return handle;
  }

  function remove(handle) {
    const index = all.indexOf(handle);
    all.splice(index, 1);
    [...handle.elements, handle.item].forEach((each) => each.remove());
    (all[index] ?? all.at(-1))?.elements.at(-1).focus();
    changed(frame);
  }

  let newBox = null;
  drag(frame, (event) => {
    const [around, [across, down]] = [frame.getBoundingClientRect(), scale()];
    const start = [(event.clientX - around.left) * across, (event.clientY - around.top) * down];
    return (x, y) => {
      const box = between(start, [start[0] + x * across, start[1] + y * down]);
      if (!box) return;
      if (newBox) newBox.put(box);
      else newBox = add(box);
    };
  }, () => {
    newBox?.focus();
    newBox = null;
  });

  return {
    element,
    rows: () => all.map((each) => each.row),
    set(rows) {
      [...all].forEach((handle) => [...handle.elements, handle.item].forEach((each) => each.remove()));
      all = [];
      rows.forEach((row) => insert({ ...row }));
      if (rows.length) element.open = true;
    },
    // The frame gets the ratio that the image will have; images that are sent lie in it.
    frame({ ratio, sent, told }) {
      frame.style.aspectRatio = String(ratio);
      frame.style.maxWidth = `${TALLEST_REM * ratio}rem`;
      frame.style.backgroundImage = sent.length ? `url("${sent[0]}")` : "";
      note.textContent = told;
      if (images === sent.length) return;
      images = sent.length;
      all.forEach((each) => each.offer(images));
    },
  };
}
