// The same request as a program would send it.
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

export function programs(endpoint, body) {
  const json = JSON.stringify(shortened(body), null, 2);
  const url = `${location.origin}/v1/${endpoint}`;
  const server = location.origin === "http://localhost:8000" ? "" : ` --base-url ${location.origin}`;
  const fields = Object.entries(shortened(body));
  const argument = ([name, value]) => (value === FILE ? `${name}=@FILE` : typeof value === "string" ? `${name}=${quoted(value)}` : `${name}:=${quoted(JSON.stringify(value))}`);
  return {
    curl: `answer=$(curl ${url} -H "x-key: $GEN_KEY" --json ${quoted(json)})
curl "$(jq -r .polling_url <<< "$answer")&wait=60"`,
    Python: `import os
from gen_serve_client import Client

with Client(${JSON.stringify(location.origin)}, os.environ["GEN_KEY"]) as client:
    result = client.generate(
        ${JSON.stringify(endpoint)},
${fields.map(([name, value]) => `        ${name}=${python(value, "        ")},\n`).join("")}    )
    result.save("${body.mode ? "video.mp4" : `image.${body.output_format ?? "jpeg"}`}")`,
    TypeScript: `const headers = {"x-key": process.env.GEN_KEY ?? "", "content-type": "application/json"};
const body = ${json};
const task = await (await fetch(${JSON.stringify(url)}, {method: "POST", headers, body: JSON.stringify(body)})).json();
let result;
do result = await (await fetch(task.polling_url + "&wait=60")).json();
while (["Pending", "Reasoning", "Generating"].includes(result.status));
if (result.status !== "Ready") throw new Error(JSON.stringify(result.details));
console.log(result.result.sample);`,
    CLI: ["gen-serve generate", endpoint, ...fields.map(argument)].join(" ") + server,
  };
}

const LONGEST = 200;
const FILE = "<base64 of the file>";

function shortened(value) {
  if (typeof value === "string" && value.startsWith("data:") && value.length > LONGEST) return FILE;
  if (Array.isArray(value)) return value.map(shortened);
  if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, shortened(each)]));
  return value;
}

// A literal, as deep as `within`.
function python(value, within = "") {
  const deeper = `${within}  `;
  const lines = (open, items, close) => (items.length ? `${open}\n${items.map((item) => deeper + item).join(",\n")}\n${within}${close}` : open + close);
  if (Array.isArray(value)) return lines("[", value.map((each) => python(each, deeper)), "]");
  if (value && typeof value === "object") return lines("{", Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${python(each, deeper)}`), "}");
  if (typeof value === "boolean") return value ? "True" : "False";
  return value === null ? "None" : JSON.stringify(value);
}
