// A window in which a mask is painted over an image: white where it is to change.
import { el } from "./dom.js";

// Resolves to the mask as a data URL of the image's size, or to `before` if it was given up.
export async function brush(source, before) {
  const image = await loaded(source);
  const [width, height] = [image.naturalWidth, image.naturalHeight];
  const canvas = el("canvas", { width, height, tabIndex: 0, role: "img", "aria-label": "The mask: arrow keys move, space paints" });
  const ink = canvas.getContext("2d");
  if (before) ink.drawImage(await loaded(before), 0, 0, width, height), keepWhite(ink, width, height);
  const size = el("input", { type: "range", min: 1, max: 40, value: 10, "aria-label": "Size of the brush" });
  const eraser = el("input", { type: "checkbox", id: "brush-eraser" });
  const dialog = el("dialog", { class: "brush", "aria-label": "Paint a mask" },
    el("div", { class: "easel" }, el("img", { src: source, alt: "" }), canvas),
    el("div", { class: "row" }, size, eraser, el("label", { htmlFor: "brush-eraser" }, "Eraser"),
      el("button", { type: "button", onclick: () => ink.clearRect(0, 0, width, height) }, "Start over"),
      el("button", { type: "button", onclick: () => dialog.close("") }, "Cancel"),
      el("button", { type: "button", class: "main", onclick: () => dialog.close("done") }, "Use this mask")),
  );
  document.body.append(dialog);
  paintable(canvas, ink, size, eraser);
  dialog.showModal();
  await new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
  dialog.remove();
  return dialog.returnValue === "done" ? blackAndWhite(canvas) : before;
}

function paintable(canvas, ink, size, eraser) {
  const radius = () => (Number(size.value) / 200) * Math.max(canvas.width, canvas.height);
  let last = null;
  const stroke = (x, y) => {
    ink.globalCompositeOperation = eraser.checked ? "destination-out" : "source-over";
    ink.strokeStyle = ink.fillStyle = "#fff";
    ink.lineWidth = 2 * radius();
    ink.lineCap = "round";
    ink.beginPath();
    ink.arc(x, y, radius(), 0, 2 * Math.PI); // a dot of its own, as a line of no length may leave none
    ink.fill();
    ink.beginPath();
    ink.moveTo(...(last ?? [x, y]));
    ink.lineTo(x, y);
    ink.stroke();
    last = [x, y];
  };
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return [((event.clientX - box.left) / box.width) * canvas.width, ((event.clientY - box.top) / box.height) * canvas.height];
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    stroke(...at(event));
  });
  canvas.addEventListener("pointermove", (event) => last && stroke(...at(event)));
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => (last = null));
  // Without a pointer: a position that the arrow keys move, and the space bar paints at.
  let [x, y] = [canvas.width / 2, canvas.height / 2];
  canvas.addEventListener("keydown", (event) => {
    const step = radius();
    const moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] };
    if (event.key === " ") stroke(x, y), (last = null);
    else if (moves[event.key]) [x, y] = [x + moves[event.key][0], y + moves[event.key][1]];
    else return;
    event.preventDefault();
  });
}

function keepWhite(ink, width, height) {
  const pixels = ink.getImageData(0, 0, width, height);
  for (let at = 0; at < pixels.data.length; at += 4) pixels.data[at + 3] = pixels.data[at] >= 128 ? 255 : 0;
  ink.putImageData(pixels, 0, 0);
}

function blackAndWhite(painted) {
  const mask = el("canvas", { width: painted.width, height: painted.height });
  const ink = mask.getContext("2d");
  ink.fillStyle = "#000";
  ink.fillRect(0, 0, mask.width, mask.height);
  ink.drawImage(painted, 0, 0);
  return mask.toDataURL("image/png");
}

const loaded = (source) =>
  new Promise((resolve, reject) => {
    const image = new Image();
    image.onload = () => resolve(image);
    image.onerror = () => reject(new Error("The image can't be shown"));
    image.src = source;
  });
