// What this browser has asked for, so that it can be asked for again: the service tells no more of a request than its
// prompt and its seed.

const PREFIX = "request:";
const LONGEST = 1_000_000; // characters of one; with larger images they are left out
const SECRETS = ["webhook_secret"];
const DRAFT = "draft"; // in place of an id
const SHOWN = "shown";
const MOST_SHOWN = 10;

export function keep(id, endpoint, body) {
  for (const { rest, missing } of keepable(body)) {
    if (stored(PREFIX + id, JSON.stringify({ endpoint, body: rest, missing, known: true, at: Date.now() }))) break;
  }
  show([id, ...shown()].slice(0, MOST_SHOWN));
}

// What is in the form, for as long as the window is open.
export function keepDraft(endpoint, body) {
  for (const { rest } of keepable(body)) {
    try {
      return sessionStorage.setItem(PREFIX + DRAFT, JSON.stringify({ endpoint, body: rest }));
    } catch {} // too large
  }
}

export const draft = () => kept(DRAFT);

// Ids of the last tasks of this window, the newest first.
export const shown = () => kept(SHOWN) ?? [];
const show = (ids) => sessionStorage.setItem(PREFIX + SHOWN, JSON.stringify(ids));

// Without what is secret, and then without files, which may be too large.
function keepable(body) {
  const names = Object.keys(body);
  const secrets = names.filter((name) => SECRETS.includes(name));
  const files = names.filter((name) => JSON.stringify(body[name]).includes('"data:'));
  return [secrets, [...secrets, ...files]].map((missing) => ({ missing, rest: Object.fromEntries(Object.entries(body).filter(([name]) => !missing.includes(name))) }));
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
