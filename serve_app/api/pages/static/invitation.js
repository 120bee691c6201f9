// The invitation's secret is behind the #, which browsers don't send along, and goes on in a header: it is in no log.
import { call, post } from "./api.js";

const form = document.getElementById("invitation");
const problem = document.getElementById("problem");
const what = document.getElementById("what");
const path = "/v1/invitation";
const secret = { "x-secret": location.hash.slice(1) };

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  problem.hidden = true;
  try {
    await post(path, { name: form.elements.name.value, password: form.elements.password.value }, secret);
    location.replace("/");
  } catch (refusal) {
    problem.textContent = refusal.message;
    problem.hidden = false;
  }
});

try {
  const invitation = await call("GET", path, undefined, secret);
  what.textContent = `${invitation.by} invites you to ${invitation.organization} as ${invitation.role.replace("_", " ")}.`;
  form.querySelector("button").disabled = false;
} catch (refusal) {
  what.textContent = refusal.message;
  form.replaceChildren(form.firstElementChild, what);
}
