// The endpoints and their fields, as the service describes them in openapi.json.
import { get } from "./api.js";

const TUNED = "-finetuned";
const MODES = { v2v: "Extend a video", draft_enhance: "Upscale a draft" }; // whose descriptions are no titles

export const GROUPS = ["Generate", "Edit", "Inpaint", "Extend", "Video", "Tools"];
const SPOKEN = { vto: "Try-on", finetuned: "tuned" };

// [{path, name, title, group, summary, forms: [{title, fields: [...]}]}]; a video has a form for each of its modes.
export async function endpoints(description) {
  description ??= await get("/openapi.json");
  const endpoints = [];
  for (const [path, { post }] of Object.entries(description.paths)) {
    const body = post?.requestBody?.content?.["application/json"]?.schema;
    if (!path.startsWith("/v1/gen-") || post.deprecated || !body) continue;
    const [name, all] = [path.slice("/v1/".length), forms(body, description)];
    for (const { fields } of all) for (const field of fields) if (field.kind === "tuned") field.base = name.replace(TUNED, "");
    endpoints.push({ path, name, title: humanName(name), group: groupOf(name, post.summary, all), summary: post.summary, forms: all });
  }
  return endpoints.sort((a, b) => a.name.endsWith(TUNED) - b.name.endsWith(TUNED));
}

// As people say it: `gen-tools/vto-v2` is "Try-on v2".
function humanName(name) {
  const words = name.replace(/^gen-(tools\/)?/, "").split("-").map((word) => SPOKEN[word] ?? (/^v\d/.test(word) ? word : word[0].toUpperCase() + word.slice(1)));
  return words.join(" ");
}

function groupOf(name, summary, forms) {
  const has = (field) => forms.some(({ fields }) => fields.some((each) => each.name === field));
  if (has("duration")) return "Video";
  if (has("reference_offset_x")) return "Extend";
  if (has("mask")) return "Inpaint";
  if (name.startsWith("gen-tools/")) return "Tools";
  const needsImage = forms.every(({ fields }) => fields.some((each) => each.required && /image/.test(each.name)));
  return needsImage || summary.startsWith("Edit") ? "Edit" : "Generate";
}

function forms(body, description) {
  const schema = resolved(body, description);
  const modes = schema.oneOf?.map((each) => resolved(each, description));
  return (modes ?? [schema]).map((each) => ({ title: titled(each.properties.mode), fields: fields(each, description) }));
}

const titled = (mode) => MODES[mode?.const] ?? mode?.description?.replace(/\.$/, "") ?? "";

function fields(schema, description) {
  const required = new Set(schema.required ?? []);
  const names = new Set(Object.keys(schema.properties));
  return Object.entries(schema.properties).map(([name, raw]) => {
    const options = (raw.anyOf ?? [raw]).map((each) => resolved(each, description)).filter((each) => each.type !== "null");
    const flat = options.flatMap((each) => each.anyOf ?? [each]);
    return {
      name,
      title: (raw.title ?? name).replace(/\b(Bg|Url|Id)\b/g, (word) => ({ Bg: "background", Url: "URL", Id: "id" })[word]),
      help: raw.description ?? "",
      required: required.has(name),
      standard: raw.default ?? null,
      example: raw.examples?.[0],
      constant: raw.const,
      choices: flat.find((each) => each.enum)?.enum ?? null,
      counts: flat.some((each) => each.type === "integer"),
      kind: together(kind(name, flat), raw, names),
      least: flat.find((each) => each.minimum !== undefined)?.minimum,
      most: flat.find((each) => each.maximum !== undefined)?.maximum,
      longest: flat.find((each) => each.maxLength !== undefined)?.maxLength,
      items: flat.find((each) => each.type === "array")?.maxItems,
    };
  });
}

const IMAGES = /^(input_image(_\d+)?|image_prompt|control_image|preprocessed_image|image|person|garment)$/;

function kind(name, options) {
  if (IMAGES.test(name)) return "image";
  if (name === "images") return "images";
  if (name === "mask" || name === "keyframes" || name === "seed") return name;
  if (name === "aspect_ratio" && options.some((each) => each.enum)) return name;
  if (name === "finetune_id") return "tuned";
  if (name === "start_video") return "video";
  if (name === "prompt") return "prompt";
  const types = new Set(options.map((each) => each.type));
  if (options.some((each) => each.enum)) return "choice";
  if (types.has("boolean")) return "switch";
  if (types.has("integer") || types.has("number")) return options.some((each) => each.const === "auto") ? "text" : types.has("number") ? "number" : "integer";
  return "text";
}

// Some kinds show in the examples, or in the fields beside them.
function together(kind, { examples = [] }, names) {
  if (kind === "prompt" && examples.some((each) => each.includes('"bbox"'))) return "structured";
  if (kind === "image" && names.has("reference_offset_x")) return "outpainting";
  return kind;
}

function resolved(schema, description) {
  return schema.$ref ? description.components.schemas[schema.$ref.split("/").pop()] : schema;
}
