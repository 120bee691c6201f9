// The API reference: Swagger UI, with each operation as a program would call it.
import { get } from "./api.js";
import { programs } from "./code.js";
import { endpoints } from "./schema.js";

const holder = document.getElementById("main");
const description = await get(holder.dataset.url).catch(() => ({ paths: {} })); // Swagger UI says what is wrong
const generating = new Map((await endpoints(description)).map((endpoint) => [endpoint.path, endpoint]));

// Of an endpoint that generates, in four languages, with what it needs; of others as curl.
function samples(path, method) {
  const endpoint = generating.get(path);
  if (!endpoint) return { curl: curl(path, method, description.paths[path][method]) };
  const needed = endpoint.forms[0].fields.filter((field) => field.required || field.name === "prompt");
  return programs(endpoint.name, Object.fromEntries(needed.map((field) => [field.name, field.constant ?? field.example])));
}

// Values that the caller fills in are variables: `$TASK_ID`.
function curl(path, method, { parameters = [], requestBody, security = [] }) {
  const variable = (name) => `$${name.toUpperCase()}`;
  const query = parameters.filter((each) => each.in === "query" && each.required).map(({ name }) => `${name}=${variable(name)}`).join("&");
  const url = location.origin + path.replace(/\{(\w+)\}/g, (_, name) => variable(name)) + (query && `?${query}`);
  return [`curl -X ${method.toUpperCase()} "${url}"`, security.length && '-H "x-key: $GEN_KEY"',
    requestBody && (requestBody.content["application/json"] ? "--json @body.json" : "--data-binary @file")].filter(Boolean).join(" ");
}

const CodeSamples = ({ React: { createElement: h, useState } }) => {
  function Samples({ path, method }) {
    const [language, select] = useState("curl");
    const texts = samples(path, method);
    return h("div", { className: "samples" },
      Object.keys(texts).map((name) => h("button", { key: name, type: "button", className: "btn", "aria-pressed": String(name === language), onClick: () => select(name) }, name)),
      h("pre", { tabIndex: 0 }, texts[language]));
  }
  const wrap = (Original) => (properties) => h("div", null, h(Samples, { path: properties.pathMethod[0], method: properties.pathMethod[1] }), h(Original, properties));
  return { wrapComponents: { parameters: wrap } };
};

window.SwaggerUIBundle({ domNode: holder, url: holder.dataset.url, deepLinking: true, docExpansion: "none", defaultModelsExpandDepth: 0, plugins: [CodeSamples] });
