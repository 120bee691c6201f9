// The sign-in page: with an API key, with a password, or with the OpenID provider.
import { get, post } from "./api.js";
import { onSubmit, setMessage } from "./dom.js";

const PROVIDER_PROBLEMS = {
  refused: "The provider did not let you in, or it took too long. Try again.",
  "out-of-reach": "The provider can't be reached. Try again shortly.",
  "no-member": "You are not a member of any organization here. Ask an administrator for an invitation.",
};

class SignInPage {
  constructor() {
    const query = new URLSearchParams(location.search);
    this.problem = document.getElementById("problem");
    this.destination = ownUrl(query.get("to") ?? "/");
    for (const form of document.forms) {
      onSubmit(form, (values) => this.#signIn(values));
      form.querySelector("button").disabled = false; // without this script, the form would put passwords in the address
    }
    setMessage(this.problem, PROVIDER_PROBLEMS[query.get("problem")]);
  }

  async offerProvider() {
    const { openid } = await get("/v1/session");
    const link = document.getElementById("openid");
    link.href = `/v1/session/openid?to=${encodeURIComponent(this.destination.slice(location.origin.length))}`;
    setMessage(link, openid && `Sign in with ${openid}`);
  }

  async #signIn(body) {
    setMessage(this.problem);
    try {
      await post("/v1/session", body);
      location.replace(this.destination);
    } catch (error) {
      const retry = error.retryAfterS ? `. Try again in ${Math.ceil(error.retryAfterS / 60)} min.` : "";
      setMessage(this.problem, body.key && error.status === 403 ? "Invalid API key." : error.message + retry);
    }
  }
}

// A link must not lead people to another site after they signed in.
function ownUrl(address) {
  const url = URL.canParse(address, location.origin) ? new URL(address, location.origin) : null;
  return url?.origin === location.origin ? url.href : location.origin;
}

await new SignInPage().offerProvider();
