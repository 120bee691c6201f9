// The invitation page: the person chooses a name and a password. The secret is behind the # of the address and goes on
// in a header, so it is in no log.
import { get, post } from "./api.js";
import { humanize, onSubmit, showErrors } from "./dom.js";

const PATH = "/v1/invitation";

class InvitationPage {
  constructor() {
    this.form = document.getElementById("invitation");
    this.problem = document.getElementById("problem");
    this.text = document.getElementById("what");
    this.secret = { headers: { "x-secret": location.hash.slice(1) } };
    onSubmit(this.form, (values) => showErrors(this.problem, async () => {
      await post(PATH, values, this.secret);
      location.replace("/");
    }));
  }

  async show() {
    try {
      const { by, organization, role } = await get(PATH, this.secret);
      this.text.textContent = `${by} invites you to ${organization} as ${humanize(role)}.`;
      this.form.querySelector("button").disabled = false;
    } catch (error) {
      this.text.textContent = error.message;
      this.form.replaceChildren(this.form.firstElementChild, this.text);
    }
  }
}

await new InvitationPage().show();
