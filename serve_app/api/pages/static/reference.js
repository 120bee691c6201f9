// The API reference: Swagger UI, with code samples for each operation.
import { get } from "./api.js";
import { codeSamples } from "./code_samples.js";
import { listEndpoints } from "./schema.js";

// A Swagger UI plugin that shows code above the parameters of an operation.
class CodeSamplesPlugin {
  constructor(openapi, endpoints) {
    this.openapi = openapi;
    this.endpoints = new Map(endpoints.map((endpoint) => [endpoint.path, endpoint]));
  }

  // Endpoints that generate have samples in four languages with their required fields; others have curl.
  #samples(path, method) {
    const endpoint = this.endpoints.get(path);
    if (!endpoint) return { curl: curlCommand(path, method, this.openapi.paths[path][method]) };
    const fields = endpoint.forms[0].fields.filter(({ name, required }) => required || name === "prompt");
    return codeSamples(endpoint.name, Object.fromEntries(fields.map(({ name, constant, example }) => [name, constant ?? example])));
  }

  create({ React: { createElement, useState } }) {
    const Samples = ({ path, method }) => {
      const [language, setLanguage] = useState("curl");
      const samples = this.#samples(path, method);
      const buttons = Object.keys(samples).map((name) => createElement("button", { key: name, type: "button",
        className: "btn", "aria-pressed": String(name === language), onClick: () => setLanguage(name) }, name));
      return createElement("div", { className: "samples" }, buttons, createElement("pre", { tabIndex: 0 }, samples[language]));
    };
    const parameters = (Original) => (properties) => {
      const [path, method] = properties.pathMethod;
      return createElement("div", null, createElement(Samples, { path, method }), createElement(Original, properties));
    };
    return { wrapComponents: { parameters } };
  }
}

// Values that the caller fills in are shell variables, such as $TASK_ID.
function curlCommand(path, method, { parameters = [], requestBody, security = [] }) {
  const variable = (name) => `$${name.toUpperCase()}`;
  const required = parameters.filter((parameter) => parameter.in === "query" && parameter.required);
  const query = required.map(({ name }) => `${name}=${variable(name)}`).join("&");
  const url = location.origin + path.replace(/\{(\w+)\}/g, (_, name) => variable(name)) + (query && `?${query}`);
  const key = security.length > 0 && '-H "x-key: $GEN_KEY"';
  const body = requestBody && (requestBody.content["application/json"] ? "--json @body.json" : "--data-binary @file");
  return [`curl -X ${method.toUpperCase()} "${url}"`, key, body].filter(Boolean).join(" ");
}

const main = document.getElementById("main");
const { url } = main.dataset;
const openapi = await get(url).catch(() => ({ paths: {} })); // Swagger UI shows the error
const plugin = new CodeSamplesPlugin(openapi, await listEndpoints(openapi));
const plugins = [(system) => plugin.create(system)];
window.SwaggerUIBundle({ domNode: main, url, deepLinking: true, docExpansion: "none", defaultModelsExpandDepth: 0, plugins });
