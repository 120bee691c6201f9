// Two pictures, one over the other, and a slider between them.
import { el } from "./dom.js";

export function compare(before, after, alt) {
  const over = el("img", { src: after, alt, class: "over" });
  const slider = el("input", { type: "range", min: 0, max: 100, value: 0, "aria-label": "From the result to the picture before" });
  slider.addEventListener("input", () => (over.style.clipPath = `inset(0 0 0 ${slider.value}%)`));
  return el("div", { class: "compare" }, el("div", { class: "pair" }, el("img", { src: before, alt: "Before" }), over), slider);
}
