// The service, as any client sees it; the browser sends the session's cookie along.

// What the service says is wrong: `fields` has messages by field names.
export class Problem extends Error {
  constructor(status, detail, retryAfter) {
    const listed = Array.isArray(detail);
    super(listed ? detail.map((each) => each.msg).join("; ") : String(detail || "No answer"));
    this.status = status;
    this.retryAfter = retryAfter;
    this.fields = listed ? Object.fromEntries(detail.map((each) => [each.loc.filter((p) => p !== "body")[0], each.msg])) : {};
  }
}

// `more` are further options of `fetch`.
export async function call(method, path, body, headers = {}, more = {}) {
  const options = { method, headers: { accept: "application/json", ...headers }, credentials: "same-origin", ...more };
  if (body instanceof Blob) options.body = body;
  else if (body !== undefined) {
    options.headers["content-type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Problem(0, "The service can't be reached");
  }
  if (response.status === 204) return null;
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Problem(response.status, answer.detail, Number(response.headers.get("retry-after")) || 0);
  return answer;
}

export const get = (path, more) => call("GET", path, undefined, {}, more);
export const post = (path, body, headers) => call("POST", path, body, headers);
export const put = (path, body) => call("PUT", path, body);
export const remove = (path) => call("DELETE", path);
