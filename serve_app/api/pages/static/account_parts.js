// What sections of the account are made of.
import { el, unique } from "./dom.js";

export function section(title, { wide = false } = {}, ...children) {
  const heading = el("h2", { id: unique("section") }, title);
  return el("section", { class: wide ? "panel wide" : "panel", "aria-labelledby": heading.id }, heading, children);
}

export function table(columns, rows) {
  return el("div", { class: "scroll", tabIndex: 0 }, el("table", { role: "table" },
    el("thead", {}, el("tr", { role: "row" }, columns.map((name) => el("th", { scope: "col", role: "columnheader" }, name)))),
    el("tbody", {}, rows.map((row) => el("tr", { role: "row" }, row.map((cell, index) => el("td", { role: "cell", "data-column": columns[index] }, cell ?? "")))))));
}

// A form in one line; `send` gets its values, and what it throws is shown below.
export function line(fields, label, send) {
  const wrong = el("p", { class: "bad", role: "alert", hidden: true });
  const inputs = fields.map(({ name, title, choices, ...rest }) =>
    choices ? el("select", { name, "aria-label": title }, choices.map((each) => el("option", { value: each }, each.replace("_", " "))))
      : el("input", { name, "aria-label": title, placeholder: title, ...rest }));
  const button = el("button", { class: "main" }, label);
  const form = el("form", { class: "row" }, inputs.map((input) => el("div", { class: "grow" }, input)), button, wrong);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    wrong.hidden = true;
    button.disabled = true;
    try {
      await send(Object.fromEntries(inputs.map((input) => [input.name, input.type === "file" ? input.files[0] : input.value])), form);
    } catch (problem) {
      wrong.textContent = problem.message;
      wrong.hidden = false;
    } finally {
      button.disabled = false;
    }
  });
  return form;
}

// Asks first: what is gone is gone.
export function sure(label, question, act) {
  const done = () => Promise.resolve(act()).catch((problem) => alert(problem.message));
  return el("button", { type: "button", onclick: () => confirm(question) && done() }, label);
}

export const day = (seconds) => (seconds ? new Date(seconds * 1000).toLocaleDateString() : "");
