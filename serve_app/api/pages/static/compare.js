// Two images, one over the other, and an edge between them that is pulled.
import { el } from "./dom.js";

const LIKENESS = 0.02; // of two ratios that are the same but for rounding

// The result is shown alone until it is known to have the shape of the image before: else there is nothing to lay it over.
export function compare(before, result) {
  const under = el("img", { src: before, alt: "Before" });
  const slider = el("input", { type: "range", min: 0, max: 100, value: 50, "aria-label": "From the result to the image before" });
  const edge = el("div", { class: "divide" });
  const move = () => {
    result.style.clipPath = `inset(0 0 0 ${slider.value}%)`;
    edge.style.left = `${slider.value}%`;
  };
  slider.addEventListener("input", move);
  const element = el("div", { class: "compare" }, result);
  Promise.all([under.decode(), result.decode()]).catch(() => {}).then(() => {
    const ratio = (image) => image.naturalWidth / image.naturalHeight;
    if (Math.abs(ratio(result) / ratio(under) - 1) >= LIKENESS) return;
    result.classList.add("over");
    move();
    element.replaceChildren(el("div", { class: "pair" }, under, result, edge, slider), el("div", { class: "row apart faint" }, el("span", {}, "Before"), el("span", {}, "After")));
  });
  return element;
}
