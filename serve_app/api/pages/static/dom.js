// Elements and texts that several pages use.
import { getResult } from "./api.js";

// Creates an element: el("p", { class: "faint" }, "text", child). Empty properties and children are left out.
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (isEmpty(value)) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && !name.includes("-")) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => !isEmpty(child)));
  return element;
}

const isEmpty = (value) => value === undefined || value === null || value === false;

export const pageElements = (...ids) => Object.fromEntries(ids.map((id) => [id, document.getElementById(id)]));

// Copies a <template> of the page. Returns its elements by their data-part, and the outermost as `element`.
export function fromTemplate(id) {
  const element = document.getElementById(id).content.firstElementChild.cloneNode(true);
  const parts = [...element.querySelectorAll("[data-part]")].map((part) => [part.dataset.part, part]);
  return { element, ...Object.fromEntries(parts) };
}

export function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export const button = (label, onclick, properties = {}) => el("button", { type: "button", onclick, ...properties }, label);

export const copyButton = (text) => button("Copy", () => navigator.clipboard.writeText(text));

// Calls `handle` with the values by name instead of sending the form to the address.
export const onSubmit = (form, handle) =>
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    handle(Object.fromEntries(new FormData(form)));
  });

// Runs an action and shows the message of its error.
export async function showErrors(element, action) {
  setMessage(element);
  try {
    await action();
  } catch (error) {
    setMessage(element, error.message);
  }
}

// Asks before an action that can't be undone.
export function confirmButton(label, question, act) {
  return button(label, () => {
    if (confirm(question)) Promise.resolve(act()).catch((error) => alert(error.message));
  });
}

export const errorText = (error) => el("p", { class: "bad", role: "alert" }, error.message);

// Links to results expire: a download asks for a new one.
export async function downloadResult(id) {
  const { result } = await getResult(id);
  if (!result) throw new Error("The result is no longer stored");
  el("a", { href: result.sample, download: "" }).click();
}

// Enlarges the image in a dialog when it is pressed.
export function zoomable(image) {
  const close = ({ currentTarget }) => currentTarget.close();
  const open = () => runDialog(el("dialog", { class: "zoom", "aria-label": "Enlarged", onclick: close }, image.cloneNode()));
  return button(image, open, { class: "zoomable", title: "Enlarge" });
}

// Shows a dialog until it is closed, and returns its return value.
export async function runDialog(dialog) {
  document.body.append(dialog);
  dialog.showModal();
  await new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
  dialog.remove();
  return dialog.returnValue;
}

// Writes only a new text, so that screen readers don't read the same one again.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Hides the element when the text is empty.
export function setMessage(element, text = "") {
  setText(element, text);
  element.hidden = !text;
}

// Screen readers read the text aloud.
export function announce(text) {
  let region = document.getElementById("announcements");
  if (!region) {
    region = el("div", { id: "announcements", class: "skip", "aria-live": "polite" });
    document.body.append(region);
  }
  region.textContent = text;
}

export const uniqueId = (name) => `${name}-${Math.random().toString(36).slice(2)}`;

const TIME = { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
export const formatTime = (epochS) => new Date(epochS * 1000).toLocaleString("en", TIME);
export const formatDate = (epochS) => (epochS ? new Date(epochS * 1000).toLocaleDateString() : "");
export const formatCredits = (count) => `${count} credit${count === 1 ? "" : "s"}`;

// Turns "billing_manager" into "billing manager".
export const humanize = (name) => name.replaceAll("_", " ");

export function panel(title, { wide = false } = {}, ...children) {
  const heading = el("h2", { id: uniqueId("section") }, title);
  return el("section", { class: wide ? "panel wide" : "panel", "aria-labelledby": heading.id }, heading, children);
}

// The roles are explicit because narrow screens show rows as blocks, which removes the implicit ones.
export function table(columns, rows) {
  const header = columns.map((name) => el("th", { scope: "col", role: "columnheader" }, name));
  const cell = (value, index) => el("td", { role: "cell", "data-column": columns[index] }, value ?? "");
  return el("div", { class: "scroll", tabIndex: 0 }, el("table", { role: "table" },
    el("thead", {}, el("tr", { role: "row" }, header)),
    el("tbody", {}, rows.map((row) => el("tr", { role: "row" }, row.map(cell))))));
}

export const options = (values, selected) =>
  values.map((value) => el("option", { value, selected: value === selected }, humanize(value)));

// A form in one line: `fields` are {name, title, choices or properties of the input}. `send` gets the values by name;
// the message of an error that it throws is shown.
export function inlineForm(fields, label, send) {
  const message = el("p", { class: "bad", role: "alert", hidden: true });
  const inputs = fields.map(({ name, title, choices, ...properties }) =>
    choices ? el("select", { name, "aria-label": title }, options(choices))
      : el("input", { name, "aria-label": title, placeholder: title, ...properties }));
  const submit = el("button", { class: "main" }, label);
  const form = el("form", { class: "row" }, inputs.map((input) => el("div", { class: "grow" }, input)), submit, message);
  onSubmit(form, async (values) => {
    submit.disabled = true;
    await showErrors(message, async () => {
      await send(values);
      for (const input of form.querySelectorAll("input")) input.value = input.defaultValue;
    });
    submit.disabled = false;
  });
  return form;
}
