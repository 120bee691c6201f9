import { get, post } from "./api.js";
import { day, section, sure, table } from "./account_parts.js";
import { el } from "./dom.js";
import { endpoints } from "./schema.js";
import { samples } from "./samples.js";
import { may } from "./shell.js";

const TUNED = "-finetuned";
const FILLED_FIELDS = new Set(["prompt", "finetune_id"]); // by samples

// Tuned models of the project: uploaded with progress, checked by the service.
export async function finetunes(session) {
  if (!may(session, "read tasks")) return null;
  const mayGenerate = may(session, "generate");
  const tuned = (await endpoints()).filter(({ name }) => name.endsWith(TUNED));
  const list = el("div");
  const refresh = async () => {
    const { finetunes: entries } = await get("/v1/my_finetunes");
    list.replaceChildren(...(entries.length ? view(entries) : [el("p", { class: "faint" }, "None yet.")]));
  };

  function view(entries) {
    const stage = el("div");
    const rows = entries.map((model) => {
      const endpoint = tuned.find(({ name }) => name === model.base + TUNED);
      const forget = () => post("/v1/delete_finetune", { finetune_id: model.finetune_id }).then(refresh);
      return [model.name, model.base, el("code", {}, model.finetune_id), day(model.created),
        mayGenerate && endpoint ? el("a", { href: `/?endpoint=${encodeURIComponent(endpoint.name)}&finetune_id=${encodeURIComponent(model.finetune_id)}` }, "Try it") : "",
        mayGenerate && endpoint && needsPromptAlone(endpoint) ? samples(endpoint.name, model.finetune_id, stage) : "",
        mayGenerate ? sure("Delete", `Delete ${model.name}?`, forget) : ""];
    });
    return [table(["Name", "For", "Id", "Since", "", "", ""], rows), stage];
  }

  await refresh();
  const bases = tuned.map(({ name }) => name.slice(0, -TUNED.length));
  return section("Tuned models", { wide: true }, mayGenerate ? upload(refresh, bases) : null, list);
}

const needsPromptAlone = ({ forms: [{ fields }] }) => fields.every(({ name, required }) => !required || FILLED_FIELDS.has(name));

function upload(refresh, bases) {
  const file = el("input", { type: "file", accept: ".safetensors", required: true, "aria-label": "Weights (.safetensors)" });
  const name = el("input", { placeholder: "Name", required: true, maxLength: 100, "aria-label": "Name" });
  const base = el("select", { "aria-label": "For which endpoint" }, bases.map((each) => el("option", {}, each)));
  const bar = el("progress", { max: 1, value: 0, hidden: true, "aria-label": "Upload" });
  const status = el("p", { role: "status" });
  const form = el("form", {}, el("div", { class: "row" }, [file, name, base].map((each) => el("div", { class: "grow" }, each)), el("button", { class: "main" }, "Upload")), bar, status);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    // fetch tells nothing of how far an upload is.
    const request = new XMLHttpRequest();
    request.open("POST", `/v1/finetunes?name=${encodeURIComponent(name.value)}&base=${encodeURIComponent(base.value)}`);
    request.upload.addEventListener("progress", (progress) => (bar.value = progress.loaded / progress.total));
    request.upload.addEventListener("load", () => (status.textContent = "Being checked…"));
    request.addEventListener("loadend", () => {
      bar.hidden = true;
      const answer = safely(request.responseText);
      status.textContent = request.status === 200 ? "Ready to be used." : `Refused: ${typeof answer.detail === "string" ? answer.detail : answer.detail?.[0]?.msg ?? "no answer"}`;
      status.className = request.status === 200 ? "good" : "bad";
      if (request.status === 200) form.reset(), refresh();
    });
    bar.hidden = false;
    request.send(file.files[0]);
  });
  return form;
}

function safely(text) {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}
