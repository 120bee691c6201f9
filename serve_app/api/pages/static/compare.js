// Two images, one over the other, and a slider between them.
import { el } from "./dom.js";

const LIKENESS = 0.02; // of two ratios that are the same but for rounding

// The result is shown alone until it is known to have the shape of the image before: else there is nothing to lay it over.
export function compare(before, after, alt) {
  const under = el("img", { src: before, alt: "Before" });
  const over = el("img", { src: after, alt, class: "over" });
  const slider = el("input", { type: "range", min: 0, max: 100, value: 0, "aria-label": "From the result to the image before" });
  slider.addEventListener("input", () => (over.style.clipPath = `inset(0 0 0 ${slider.value}%)`));
  const element = el("div", { class: "compare" }, el("img", { src: after, alt }));
  Promise.all([under.decode(), over.decode()]).catch(() => {}).then(() => {
    const ratio = (image) => image.naturalWidth / image.naturalHeight;
    if (Math.abs(ratio(over) / ratio(under) - 1) < LIKENESS) element.replaceChildren(el("div", { class: "pair" }, under, over), slider);
  });
  return element;
}
