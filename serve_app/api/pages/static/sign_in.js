import { get, post } from "./api.js";

const PROBLEMS = {
  refused: "The provider did not let you in, or it took too long. Try again.",
  "out-of-reach": "The provider can't be reached. Try again shortly.",
  "no-member": "You are no member of any organization here. Ask for an invitation.",
};

const problem = document.getElementById("problem");

function say(text) {
  problem.textContent = text;
  problem.hidden = false;
}

async function signIn(body) {
  problem.hidden = true;
  try {
    await post("/v1/session", body);
  } catch (refusal) {
    if (body.key && refusal.status === 403) return say("Invalid API key.");
    say(refusal.retryAfter ? `${refusal.message}. Try again in ${Math.ceil(refusal.retryAfter / 60)} min.` : refusal.message);
    return;
  }
  location.replace(destination());
}

// Only paths of this service: a link here must not lead people on elsewhere.
function destination() {
  const to = new URLSearchParams(location.search).get("to") ?? "/";
  const url = URL.canParse(to, location.origin) ? new URL(to, location.origin) : null;
  return url?.origin === location.origin ? url.href : location.origin;
}

for (const form of document.forms) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    signIn(Object.fromEntries(new FormData(form)));
  });
  form.querySelector("button").disabled = false; // before, a password would be sent in the address
}

const message = PROBLEMS[new URLSearchParams(location.search).get("problem")];
if (message) say(message);
const { openid } = await get("/v1/session");
if (openid) {
  const link = document.getElementById("openid");
  link.href = `/v1/session/openid?to=${encodeURIComponent(destination().slice(location.origin.length))}`;
  link.textContent = `Sign in by ${openid}`;
  link.hidden = false;
}
