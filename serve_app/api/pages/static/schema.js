// The endpoints and their fields, read from the service's OpenAPI document.
import { get } from "./api.js";

const TUNED_SUFFIX = "-finetuned";
const MODE_TITLES = { v2v: "Extend a video", draft_enhance: "Upscale a draft" }; // other modes' descriptions are titles
const NAME_WORDS = { vto: "Try-on", finetuned: "tuned" };
const TITLE_WORDS = { Bg: "background", Url: "URL", Id: "id" };
const IMAGE_FIELDS = /^(input_image(_\d+)?|image_prompt|control_image|preprocessed_image|image|person|garment)$/;
const TYPES_BY_NAME = { finetune_id: "tuned", start_video: "video" };
const NAMES_WITH_TYPE = ["images", "mask", "keyframes", "seed", "prompt"];

export const GROUPS = ["Generate", "Edit", "Inpaint", "Extend", "Video", "Tools"];

// Returns [{path, name, title, group, summary, forms: [{title, fields}]}]. A video endpoint has a form for each mode.
export async function listEndpoints(openapi) {
  return new Schema(openapi ?? (await get("/openapi.json"))).endpoints();
}

class Schema {
  constructor(openapi) {
    this.openapi = openapi;
  }

  endpoints() {
    const endpoints = Object.entries(this.openapi.paths).map(([path, { post }]) => this.#endpoint(path, post)).filter(Boolean);
    const isTuned = ({ name }) => name.endsWith(TUNED_SUFFIX);
    return endpoints.sort((a, b) => isTuned(a) - isTuned(b));
  }

  #endpoint(path, operation) {
    const body = operation?.requestBody?.content?.["application/json"]?.schema;
    if (!body || operation.deprecated || !path.startsWith("/v1/gen-")) return null;
    const name = path.slice("/v1/".length);
    const schema = this.#resolve(body);
    const forms = (schema.oneOf ?? [schema]).map((each) => this.#form(this.#resolve(each), name));
    const { summary } = operation;
    return { path, name, title: endpointTitle(name), group: groupOf(name, summary, forms), summary, forms };
  }

  #form({ properties, required = [] }, endpoint) {
    const { mode } = properties;
    const title = MODE_TITLES[mode?.const] ?? mode?.description?.replace(/\.$/, "") ?? "";
    const fields = Object.entries(properties).map(([name, property]) => ({
      ...this.#field(name, property, "reference_offset_x" in properties),
      required: required.includes(name),
      base: endpoint.replace(TUNED_SUFFIX, ""),
    }));
    return { title, fields };
  }

  #field(name, property, isOutpainting) {
    const alternatives = (property.anyOf ?? [property]).map((each) => this.#resolve(each)).filter((each) => each.type !== "null");
    const options = alternatives.flatMap((each) => each.anyOf ?? [each]);
    const limit = (key) => options.find((each) => each[key] !== undefined)?.[key];
    return {
      name,
      title: (property.title ?? name).replace(/\b(Bg|Url|Id)\b/g, (word) => TITLE_WORDS[word]),
      help: property.description ?? "",
      defaultValue: property.default ?? null,
      example: property.examples?.[0],
      constant: property.const,
      choices: limit("enum") ?? null,
      acceptsInteger: options.some((each) => each.type === "integer"),
      type: widgetType(name, options, property, isOutpainting),
      min: limit("minimum"),
      max: limit("maximum"),
      maxLength: limit("maxLength"),
      maxItems: limit("maxItems"),
    };
  }

  #resolve(schema) {
    return schema.$ref ? this.openapi.components.schemas[schema.$ref.split("/").pop()] : schema;
  }
}

// The type selects the widget of a field.
function widgetType(name, options, { examples = [] }, isOutpainting) {
  const types = new Set(options.map((each) => each.type));
  const isEnum = options.some((each) => each.enum);
  if (IMAGE_FIELDS.test(name)) return isOutpainting ? "outpainting" : "image";
  if (name === "prompt" && examples.some((each) => each.includes('"bbox"'))) return "structured";
  if (NAMES_WITH_TYPE.includes(name)) return name;
  if (TYPES_BY_NAME[name]) return TYPES_BY_NAME[name];
  if (isEnum) return name === "aspect_ratio" ? name : "choice";
  if (types.has("boolean")) return "switch";
  if (options.some((each) => each.const === "auto")) return "text";
  return ["number", "integer"].find((type) => types.has(type)) ?? "text";
}

// "gen-tools/vto-v2" becomes "Try-on v2".
function endpointTitle(name) {
  const capitalize = (word) => word[0].toUpperCase() + word.slice(1);
  const words = name.replace(/^gen-(tools\/)?/, "").split("-");
  return words.map((word) => NAME_WORDS[word] ?? (/^v\d/.test(word) ? word : capitalize(word))).join(" ");
}

function groupOf(name, summary, forms) {
  const hasField = (field) => forms.some(({ fields }) => fields.some((each) => each.name === field));
  if (hasField("duration")) return "Video";
  if (hasField("reference_offset_x")) return "Extend";
  if (hasField("mask")) return "Inpaint";
  if (name.startsWith("gen-tools/")) return "Tools";
  const needsImage = forms.every(({ fields }) => fields.some((each) => each.required && /image/.test(each.name)));
  return needsImage || summary.startsWith("Edit") ? "Edit" : "Generate";
}
