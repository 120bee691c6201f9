// One box of a structured prompt: in the frame, and as a row of the list below it.
import { FULL, moved, placed, resized, said } from "./boxes.js";
import { el, unique } from "./dom.js";
import { FIRST_IMAGE } from "./layout.js";
import { changed, drag, keys } from "./moving.js";

const STEP = 10; // of an arrow key, in thousandths
const CORNERS = ["top left", "top right", "bottom left", "bottom right"];

// `row` as layout.js has it. `scale()` is how many thousandths a pixel has, across and down.
export function region(row, { scale, help, remove }) {
  const words = el("input", { value: row.desc, placeholder: "What goes here, such as a red triangle", autocomplete: "off" });
  const what = el("select", {});
  const name = el("code", { title: "Name of this box in the prompt" }, `<${row.id}>`);
  const item = el("li", {}, name, words, what, el("button", { type: "button", "aria-label": `Remove ${row.id}`, onclick: remove }, "✕"));
  const handles = CORNERS.map((edges) => el("span", { class: `handle ${edges}`, "aria-hidden": "true" }));
  const tag = el("span", { class: "tag" });
  const box = el("div", { class: "box", role: "application", tabIndex: 0, "aria-roledescription": "box", "aria-describedby": help }, tag, handles);
  const before = el("div", { class: "box before", hidden: true });
  const handle = { row, item, elements: [before, box], focus: () => words.focus() };
  what.id = unique("what");

  const current = () => row.target ?? row.source;
  handle.put = (next) => {
    row[row.target ? "target" : "source"] = next;
    show();
    changed(box);
  };
  // The images that are sent: things may be taken from them.
  handle.offer = (count) => {
    const images = Array.from({ length: count }, (_, index) => [`ref_image_${index}`, `from image ${index + 1}`]);
    const offered = [["new", "new"], ["moved", "moved from here"], ["removed", "taken away"], ...images];
    if (row.from && !images.some(([value]) => value === row.from)) offered.push([row.from, row.from]);
    what.replaceChildren(...offered.map(([value, label]) => el("option", { value }, label)));
    what.hidden = !count && !row.from;
    show();
  };

  function show() {
    placed(box, current());
    before.hidden = !(row.source && row.target);
    if (row.source) placed(before, row.source);
    box.classList.toggle("removed", !row.target);
    tag.textContent = row.desc || row.id;
    box.setAttribute("aria-label", `${row.id}: ${row.desc || "no words yet"}, ${said(current())}`);
    words.setAttribute("aria-label", `What is in ${row.id}`);
    what.setAttribute("aria-label", `What happens with ${row.id}`);
    what.value = !row.from ? "new" : !row.target ? "removed" : row.source && row.from === FIRST_IMAGE ? "moved" : row.from;
  }

  words.addEventListener("input", () => {
    row.desc = words.value;
    show();
  });
  what.addEventListener("change", () => {
    const target = current();
    const old = what.value === "moved" || what.value === "removed";
    row.from = old ? FIRST_IMAGE : what.value === "new" ? null : what.value;
    row.source = old ? target : null;
    row.target = what.value === "removed" ? null : target;
    show();
    changed(box);
  });

  const pulled = (element, change) => drag(element, () => {
    const [start, [across, down]] = [current(), scale()];
    box.focus();
    return (x, y) => handle.put(change(start, x * across, y * down));
  });
  pulled(box, moved);
  handles.forEach((handle, index) => pulled(handle, (start, x, y) => resized(start, CORNERS[index], x, y)));
  keys(box, (x, y, event) => handle.put(event.shiftKey ? resized(current(), "bottom right", x * STEP, y * STEP) : moved(current(), x * STEP, y * STEP)), remove);
  return handle;
}

export const MIDDLE = [0.3, 0.3, 0.7, 0.7].map((part) => part * FULL);
