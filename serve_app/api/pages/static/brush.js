// A window in which a mask is painted over an image: white where it is to change.
import { el } from "./dom.js";
import { clamp } from "./moving.js";

// Resolves to the mask as a data URL of the image's size, or to `before` if it was given up.
export async function brush(source, before) {
  const image = await loaded(source);
  const [width, height] = [image.naturalWidth, image.naturalHeight];
  const canvas = el("canvas", { width, height, tabIndex: 0, role: "img", "aria-label": "The mask: arrow keys move, space paints" });
  const ink = canvas.getContext("2d");
  if (before) ink.drawImage(await loaded(before), 0, 0, width, height), keepWhite(ink, width, height);
  const start = ink.getImageData(0, 0, width, height);
  const size = el("input", { type: "range", id: "brush-size", min: 1, max: 40, value: 10 });
  const eraser = el("input", { type: "checkbox", id: "brush-eraser" });
  const ring = el("div", { class: "ring", hidden: true });
  const strokes = paintable(canvas, ink, size, eraser, ring);
  const all = { x: 0, y: 0, radius: 2 * (width + height), erase: true };
  const undo = () => {
    strokes.pop();
    ink.putImageData(start, 0, 0);
    strokes.forEach((stroke) => stroke.forEach((dot, index) => draw(ink, dot, stroke[index - 1])));
  };
  const dialog = el("dialog", { class: "brush", "aria-label": "Paint a mask" },
    el("div", { class: "easel" }, el("img", { src: source, alt: "" }), canvas, ring),
    el("div", { class: "row" }, el("label", { htmlFor: "brush-size" }, "Brush size"), size, eraser, el("label", { htmlFor: "brush-eraser" }, "Eraser"),
      el("button", { type: "button", onclick: undo }, "Undo"),
      el("button", { type: "button", onclick: () => (strokes.push([all]), draw(ink, all)) }, "Start over"),
      el("button", { type: "button", onclick: () => dialog.close("") }, "Cancel"),
      el("button", { type: "button", class: "main", onclick: () => dialog.close("done") }, "Use this mask")),
  );
  document.body.append(dialog);
  dialog.showModal();
  await new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
  dialog.remove();
  return dialog.returnValue === "done" ? blackAndWhite(canvas) : before;
}

const INK = "#e11d48"; // seen on dark images and on light ones; the mask itself is black and white

// A stroke's dots: {x, y, radius, erase}, joined to the one before.
function draw(ink, { x, y, radius, erase }, last) {
  ink.globalCompositeOperation = erase ? "destination-out" : "source-over";
  ink.strokeStyle = ink.fillStyle = INK;
  ink.lineWidth = 2 * radius;
  ink.lineCap = "round";
  ink.beginPath();
  ink.arc(x, y, radius, 0, 2 * Math.PI); // a dot of its own, as a line of no length may leave none
  ink.fill();
  ink.beginPath();
  ink.moveTo(last?.x ?? x, last?.y ?? y);
  ink.lineTo(x, y);
  ink.stroke();
}

// Returns the strokes, which grow; `ring` shows where the brush is, and how large.
function paintable(canvas, ink, size, eraser, ring) {
  const radius = () => (Number(size.value) / 200) * Math.max(canvas.width, canvas.height);
  const strokes = [];
  let painting = false;
  let [x, y] = [canvas.width / 2, canvas.height / 2];
  const add = () => {
    const dots = strokes.at(-1);
    dots.push({ x, y, radius: radius(), erase: eraser.checked });
    draw(ink, dots.at(-1), dots.at(-2));
  };
  const move = (nextX, nextY) => {
    [x, y] = [clamp(nextX, 0, canvas.width), clamp(nextY, 0, canvas.height)];
    const percent = { left: (100 * x) / canvas.width, top: (100 * y) / canvas.height, width: (200 * radius()) / canvas.width };
    for (const [name, value] of Object.entries(percent)) ring.style[name] = `${value}%`;
    ring.hidden = false;
  };
  const moveTo = (event) => {
    const box = canvas.getBoundingClientRect();
    move(((event.clientX - box.left) / box.width) * canvas.width, ((event.clientY - box.top) / box.height) * canvas.height);
  };
  for (const [element, event] of [[size, "input"], [canvas, "focus"]]) element.addEventListener(event, () => move(x, y));
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    moveTo(event);
    painting = true;
    strokes.push([]);
    add();
  });
  canvas.addEventListener("pointermove", (event) => {
    moveTo(event);
    if (painting) add();
  });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => (painting = false));
  // Without a pointer: a position that the arrow keys move, and the space bar paints at.
  canvas.addEventListener("keydown", (event) => {
    const step = radius();
    const moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] };
    if (event.key === " ") strokes.push([]), add();
    else if (moves[event.key]) move(x + moves[event.key][0], y + moves[event.key][1]);
    else return;
    event.preventDefault();
  });
  return strokes;
}

function keepWhite(ink, width, height) {
  const pixels = ink.getImageData(0, 0, width, height);
  for (let at = 0; at < pixels.data.length; at += 4) pixels.data[at + 3] = pixels.data[at] >= 128 ? 255 : 0;
  ink.putImageData(pixels, 0, 0);
  fill(ink, "source-in", INK);
}

function fill(ink, how, colour) {
  ink.globalCompositeOperation = how;
  ink.fillStyle = colour;
  ink.fillRect(0, 0, ink.canvas.width, ink.canvas.height);
  ink.globalCompositeOperation = "source-over";
}

function blackAndWhite(painted) {
  const mask = el("canvas", { width: painted.width, height: painted.height });
  const ink = mask.getContext("2d");
  ink.drawImage(painted, 0, 0);
  fill(ink, "source-in", "#fff");
  fill(ink, "destination-over", "#000");
  return mask.toDataURL("image/png");
}

const loaded = (source) =>
  new Promise((resolve, reject) => {
    const image = new Image();
    image.onload = () => resolve(image);
    image.onerror = () => reject(new Error("The image can't be shown"));
    image.src = source;
  });
