// The section of the account page on tuned models: upload, samples, deletion.
import { ServiceError, get, post } from "./api.js";
import { button, confirmButton, el, errorText, formatDate, fromTemplate, onSubmit, panel, table } from "./dom.js";
import { listEndpoints } from "./schema.js";
import { TaskFollower, isFinal } from "./task_follower.js";

const TUNED_SUFFIX = "-finetuned";
const SAMPLE_FIELDS = ["prompt", "finetune_id"];
const SAMPLE_PROMPTS = [
  "a large yellow star on a black background",
  "a red circle on a white background",
  "a large pink heart on a light blue background",
];

export async function tunedModelsSection(session) {
  if (!session.may("read tasks")) return null;
  const mayGenerate = session.may("generate");
  const endpoints = (await listEndpoints()).filter(({ name }) => name.endsWith(TUNED_SUFFIX));
  const endpointByBase = new Map(endpoints.map((endpoint) => [endpoint.name.replace(TUNED_SUFFIX, ""), endpoint]));
  const list = el("div");
  const samples = el("div");

  async function refresh() {
    const { finetunes } = await get("/v1/my_finetunes");
    samples.replaceChildren();
    list.replaceChildren(finetunes.length ? table(["Name", "For", "Id", "Since", "", "", ""], finetunes.map(row))
      : el("p", { class: "faint" }, "No tuned models yet."));
  }

  function row({ finetune_id: id, name, base, created }) {
    const facts = [name, base, el("code", {}, id), formatDate(created)];
    if (!mayGenerate) return [...facts, "", "", ""];
    const endpoint = endpointByBase.get(base);
    const query = endpoint && new URLSearchParams({ endpoint: endpoint.name, finetune_id: id });
    const erase = () => post("/v1/delete_finetune", { finetune_id: id }).then(refresh);
    return [...facts,
      endpoint && el("a", { href: `/?${query}` }, "Try it"),
      endpoint && needsOnlyPrompt(endpoint) && button("Samples", ({ target }) => showSamples(target, endpoint.name, id)),
      confirmButton("Delete", `Delete ${name}?`, erase)];
  }

  // Samples cost as much as other images, so they are generated only when asked for.
  async function showSamples(trigger, endpoint, finetune_id) {
    const group = el("div", { class: "samples", role: "group", "aria-label": "Samples" });
    samples.replaceChildren(group);
    trigger.disabled = true;
    await Promise.all(SAMPLE_PROMPTS.map((prompt) => generateSample(group, endpoint, { prompt, finetune_id })));
    trigger.disabled = false;
  }

  await refresh();
  const upload = mayGenerate && new ModelUpload([...endpointByBase.keys()], refresh).form;
  return panel("Tuned models", { wide: true }, upload, list, samples);
}

async function generateSample(group, endpoint, body) {
  const figure = el("figure", {}, el("progress", { "aria-label": body.prompt }));
  group.append(figure);
  try {
    const { id } = await post(`/v1/${endpoint}`, body);
    new TaskFollower(id, ({ status, result, details }) => {
      if (status === "Ready") figure.replaceChildren(el("img", { src: result.sample, alt: body.prompt }));
      else if (isFinal(status)) figure.replaceChildren(errorText(new Error(details?.error ?? status)));
    });
  } catch (error) {
    figure.replaceChildren(errorText(error));
  }
}

const needsOnlyPrompt = ({ forms: [{ fields }] }) =>
  fields.every(({ name, required }) => !required || SAMPLE_FIELDS.includes(name));

class ModelUpload {
  constructor(bases, onUpload) {
    const { element: form, ...parts } = fromTemplate("model-upload");
    Object.assign(this, parts, { form, onUpload });
    this.base.append(...bases.map((base) => el("option", {}, base)));
    onSubmit(form, (values) => this.#upload(values));
  }

  #upload({ file, ...query }) {
    const request = new XMLHttpRequest(); // unlike fetch, it reports the progress of an upload
    request.responseType = "json";
    request.open("POST", `/v1/finetunes?${new URLSearchParams(query)}`);
    request.upload.addEventListener("progress", ({ loaded, total }) => (this.bar.value = loaded / total));
    request.upload.addEventListener("load", () => (this.status.textContent = "Checking the file…"));
    request.addEventListener("loadend", () => {
      const isAccepted = request.status === 200;
      const { message } = new ServiceError(request.status, request.response?.detail);
      this.bar.hidden = true;
      this.status.textContent = isAccepted ? "Uploaded. The model is ready to use." : `Refused: ${message}`;
      this.status.className = isAccepted ? "good" : "bad";
      if (!isAccepted) return;
      this.form.reset();
      this.onUpload();
    });
    this.bar.hidden = false;
    request.send(file);
  }
}
