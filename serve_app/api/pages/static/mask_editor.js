// A dialog in which people paint a mask over an image: white where the image changes.
import { CanvasEditor, clamp } from "./canvas_editor.js";
import { el, fromTemplate, runDialog } from "./dom.js";

const COLOUR = "#e11d48"; // visible on dark and light images; the mask itself is black and white

export class MaskEditor extends CanvasEditor {
  #strokes = []; // of dots: {x, y, radius, erase}
  #position;

  // Returns the mask as a data URL in the size of the image, or `mask` when the person cancels.
  static async edit(imageUrl, mask) {
    const [image, start] = await Promise.all([loadImage(imageUrl), mask && loadImage(mask)]);
    const editor = new MaskEditor(image, start);
    return (await runDialog(editor.dialog)) === "done" ? editor.#maskUrl() : mask;
  }

  constructor(image, mask) {
    const [width, height] = [image.naturalWidth, image.naturalHeight];
    const { element, ...parts } = fromTemplate("mask-editor");
    super(parts.canvas, { x: 0, y: 0, width, height });
    Object.assign(this, parts);
    this.dialog = element;
    Object.assign(this.canvas, { width, height });
    this.image.src = image.src;
    this.context = this.canvas.getContext("2d");
    this.#position = [width / 2, height / 2];
    if (mask) this.#drawMask(mask);
    this.startPixels = this.context.getImageData(0, 0, width, height);
    this.#listen();
  }

  #listen() {
    const { canvas } = this;
    this.undo.onclick = () => {
      this.#strokes.pop();
      this.context.putImageData(this.startPixels, 0, 0);
      for (const dots of this.#strokes) dots.forEach((dot, index) => this.#draw(dot, dots[index - 1]));
    };
    this.reset.onclick = () => {
      const dot = { x: 0, y: 0, radius: 2 * (this.view.width + this.view.height), erase: true };
      this.#strokes.push([dot]);
      this.#draw(dot);
    };
    this.cancel.onclick = () => this.dialog.close("");
    this.done.onclick = () => this.dialog.close("done");
    this.size.oninput = canvas.onfocus = () => this.#moveTo(...this.#position);
    canvas.onpointermove = (event) => this.#moveTo(...this.pointAt(event));
    this.onDrag(canvas, (event) => {
      canvas.focus();
      const start = this.pointAt(event);
      this.#moveTo(...start);
      this.#startStroke();
      return (x, y) => {
        this.#moveTo(start[0] + x, start[1] + y);
        this.#addDot();
      };
    });
    const step = (x, y) => this.#moveTo(this.#position[0] + x * this.#radius, this.#position[1] + y * this.#radius);
    this.onKeys(canvas, step, { " ": () => this.#startStroke() });
  }

  get #radius() {
    return (Number(this.size.value) / 200) * Math.max(this.view.width, this.view.height);
  }

  #moveTo(x, y) {
    const { width, height } = this.view;
    this.#position = [clamp(x, 0, width), clamp(y, 0, height)];
    this.place(this.ring, ...this.#position, 2 * this.#radius, 2 * this.#radius);
    this.ring.hidden = false;
  }

  #startStroke() {
    this.#strokes.push([]);
    this.#addDot();
  }

  #addDot() {
    const [x, y] = this.#position;
    const dots = this.#strokes.at(-1);
    dots.push({ x, y, radius: this.#radius, erase: this.eraser.checked });
    this.#draw(dots.at(-1), dots.at(-2));
  }

  #draw({ x, y, radius, erase }, previous) {
    const { context } = this;
    context.globalCompositeOperation = erase ? "destination-out" : "source-over";
    context.strokeStyle = context.fillStyle = COLOUR;
    context.lineWidth = 2 * radius;
    context.lineCap = "round";
    context.beginPath();
    context.arc(x, y, radius, 0, 2 * Math.PI); // a line without length may leave nothing
    context.fill();
    context.beginPath();
    context.moveTo(previous?.x ?? x, previous?.y ?? y);
    context.lineTo(x, y);
    context.stroke();
  }

  // Draws an earlier mask: white in colour, black as transparent.
  #drawMask(mask) {
    const { width, height } = this.view;
    this.context.drawImage(mask, 0, 0, width, height);
    const pixels = this.context.getImageData(0, 0, width, height);
    for (let at = 0; at < pixels.data.length; at += 4) pixels.data[at + 3] = pixels.data[at] >= 128 ? 255 : 0;
    this.context.putImageData(pixels, 0, 0);
    fill(this.context, "source-in", COLOUR);
  }

  #maskUrl() {
    const canvas = el("canvas", { width: this.view.width, height: this.view.height });
    const context = canvas.getContext("2d");
    context.drawImage(this.canvas, 0, 0);
    fill(context, "source-in", "#fff");
    fill(context, "destination-over", "#000");
    return canvas.toDataURL("image/png");
  }
}

function fill(context, operation, colour) {
  context.globalCompositeOperation = operation;
  context.fillStyle = colour;
  context.fillRect(0, 0, context.canvas.width, context.canvas.height);
  context.globalCompositeOperation = "source-over";
}

async function loadImage(url) {
  const image = el("img", { src: url });
  await image.decode();
  return image;
}
