// The ratio of width to height, each as its frame.
import { el, unique } from "./dom.js";

const SIDE = 26;
const COMMON = ["auto", "1:1", "4:3", "3:4", "16:9", "9:16"];

export function ratio(field) {
  const name = unique("ratio");
  const choices = field.choices ?? [];
  const radios = choices.map((value) => el("input", { type: "radio", name, value, checked: value === (field.standard ?? "auto") }));
  const labels = radios.map((radio) => el("label", { class: "ratio", title: radio.value }, radio, frame(radio.value), el("span", {}, radio.value)));
  const isCommon = (label) => COMMON.includes(label.title);
  const others = el("details", {}, el("summary", {}, "More ratios"), el("div", { class: "ratios" }, labels.filter((label) => !isCommon(label))));
  const element = el("div", { role: "radiogroup", "aria-label": field.title }, el("div", { class: "ratios" }, labels.filter(isCommon)), others);
  return {
    element,
    value: () => {
      const chosen = radios.find((radio) => radio.checked)?.value;
      return chosen === field.standard ? undefined : chosen;
    },
    set(value) {
      radios.forEach((radio) => (radio.checked = radio.value === (value ?? field.standard)));
      others.open ||= !COMMON.includes(value ?? field.standard ?? "auto");
    },
  };
}

function frame(value) {
  const [width, height] = value.split(":").map(Number);
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", `0 0 ${SIDE} ${SIDE}`);
  svg.setAttribute("aria-hidden", "true");
  const [w, h] = height ? scaled(width, height) : [18, 18];
  const box = document.createElementNS(svg.namespaceURI, "rect");
  for (const [key, number] of Object.entries({ x: (SIDE - w) / 2, y: (SIDE - h) / 2, width: w, height: h, rx: 2 })) box.setAttribute(key, number);
  if (!height) box.setAttribute("stroke-dasharray", "3 2");
  svg.append(box);
  return svg;
}

function scaled(width, height) {
  const longest = SIDE - 4;
  return width > height ? [longest, (longest * height) / width] : [(longest * width) / height, longest];
}
