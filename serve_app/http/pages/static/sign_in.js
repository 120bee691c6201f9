import { post } from "./api.js";

const form = document.getElementById("sign-in");
const problem = document.getElementById("problem");

async function signIn(body) {
  problem.hidden = true;
  try {
    await post("/v1/session", body);
  } catch (refusal) {
    problem.textContent = refusal.retryAfter ? `${refusal.message}. Try again in ${Math.ceil(refusal.retryAfter / 60)} min.` : refusal.message;
    problem.hidden = false;
    return;
  }
  location.replace(destination());
}

// Only paths of this service: a link here must not lead people on elsewhere.
function destination() {
  const to = new URLSearchParams(location.search).get("to") ?? "/";
  const url = new URL(to, location.origin);
  return url.origin === location.origin ? url.pathname + url.search + url.hash : "/";
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  signIn({ name: form.elements.name.value, password: form.elements.password.value });
});
document.getElementById("with-key").addEventListener("click", () => signIn({ key: form.elements.key.value }));
