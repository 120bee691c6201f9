// What this browser has asked for, so that it can be asked for again: the service tells no more of a request than its
// prompt and its seed.

const PREFIX = "request:";
const LONGEST = 1_000_000; // characters of one; with larger pictures they are left out
const SECRETS = ["webhook_secret"];

export function keep(id, endpoint, body) {
  const names = Object.keys(body);
  const secrets = names.filter((name) => SECRETS.includes(name));
  const files = names.filter((name) => JSON.stringify(body[name]).includes('"data:'));
  for (const missing of [secrets, [...secrets, ...files]]) {
    const rest = Object.fromEntries(Object.entries(body).filter(([name]) => !missing.includes(name)));
    if (stored(PREFIX + id, JSON.stringify({ endpoint, body: rest, missing, known: true, at: Date.now() }))) return;
  }
}

// What is known of a request that this browser did not send, for as long as the window is open.
export function suggest(id, endpoint, body) {
  sessionStorage.setItem(PREFIX + id, JSON.stringify({ endpoint, body, missing: [], known: false }));
}

// {endpoint, body, missing, known}: `missing` names fields that were sent but are not kept.
export function kept(id) {
  return JSON.parse(localStorage.getItem(PREFIX + id) ?? sessionStorage.getItem(PREFIX + id));
}

export function forget() {
  for (const storage of [localStorage, sessionStorage]) all(storage).forEach((key) => storage.removeItem(key));
}

// The oldest ones make room.
function stored(key, text) {
  while (text.length <= LONGEST) {
    try {
      localStorage.setItem(key, text);
      return true;
    } catch {
      const [oldest] = all(localStorage).sort((a, b) => at(a) - at(b));
      if (!oldest) return false;
      localStorage.removeItem(oldest);
    }
  }
  return false;
}

const all = (storage) => Object.keys(storage).filter((key) => key.startsWith(PREFIX));
const at = (key) => JSON.parse(localStorage.getItem(key)).at;
