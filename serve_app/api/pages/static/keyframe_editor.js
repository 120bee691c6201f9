// The keyframes of a video: images on a line that is as long as the video.
import { CanvasEditor, clamp } from "./canvas_editor.js";
import { button, el, fromTemplate, setMessage, uniqueId } from "./dom.js";
import { IMAGE_TYPES, onFiles, readDataUrl, typeProblem } from "./images.js";

const MIN_DURATION_S = 5; // of a video without a duration of its own
const STEP_S = 0.1;
const LARGE_STEP_S = 1; // with the Shift key

const round = (seconds) => Math.round(seconds * 10) / 10;

// Keyframes get times of their own once one is moved. Until then the service, and this line, spread them evenly.
export class KeyframeEditor extends CanvasEditor {
  #keyframes = []; // {data, second, thumb, number, row} in the order of time; `second` is null for no time of its own

  constructor({ maxItems = 1 }, form) {
    const { line, ...parts } = fromTemplate("keyframe-editor");
    super(line);
    Object.assign(this, parts, { form, maxItems });
    this.input.id = this.label.htmlFor = uniqueId("file");
    this.input.accept = IMAGE_TYPES;
    this.spread.onclick = () => this.set(this.#keyframes.map(({ data }) => data));
    onFiles(line, this.input, (files, drop) =>
      this.#addFiles(files, drop ? clamp(this.pointAt(drop)[0], 0, this.#duration) : null));
  }

  value() {
    if (!this.#keyframes.length) return undefined;
    return this.#keyframes.map(({ data, second }) => (second === null ? data : [second, data]));
  }

  set(value) {
    this.#keyframes = [value ?? []].flat().map((each) => this.#build(...(Array.isArray(each) ? each : [null, each])));
    this.#sort();
    this.notify();
  }

  update() {
    const duration = this.#duration;
    this.view = { x: 0, y: 0, width: duration, height: 1 };
    this.end.textContent = `${duration} s`;
    this.spread.hidden = !this.#hasTimes;
    this.#keyframes.forEach((keyframe, index) => {
      const second = round(this.#timeOf(keyframe));
      const { thumb, number } = keyframe;
      thumb.style.left = `${(100 * Math.min(second, duration)) / duration}%`;
      thumb.ariaLabel = `Keyframe ${index + 1}`;
      Object.assign(thumb, { ariaValueNow: second, ariaValueMax: duration, ariaValueText: `${second} seconds` });
      number.ariaLabel = `Time of keyframe ${index + 1}, seconds`;
      if (document.activeElement !== number) number.value = second;
    });
  }

  get #hasTimes() {
    return this.#keyframes.some(({ second }) => second !== null);
  }

  get #duration() {
    const last = Math.max(0, ...this.#keyframes.map(({ second }) => second ?? 0));
    return Number(this.form.value("duration")) || Math.max(MIN_DURATION_S, Math.ceil(last));
  }

  #timeOf(keyframe) {
    return keyframe.second ?? (this.#keyframes.indexOf(keyframe) * this.#duration) / Math.max(1, this.#keyframes.length - 1);
  }

  #isFree(second, except) {
    return this.#keyframes.every((each) => each === except || each.second !== second);
  }

  #build(second, data) {
    const image = () => el("img", { src: data, alt: "" });
    const thumb = el("div", { class: "thumb", role: "slider", tabIndex: 0, "aria-valuemin": 0 }, image());
    const number = el("input", { type: "number", min: 0, step: STEP_S });
    const remove = () => this.#remove(keyframe);
    const row = el("li", {}, image(), number, el("span", {}, "s"), button("✕", remove, { "aria-label": "Remove this image" }));
    const keyframe = { data, second, thumb, number, row };
    this.onDrag(thumb, () => {
      const start = this.#timeOf(keyframe);
      thumb.focus();
      return (x) => this.#move(keyframe, start + x);
    }, () => this.#sort());
    this.onKeys(thumb, (x, y, { shiftKey }) => {
      const step = (x - y) * (shiftKey ? LARGE_STEP_S : STEP_S);
      let next = round(this.#timeOf(keyframe) + step);
      while (!this.#isFree(next, keyframe)) next = round(next + Math.sign(step) * STEP_S);
      this.#move(keyframe, next);
      this.#sort();
    }, { Delete: remove, Backspace: remove });
    number.addEventListener("change", () => {
      this.#move(keyframe, Number(number.value), Infinity);
      this.#sort();
    });
    number.addEventListener("blur", () => this.update());
    return keyframe;
  }

  #move(keyframe, second, max = this.#duration) {
    const next = round(clamp(second, 0, max));
    if (!this.#isFree(next, keyframe)) return;
    this.#fixTimes();
    keyframe.second = next;
    this.notify();
  }

  // Gives each keyframe a time of its own: the one that it has on the line.
  #fixTimes() {
    const times = this.#keyframes.map((keyframe) => round(this.#timeOf(keyframe)));
    this.#keyframes.forEach((keyframe, index) => (keyframe.second ??= times[index]));
  }

  // Orders the elements by time, and keeps the focus.
  #sort() {
    const focused = document.activeElement;
    this.#keyframes = this.#keyframes.toSorted((a, b) => this.#timeOf(a) - this.#timeOf(b));
    this.surface.replaceChildren(...this.#keyframes.map(({ thumb }) => thumb));
    this.list.replaceChildren(...this.#keyframes.map(({ row }) => row));
    if (this.element.contains(focused)) focused.focus();
    this.update();
  }

  #remove(keyframe) {
    this.#keyframes = this.#keyframes.filter((each) => each !== keyframe);
    this.#sort();
    (this.#keyframes.at(-1)?.thumb ?? this.input).focus();
    this.notify();
  }

  // Without a second, an image goes to the middle of the widest gap.
  async #addFiles(files, second) {
    setMessage(this.problem, files.map((file) => typeProblem(file, IMAGE_TYPES)).find(Boolean));
    const accepted = files.filter((file) => !typeProblem(file, IMAGE_TYPES));
    for (const file of accepted.slice(0, this.maxItems - this.#keyframes.length)) {
      const data = await readDataUrl(file);
      if (second !== null) this.#fixTimes();
      const time = second === null && !this.#hasTimes ? null : this.#freeTime(second ?? this.#middleOfWidestGap());
      this.#keyframes.push(this.#build(time, data));
      this.#sort();
    }
    this.notify();
  }

  #freeTime(second) {
    let next = round(second);
    while (!this.#isFree(next)) next = round(next + (next < this.#duration ? STEP_S : -this.#duration));
    return next;
  }

  #middleOfWidestGap() {
    const times = [0, ...this.#keyframes.map((keyframe) => this.#timeOf(keyframe)), this.#duration];
    const gaps = times.slice(1).map((time, index) => ({ size: time - times[index], middle: (time + times[index]) / 2 }));
    return gaps.reduce((widest, gap) => (gap.size > widest.size ? gap : widest)).middle;
  }
}
