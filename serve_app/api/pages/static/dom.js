// Elements, made in one expression: el("p", {class: "faint"}, "text", another).
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && !name.includes("-") && name !== "list" && name !== "form") element[name] = value;
    else element.setAttribute(name === "className" ? "class" : name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

let count = 0;
// An id that nothing else on the page has.
export const unique = (name) => `${name}-${++count}`;

// A day and a time of it, of epoch seconds.
export const moment = (seconds) => new Date(seconds * 1000).toLocaleString("en", { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });

// A price in words.
export const credits = (count) => `${count} credit${count === 1 ? "" : "s"}`;

// An image that fills the window when it is pressed.
export function zoomable(image) {
  const dialog = el("dialog", { class: "zoom", "aria-label": "Enlarged", onclick: () => dialog.close(), onclose: () => dialog.remove() }, image.cloneNode());
  return el("button", { type: "button", class: "zoomable", title: "Enlarge", onclick: () => (document.body.append(dialog), dialog.showModal()) }, image);
}

// Says something to those who don't see the page.
export function announce(text) {
  let region = document.getElementById("announcements");
  if (!region) {
    region = el("div", { id: "announcements", class: "skip", "aria-live": "polite" });
    document.body.append(region);
  }
  region.textContent = text;
}
