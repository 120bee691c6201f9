// What the browser remembers: the theme, requests that can be repeated, and the fragment of an address during sign-in.

const PREFIX = "request:";
const DRAFT = "draft";
const RECENT = "recent";
const FRAGMENT = "fragment";
const SECRET_FIELDS = ["webhook_secret"];
const MAX_REQUEST_CHARS = 1_000_000;
const MAX_RECENT = 10;

class BrowserStore {
  saveTheme(theme) {
    localStorage.setItem("theme", theme);
  }

  saveFragment() {
    if (location.hash) sessionStorage.setItem(FRAGMENT, location.hash);
  }

  // The part of the address behind the #, which may be from before the sign-in. It never goes over the network.
  takeFragment() {
    const fragment = location.hash || (sessionStorage.getItem(FRAGMENT) ?? "");
    sessionStorage.removeItem(FRAGMENT);
    return fragment.slice(1);
  }

  // {endpoint, body, missing}: `missing` names fields that were sent but are not stored.
  request(id) {
    return JSON.parse(localStorage.getItem(PREFIX + id) ?? sessionStorage.getItem(PREFIX + id));
  }

  saveRequest(id, endpoint, body) {
    storableBodies(body).some(({ stored, missing }) => {
      const request = { endpoint, body: stored, missing, at: Date.now() };
      if (JSON.stringify(request).length > MAX_REQUEST_CHARS) return false;
      while (!save(localStorage, id, request)) if (!deleteOldestRequest()) return false;
      return true;
    });
    save(sessionStorage, RECENT, [id, ...this.recentIds].slice(0, MAX_RECENT));
  }

  // Ids of this tab's last tasks, newest first.
  get recentIds() {
    return this.request(RECENT) ?? [];
  }

  // The unsent request of this tab.
  get draft() {
    return this.request(DRAFT);
  }

  saveDraft(endpoint, body) {
    storableBodies(body).some(({ stored }) => save(sessionStorage, DRAFT, { endpoint, body: stored }));
  }

  forgetRequests() {
    for (const storage of [localStorage, sessionStorage]) requestKeys(storage).forEach((key) => storage.removeItem(key));
  }
}

const requestKeys = (storage) => Object.keys(storage).filter((key) => key.startsWith(PREFIX));

// Returns the body without secrets, then also without files, which may exceed the browser's quota.
function storableBodies(body) {
  const files = Object.keys(body).filter((name) => JSON.stringify(body[name]).includes('"data:'));
  return [SECRET_FIELDS, [...SECRET_FIELDS, ...files]].map((excluded) => ({
    stored: Object.fromEntries(Object.entries(body).filter(([name]) => !excluded.includes(name))),
    missing: excluded.filter((name) => name in body),
  }));
}

// Returns false if the value exceeds the quota.
function save(storage, name, value) {
  try {
    storage.setItem(PREFIX + name, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

function deleteOldestRequest() {
  const savedAt = (key) => JSON.parse(localStorage.getItem(key)).at;
  const [oldest] = requestKeys(localStorage).sort((a, b) => savedAt(a) - savedAt(b));
  if (oldest) localStorage.removeItem(oldest);
  return Boolean(oldest);
}

export const browserStore = new BrowserStore();
