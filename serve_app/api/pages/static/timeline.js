// Images on a line that is as long as the video: when each is to be seen.
import { el, unique } from "./dom.js";
import { changed, clamp, drag, keys } from "./moving.js";
import { asDataUrl, IMAGE_TYPES, unfit } from "./images.js";

const SHORTEST_S = 5; // of a video whose duration follows its keyframes
const STEP_S = 0.1;
const BIG_STEP_S = 1; // with shift

// Until one is moved they have no times of their own, and lie as the service spreads them.
export function keyframes(field, others) {
  let all = []; // {data, second, thumb, number, item}, in the order of time
  const file = el("input", { type: "file", accept: IMAGE_TYPES, multiple: true, id: unique("file") });
  const line = el("div", { class: "timeline", role: "group", "aria-label": "When each image is seen" });
  const end = el("span", {});
  const wrong = el("small", { class: "bad", role: "alert", hidden: true });
  const list = el("ol", { class: "placed" });
  const spread = el("button", { type: "button", hidden: true, onclick: () => put(all.map(({ data }) => data)) }, "Spread evenly");
  const element = el("div", { class: "keyframes" },
    el("div", { class: "slot" }, el("label", { htmlFor: file.id, class: "faint" }, "Drop images on the line, or pick them"), file),
    wrong,
    line, el("div", { class: "row apart faint" }, el("span", {}, "0 s"), end), list, spread);

  const timed = () => all.some((each) => each.second !== null);
  const length = () => Number(others("duration")?.value()) || Math.max(SHORTEST_S, Math.ceil(Math.max(0, ...all.map(({ second }) => second ?? 0))));
  const time = (each) => each.second ?? (all.indexOf(each) * length()) / Math.max(1, all.length - 1);
  const isFree = (second, except) => all.every((each) => each === except || each.second !== second);

  function keyframe(data, second) {
    const frame = { data, second };
    frame.thumb = el("div", { class: "thumb", role: "slider", tabIndex: 0, "aria-valuemin": 0 }, el("img", { src: data, alt: "" }));
    frame.number = el("input", { type: "number", min: 0, step: STEP_S });
    frame.item = el("li", {}, el("img", { src: data, alt: "" }), frame.number, el("span", {}, "s"),
      el("button", { type: "button", "aria-label": "Remove this image", onclick: () => remove(frame) }, "✕"));
    drag(frame.thumb, () => {
      const from = time(frame);
      frame.thumb.focus();
      return (x) => move(frame, from + (x / line.clientWidth) * length());
    }, sort);
    keys(frame.thumb, (x, y, event) => {
      const step = (x - y) * (event.shiftKey ? BIG_STEP_S : STEP_S);
      let next = rounded(time(frame) + step);
      // Over those that are in the way.
      while (!isFree(next, frame)) next = rounded(next + Math.sign(step) * STEP_S);
      move(frame, next);
      sort();
    }, () => remove(frame));
    frame.number.addEventListener("change", () => {
      move(frame, Number(frame.number.value), Infinity);
      sort();
    });
    frame.number.addEventListener("blur", show);
    return frame;
  }

  function move(frame, second, most = length()) {
    const next = rounded(clamp(second, 0, most));
    if (!isFree(next, frame)) return;
    fix();
    frame.second = next;
    changed(element);
  }

  // From here on each has its own time.
  function fix() {
    const times = all.map(time);
    all.forEach((each, index) => (each.second ??= rounded(times[index])));
  }

  // The order on the page is that of time, and the focus stays.
  function sort() {
    const focused = document.activeElement;
    all.sort((a, b) => time(a) - time(b));
    line.replaceChildren(...all.map(({ thumb }) => thumb));
    list.replaceChildren(...all.map(({ item }) => item));
    if (element.contains(focused)) focused.focus();
    show();
  }

  function show() {
    const seconds = length();
    end.textContent = `${seconds} s`;
    spread.hidden = !timed();
    all.forEach((each, index) => {
      const at = rounded(time(each));
      each.thumb.style.left = `${(100 * Math.min(at, seconds)) / seconds}%`;
      for (const [name, value] of Object.entries({ label: `Keyframe ${index + 1}`, valuenow: at, valuemax: seconds, valuetext: `${at} seconds` })) each.thumb.setAttribute(`aria-${name}`, value);
      each.number.setAttribute("aria-label", `Time of keyframe ${index + 1}, seconds`);
      if (document.activeElement !== each.number) each.number.value = at;
    });
  }

  function remove(frame) {
    all = all.filter((each) => each !== frame);
    sort();
    (all.at(-1)?.thumb ?? file).focus();
    changed(element);
  }

  function put(values) {
    all = values.map((each) => (Array.isArray(each) ? keyframe(each[1], each[0]) : keyframe(each, null)));
    sort();
    changed(element);
  }

  // `second` is where they were dropped; null for the middle of the widest gap, or wherever all are spread.
  async function take(files, second = null) {
    const room = (field.items ?? 1) - all.length;
    wrong.textContent = [...files].map((each) => unfit(each, IMAGE_TYPES)).find(Boolean) ?? "";
    wrong.hidden = !wrong.textContent;
    for (const blob of [...files].filter((each) => !unfit(each, IMAGE_TYPES)).slice(0, room)) {
      const data = await asDataUrl(blob);
      if (second !== null) fix();
      const frame = keyframe(data, second === null && !timed() ? null : free(second ?? middle()));
      all.push(frame);
      sort();
    }
    changed(element);
  }

  function free(second) {
    let next = rounded(second);
    while (!isFree(next)) next = rounded(next + (next < length() ? STEP_S : -length()));
    return next;
  }

  function middle() {
    const times = [0, ...all.map(time), length()];
    const widest = times.slice(1).reduce((best, each, index) => (each - times[index] > best[1] - best[0] ? [times[index], each] : best), [0, 0]);
    return (widest[0] + widest[1]) / 2;
  }

  file.addEventListener("change", async () => {
    await take(file.files);
    file.value = "";
  });
  line.addEventListener("dragover", (event) => event.preventDefault());
  line.addEventListener("drop", (event) => {
    event.preventDefault();
    const around = line.getBoundingClientRect();
    take(event.dataTransfer.files, clamp((event.clientX - around.left) / around.width, 0, 1) * length());
  });

  return {
    element,
    input: file,
    value: () => (!all.length ? undefined : all.map(({ data, second }) => (second === null ? data : [second, data]))),
    set: (value) => put(value ? [value].flat() : []),
    heed: show,
  };
}

const rounded = (seconds) => Math.round(seconds * 10) / 10;
