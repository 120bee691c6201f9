// The playground: a form for every endpoint, and the results beside it.
import { get, getResult, post, taskPath } from "./api.js";
import { browserStore } from "./browser_store.js";
import { codeSamples } from "./code_samples.js";
import { button, copyButton, el, formatCredits, humanize, onSubmit, pageElements, setMessage } from "./dom.js";
import { readDataUrl } from "./images.js";
import { RequestForm } from "./request_form.js";
import { GROUPS, listEndpoints } from "./schema.js";
import { Session } from "./session.js";
import { TaskCard } from "./task_card.js";

const DEFAULT_ENDPOINT = "gen-3-image-klein";
// Prompts that the bundled models can follow.
const IMAGE_EXAMPLE = "a large pink heart on a gradient from white to light blue";
const VIDEO_EXAMPLE = "a red circle moves to the right on a white background";
const TYPING_PAUSE_MS = 500;
const SINGLE_COLUMN = matchMedia("(max-width: 50rem)"); // the results are below the form

class Playground {
  #endpoint = null;
  #requestForm = null;
  #timer = 0;

  constructor(session, endpoints) {
    Object.assign(this, pageElements("form", "endpoint", "summary", "demo", "modes", "notice", "fields", "problem",
      "warnings", "generate", "count", "price", "samples", "results", "examples"));
    this.endpoints = endpoints;
    this.mayGenerate = session.may("generate");
    this.generate.disabled = !this.mayGenerate;
    this.demoModels = get("/v1/models").then(({ data }) => data.filter((model) => model.demo).map((model) => model.id), () => []);
    this.endpoint.append(...GROUPS.map((label) => el("optgroup", { label }, endpoints
      .filter(({ group }) => group === label).map(({ name, title }) => el("option", { value: name }, title)))));
    this.endpoint.onchange = () => this.#select(this.endpoint.value);
    this.form.oninput = () => this.#scheduleQuote();
    this.count.onchange = () => (this.count.value = this.#requestCount);
    onSubmit(this.form, () => this.#send(this.#requestCount));
    for (const example of this.examples.children) {
      example.onclick = () => this.#repeat(DEFAULT_ENDPOINT, { prompt: example.textContent });
    }
    if (!this.mayGenerate) {
      this.#refuse(`Your role, ${humanize(session.role)}, can't generate. Ask an administrator for another role.`);
    }
  }

  get #requestCount() {
    return Math.min(this.count.max, Math.max(1, Math.round(this.count.value) || 1));
  }

  // Fills the form with the draft of this tab, or with what the address asks for.
  async start() {
    const query = new URLSearchParams(location.search);
    const [navigation] = performance.getEntriesByType("navigation");
    const isReturning = location.search === "" || navigation?.type !== "navigate";
    const draft = isReturning && browserStore.draft;
    if (draft) {
      this.#fill(draft.endpoint, draft.body);
      return this.#showRecent();
    }
    if (query.has("again")) await this.#recall(query.get("again"));
    else this.#select(query.get("endpoint") ?? DEFAULT_ENDPOINT);
    this.#showRecent();
    for (const name of ["finetune_id", "prompt"]) {
      if (query.has(name)) this.#requestForm.fill({ ...this.#requestForm.body(), [name]: query.get(name) });
    }
    if (query.has("edit")) await this.#edit(query.get("edit"));
  }

  #select(name, mode = 0) {
    const endpoint = this.endpoints.find((each) => each.name === name) ?? this.endpoints[0];
    const previousBody = this.#requestForm?.body();
    this.#endpoint = endpoint;
    this.#requestForm = new RequestForm(withExample(endpoint.forms[mode].fields));
    if (previousBody) this.#requestForm.adopt(previousBody);
    this.endpoint.value = endpoint.name;
    this.summary.textContent = `${endpoint.summary} · ${endpoint.name}`;
    this.demoModels.then((names) => (this.demo.hidden = !names.includes(this.#endpoint.name)));
    this.fields.replaceChildren(this.#requestForm.element);
    const modeButtons = endpoint.forms.map(({ title }, index) =>
      button(title, () => this.#select(name, index), { "aria-pressed": String(index === mode) }));
    this.modes.replaceChildren(...(modeButtons.length > 1 ? modeButtons : []));
    const hasResults = this.results.children.length > 1;
    this.examples.hidden = endpoint.group !== "Generate" || !this.mayGenerate || hasResults;
    this.#scheduleQuote();
  }

  // Selects the form of the endpoint that has the body's mode, and fills it.
  #fill(name, body) {
    const forms = this.endpoints.find((each) => each.name === name)?.forms ?? [];
    const hasMode = ({ fields }) => fields.some((field) => field.name === "mode" && field.constant === body.mode);
    this.#select(name, Math.max(0, forms.findIndex(hasMode)));
    this.#requestForm.fill(body);
  }

  // Shows the price and the code once nothing was typed for a while.
  #scheduleQuote() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#quote(this.#endpoint, this.#requestForm.body()), TYPING_PAUSE_MS);
  }

  async #quote({ name, path }, body) {
    browserStore.saveDraft(name, body);
    const samples = Object.entries(codeSamples(name, body)).map(([language, text]) => el("div", {},
      el("div", { class: "row apart" }, el("strong", {}, language), copyButton(text)), el("pre", { tabIndex: 0 }, text)));
    this.samples.replaceChildren(...samples);
    this.price.textContent = "";
    this.warnings.replaceChildren();
    if (Object.keys(this.#requestForm.missing()).length) return;
    try {
      const { cost, warnings } = await post("/v1/pricing", { path, body });
      this.price.textContent = formatCredits(Number((cost * this.count.value).toFixed(3)));
      this.warnings.replaceChildren(...warnings.map((warning) => el("p", { class: "notice" }, warning)));
    } catch {} // problems are shown when the request is sent
  }

  async #send(count) {
    if (this.generate.disabled) return; // a request is being sent
    const missing = this.#requestForm.missing();
    setMessage(this.problem);
    this.#requestForm.showProblems(missing);
    if (Object.keys(missing).length) return;
    this.generate.disabled = true;
    try {
      for (let index = 0; index < count; index++) await this.#sendOne(index, count);
    } catch (error) {
      if (!this.#requestForm.showProblems(error.fields ?? {})) this.#refuse(error.message);
    } finally {
      this.generate.disabled = !this.mayGenerate;
    }
  }

  // With a seed, each of several requests gets the next one.
  async #sendOne(index, count) {
    const { name, path } = this.#endpoint;
    const body = this.#requestForm.body();
    if (body.seed !== undefined) body.seed += index;
    const { id, cost } = await post(path, body);
    browserStore.saveRequest(id, name, body);
    const card = this.#createCard({ id, endpoint: name, body, cost });
    card.classList.toggle("single", count === 1);
    this.examples.hidden = true;
    this.examples.after(card);
    if (index === 0) card.scrollIntoView({ block: SINGLE_COLUMN.matches ? "start" : "nearest" });
  }

  #createCard(request) {
    return new TaskCard(request, {
      repeat: (body) => this.#repeat(request.endpoint, body),
      edit: (id) => this.#edit(id),
      reuseSeed: (seed) => {
        this.#requestForm.set("seed", seed);
        this.#requestForm.widgets.get("seed")?.input.focus();
        this.#scheduleQuote();
      },
      mayRevoke: this.mayGenerate,
    }).element;
  }

  // Shows the tasks that this tab sent before the page was loaded again, as far as the service still has them.
  async #showRecent() {
    const ids = browserStore.recentIds.filter((id) => browserStore.request(id));
    const tasks = await Promise.all(ids.map((id) => getResult(id).catch(() => null)));
    this.results.append(...tasks.filter(Boolean).map(({ id, cost }) => {
      const { endpoint, body } = browserStore.request(id);
      return this.#createCard({ id, endpoint, body, cost });
    }));
    this.examples.hidden ||= this.results.children.length > 1;
  }

  async #repeat(endpoint, body) {
    this.#fill(endpoint, body);
    await this.#send(1);
  }

  // Makes the result of a task the image of the next request. Links expire, so it asks for a new one.
  async #edit(id) {
    try {
      const { result } = await getResult(id);
      const response = result && (await fetch(result.sample));
      if (!response?.ok) throw new Error("This image has been deleted. Choose another one.");
      const data = await readDataUrl(await response.blob());
      if (!this.#imageField) this.#select(DEFAULT_ENDPOINT);
      const field = this.#imageField;
      this.#requestForm.set(field, field === "images" ? [data] : data);
    } catch (error) {
      return this.#refuse(error.message);
    }
    const prompt = this.#requestForm.widgets.get("prompt");
    prompt?.set(""); // the old prompt describes the image, not the change
    (prompt?.input ?? prompt?.element)?.focus();
    this.#scheduleQuote();
  }

  get #imageField() {
    return ["images", "input_image", "image"].find((name) => this.#requestForm.widgets.has(name));
  }

  // Fills the form with an earlier request. The service knows only the prompt and the seed of one that this browser did
  // not send.
  async #recall(id) {
    const request = browserStore.request(id);
    if (request) {
      this.#fill(request.endpoint, request.body);
      const lost = request.missing.length ? ` Not stored: ${request.missing.join(", ")}.` : "";
      return setMessage(this.notice, `This is an earlier request. Change what you like.${lost}`);
    }
    const task = await get(taskPath(id)).catch(() => null);
    if (!task) {
      this.#select(DEFAULT_ENDPOINT);
      return setMessage(this.notice, "This request is not stored in this browser. Fill in the form to send a new one.");
    }
    const known = Object.entries({ prompt: task.prompt || undefined, seed: task.parameters.seed });
    const body = Object.fromEntries(known.filter(([, value]) => value !== undefined));
    this.#fill(task.endpoint, body);
    setMessage(this.notice, "Another browser or program sent this request. Known fields: "
      + `${Object.keys(body).join(", ") || "none"}. All others have their defaults.`);
  }

  #refuse(message) {
    setMessage(this.problem, message);
  }
}

// Suggests a prompt that the bundled models can follow, unless the endpoint needs more than a prompt.
function withExample(fields) {
  const needsMore = fields.some(({ name, required, constant }) => required && name !== "prompt" && constant === undefined);
  if (needsMore) return fields;
  const example = fields.some(({ name }) => name === "duration") ? VIDEO_EXAMPLE : IMAGE_EXAMPLE;
  return fields.map((field) => (field.name === "prompt" ? { ...field, example } : field));
}

const [session, endpoints] = await Promise.all([Session.open(), listEndpoints()]);
await new Playground(session, endpoints).start();
