// A program asks for access. What it asks is behind the #, which browsers don't send along, and goes on in a header: it
// is in no log.
import { call, post } from "./api.js";
import { el } from "./dom.js";
import { carried, open } from "./shell.js";

const RIGHTS = {
  developer: "make images and videos, which costs credits, and see all tasks",
  viewer: "see tasks, credits and accounts, and change nothing",
};

const form = document.getElementById("consent");
const problem = document.getElementById("problem");
const session = await open();
const path = "/v1/consent";
const secret = { "x-secret": carried() };

const role = el("select", { name: "role", "aria-label": "What it may do" });
const everywhere = el("input", { type: "checkbox", name: "everywhere" });

async function answer(allow) {
  problem.hidden = true;
  try {
    const { redirect } = await post(path, { allow, ...(allow ? { project: session.project, role: role.value, everywhere: everywhere.checked } : {}) }, secret);
    location.assign(redirect);
  } catch (refusal) {
    say(refusal);
  }
}

function say(refusal) {
  problem.textContent = refusal.message;
  problem.hidden = false;
}

function show(question) {
  document.getElementById("who").replaceChildren(
    el("strong", {}, question.client), " asks for access to the project ", el("strong", {}, session.project),
    ` of ${session.organization}, as ${session.name}. The answer goes to `, el("code", {}, question.goes_to), ".");
  form.elements.deny.disabled = false;
  if (!question.roles.length) return say(new Error(`Your role here, ${session.role}, has nothing to give to it`));
  role.append(...question.roles.map((each) => el("option", { value: each }, `${each}: ${RIGHTS[each]}`)));
  const roaming = el("label", {}, everywhere, ` In the other projects of ${session.organization}, too`);
  document.getElementById("what").replaceChildren(
    el("p", {}, el("label", {}, "It may ", role)),
    session.projects.length > 1 ? el("p", {}, roaming) : "",
    el("p", { class: "faint" }, "You can shut it out again on the account page."));
  form.elements.allow.disabled = false;
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  answer(true);
});
form.elements.deny.addEventListener("click", () => answer(false));
try {
  show(await call("GET", path, undefined, secret));
} catch (refusal) {
  form.replaceChildren(form.firstElementChild, problem);
  say(refusal);
}
