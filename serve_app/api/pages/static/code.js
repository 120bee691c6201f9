// The same request as a program would send it.
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

export function programs(endpoint, body) {
  const json = JSON.stringify(shortened(body), null, 2);
  const url = `${location.origin}/v1/${endpoint}`;
  return {
    curl: `curl ${url} -H "x-key: $KEY" --json ${quoted(json)}`,
    Python: `import os, httpx2

headers = {"x-key": os.environ["KEY"]}
task = httpx2.post(${JSON.stringify(url)}, headers=headers, json=${python(shortened(body))}).json()
result = httpx2.get(task["polling_url"], params={"wait": 60}, timeout=70).json()
print(result["result"]["sample"])`,
    JavaScript: `const headers = {"x-key": process.env.KEY, "content-type": "application/json"};
const body = ${json};
const task = await (await fetch(${JSON.stringify(url)}, {method: "POST", headers, body: JSON.stringify(body)})).json();
const result = await (await fetch(task.polling_url + "&wait=60")).json();
console.log(result.result.sample);`,
  };
}

const LONGEST = 200;

function shortened(value) {
  if (typeof value === "string" && value.startsWith("data:") && value.length > LONGEST) return "<base64 of the file>";
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
