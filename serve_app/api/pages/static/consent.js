// The consent page: an OAuth client asks for access. The request's secret is behind the # of the address and goes on in
// a header, so it is in no log.
import { get, post } from "./api.js";
import { browserStore } from "./browser_store.js";
import { el, humanize, onSubmit, setMessage, showErrors } from "./dom.js";
import { Session } from "./session.js";

const PATH = "/v1/consent";
const ROLE_RIGHTS = {
  developer: "make images and videos, which costs credits, and see all tasks",
  viewer: "see tasks, credits and accounts, and change nothing",
};

class ConsentPage {
  constructor(session) {
    this.session = session;
    this.secret = { headers: { "x-secret": browserStore.takeFragment() } };
    this.form = document.getElementById("consent");
    this.problem = document.getElementById("problem");
    this.role = el("select", { name: "role", "aria-label": "What it may do" });
    this.everywhere = el("input", { type: "checkbox", name: "everywhere" });
    onSubmit(this.form, () =>
      this.#answer({ allow: true, project: session.project, role: this.role.value, everywhere: this.everywhere.checked }));
    this.form.elements.deny.addEventListener("click", () => this.#answer({ allow: false }));
  }

  async show() {
    try {
      this.#ask(await get(PATH, this.secret));
    } catch (error) {
      this.form.replaceChildren(this.form.firstElementChild, this.problem);
      setMessage(this.problem, error.message);
    }
  }

  #ask({ client, goes_to: destination, roles }) {
    const { project, projects, organization, name, role } = this.session;
    document.getElementById("who").replaceChildren(
      el("strong", {}, client), " asks for access to the project ", el("strong", {}, project),
      ` of ${organization}, as ${name}. The answer goes to `, el("code", {}, destination), ".");
    this.form.elements.deny.disabled = false;
    if (!roles.length) {
      const reason = `Your role, ${humanize(role)}, can't give access to programs. Ask an administrator to do it.`;
      return setMessage(this.problem, reason);
    }
    this.role.append(...roles.map((value) => el("option", { value }, `${value}: ${ROLE_RIGHTS[value]}`)));
    document.getElementById("what").replaceChildren(
      el("p", {}, el("label", {}, "It may ", this.role)),
      projects.length > 1 ? el("p", {}, el("label", {}, this.everywhere, ` Also in the other projects of ${organization}`)) : "",
      el("p", { class: "faint" }, "You can revoke its access on the account page."));
    this.form.elements.allow.disabled = false;
  }

  #answer(body) {
    showErrors(this.problem, async () => location.assign((await post(PATH, body, this.secret)).redirect));
  }
}

await new ConsentPage(await Session.open()).show();
