// Boxes that say where each thing goes: drawn in a frame of the picture's ratio, each with words of its own.
import { FULL, between } from "./boxes.js";
import { el, unique } from "./dom.js";
import { changed, drag } from "./moving.js";
import { MIDDLE, region } from "./region.js";

const TALLEST_REM = 22;

export function regions() {
  let all = [];
  let pictures = 0;
  const help = el("p", { id: unique("help"), class: "faint" }, "Draw a box, or add one. Arrow keys move it, with shift they resize it, Delete removes it.");
  const frame = el("div", { class: "frame", role: "group", "aria-label": "Where things go" });
  const list = el("ol", { class: "placed" });
  const note = el("small", {});
  const element = el("details", { class: "regions" }, el("summary", {}, "Layout"), help, frame, note, list,
    el("button", { type: "button", onclick: () => add(MIDDLE).elements.at(-1).focus() }, "Add a box"));

  const scale = () => [FULL / frame.clientWidth, FULL / frame.clientHeight];

  function insert(row) {
    const made = region(row, { scale, help: help.id, remove: () => remove(made) });
    all.push(made);
    frame.append(...made.elements);
    list.append(made.item);
    made.offer(pictures);
    return made;
  }

  function add(target) {
    let number = 1;
    while (all.some((each) => each.row.id === `box_${number}`)) number += 1;
    const made = insert({ id: `box_${number}`, desc: "", from: null, source: null, target });
    changed(frame);
    return made;
  }

  function remove(made) {
    const index = all.indexOf(made);
    all.splice(index, 1);
    [...made.elements, made.item].forEach((each) => each.remove());
    (all[index] ?? all.at(-1))?.elements.at(-1).focus();
    changed(frame);
  }

  let drawn = null;
  drag(frame, (event) => {
    const [around, [across, down]] = [frame.getBoundingClientRect(), scale()];
    const start = [(event.clientX - around.left) * across, (event.clientY - around.top) * down];
    return (x, y) => {
      const box = between(start, [start[0] + x * across, start[1] + y * down]);
      if (!box) return;
      if (drawn) drawn.put(box);
      else drawn = add(box);
    };
  }, () => {
    drawn?.focus();
    drawn = null;
  });

  return {
    element,
    rows: () => all.map((each) => each.row),
    set(rows) {
      [...all].forEach((made) => [...made.elements, made.item].forEach((each) => each.remove()));
      all = [];
      rows.forEach((row) => insert({ ...row }));
      if (rows.length) element.open = true;
    },
    // The frame gets the ratio that the picture will have; pictures that are sent lie in it.
    frame({ ratio, sent, told }) {
      frame.style.aspectRatio = String(ratio);
      frame.style.maxWidth = `${TALLEST_REM * ratio}rem`;
      frame.style.backgroundImage = sent.length ? `url("${sent[0]}")` : "";
      note.textContent = told;
      if (pictures === sent.length) return;
      pictures = sent.length;
      all.forEach((each) => each.offer(pictures));
    },
  };
}
