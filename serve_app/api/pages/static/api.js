// The HTTP client of the service. The browser sends the session's cookie along.

// `fields` maps the names of invalid fields to messages.
export class ServiceError extends Error {
  constructor(status, detail, retryAfterS = 0) {
    const issues = Array.isArray(detail) ? detail : [];
    super(issues.map(({ msg }) => msg).join("; ") || String(detail || "The service sent no answer"));
    this.status = status;
    this.retryAfterS = retryAfterS;
    this.fields = Object.fromEntries(issues.map(({ loc, msg }) => [loc.find((part) => part !== "body"), msg]));
  }
}

async function call(method, path, body, { headers, ...options } = {}) {
  const request = { method, headers: { accept: "application/json", ...headers }, credentials: "same-origin", ...options };
  if (body !== undefined) {
    request.headers["content-type"] = "application/json";
    request.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(path, request);
  } catch {
    throw new ServiceError(0, "The service can't be reached");
  }
  if (response.status === 204) return null;
  const answer = await response.json().catch(() => ({}));
  if (response.ok) return answer;
  throw new ServiceError(response.status, answer.detail, Number(response.headers.get("retry-after")) || 0);
}

export const get = (path, options) => call("GET", path, undefined, options);
export const post = (path, body, options) => call("POST", path, body, options);
export const put = (path, body) => call("PUT", path, body);
export const patch = (path, body) => call("PATCH", path, body);
export const remove = (path) => call("DELETE", path);

export const taskPath = (id) => `/v1/tasks/${encodeURIComponent(id)}`;
export const getResult = (id, options) => get(`/v1/get_result?id=${encodeURIComponent(id)}`, options);
