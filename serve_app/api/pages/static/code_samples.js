// A request as code: with curl, in Python and TypeScript, and with the CLI.

const MAX_DATA_URL_CHARS = 200;
const FILE = "<base64 of the file>";
const DEFAULT_CLI_ORIGIN = "http://localhost:8000";

// Returns the code by language.
export function codeSamples(endpoint, body) {
  const shortBody = shortenFiles(body);
  const json = JSON.stringify(shortBody, null, 2);
  const url = `${location.origin}/v1/${endpoint}`;
  const fields = Object.entries(shortBody);
  const fileName = body.mode ? "video.mp4" : `image.${body.output_format ?? "jpeg"}`;
  return {
    curl: `answer=$(curl ${url} -H "x-key: $GEN_KEY" --json ${shellQuote(json)})
curl "$(jq -r .polling_url <<< "$answer")&wait=60"`,
    Python: `import os
from gen_serve_client import Client

with Client(${JSON.stringify(location.origin)}, os.environ["GEN_KEY"]) as client:
    result = client.generate(
        ${JSON.stringify(endpoint)},
${fields.map(([name, value]) => `        ${name}=${pythonLiteral(value, "        ")},\n`).join("")}    )
    result.save("${fileName}")`,
    TypeScript: `const headers = {"x-key": process.env.GEN_KEY ?? "", "content-type": "application/json"};
const body = ${json};
const task = await (await fetch(${JSON.stringify(url)}, {method: "POST", headers, body: JSON.stringify(body)})).json();
let result;
do result = await (await fetch(task.polling_url + "&wait=60")).json();
while (["Pending", "Reasoning", "Generating"].includes(result.status));
if (result.status !== "Ready") throw new Error(JSON.stringify(result.details));
console.log(result.result.sample);`,
    CLI: ["gen-serve generate", endpoint, ...fields.map(cliArgument)].join(" ")
      + (location.origin === DEFAULT_CLI_ORIGIN ? "" : ` --base-url ${location.origin}`),
  };
}

function shortenFiles(value) {
  if (typeof value === "string" && value.startsWith("data:") && value.length > MAX_DATA_URL_CHARS) return FILE;
  if (Array.isArray(value)) return value.map(shortenFiles);
  if (!isObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, shortenFiles(each)]));
}

const isObject = (value) => value !== null && typeof value === "object";
const shellQuote = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function cliArgument([name, value]) {
  if (value === FILE) return `${name}=@FILE`;
  return typeof value === "string" ? `${name}=${shellQuote(value)}` : `${name}:=${shellQuote(JSON.stringify(value))}`;
}

function pythonLiteral(value, indent) {
  const deeper = `${indent}  `;
  const block = (open, items, close) =>
    items.length ? `${open}\n${items.map((item) => deeper + item).join(",\n")}\n${indent}${close}` : open + close;
  if (Array.isArray(value)) return block("[", value.map((each) => pythonLiteral(each, deeper)), "]");
  if (isObject(value)) {
    return block("{", Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${pythonLiteral(each, deeper)}`), "}");
  }
  if (typeof value === "boolean") return value ? "True" : "False";
  return value === null ? "None" : JSON.stringify(value);
}
