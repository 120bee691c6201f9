// A task until its end: told by events where they come, asked for where they don't.
import { get } from "./api.js";

const PATIENCE_MS = 5_000; // without an event, after which it is asked once more: that time passes is no event
const EVERY_MS = 1000; // without a stream
const LONGEST_PAUSE_MS = 20_000;
const LONG_MS = 10_000; // that a stream lived which is worth another one
// Whoever has this lock has the one stream of the browser: over HTTP/1.1 it has six connections to a host, in all its
// windows, and everything else needs some. A window that is not seen gives it back.
const LOCK = "event stream";
let closeStream = () => {};
document.addEventListener("visibilitychange", () => document.hidden && closeStream());

// `onChange` gets every new body; `lost` whether the service is out of reach. Returns a function that stops it.
export function follow(id, onChange, lost = () => {}) {
  const taskId = encodeURIComponent(id);
  let over = false;
  let source = null;
  let timer = 0;
  let pause = 500; // after a question that had no answer
  let rest = EVERY_MS; // after a stream that ended
  let began = 0; // when the stream did
  let again = 0; // when the next one may
  let release = () => {};

  const close = () => {
    if (!source) return;
    source.close();
    source = null;
    release();
  };
  const finish = () => {
    over = true;
    close();
    clearTimeout(timer);
  };
  const news = (body) => {
    if (over) return;
    lost(false);
    pause = 500;
    onChange(body);
    if (isEnd(body.status)) finish();
    else wait(source ? PATIENCE_MS : EVERY_MS);
  };
  const ask = async () => {
    if (over) return;
    try {
      // Not from the browser's cache: an estimate changes no ETag.
      news(await get(`/v1/get_result?id=${taskId}`, { cache: "no-store" }));
      listen();
    } catch (problem) {
      if (problem.status === 404) return finish();
      lost(true);
      pause = Math.min(pause * 2, LONGEST_PAUSE_MS);
      wait(pause);
    }
  };
  const wait = (ms) => {
    clearTimeout(timer);
    timer = setTimeout(ask, ms);
  };
  const listen = () => {
    if (over || source || document.hidden || Date.now() < again) return;
    // Browsers have locks over HTTPS and on the service's own machine; elsewhere it is asked each second.
    navigator.locks?.request(LOCK, { ifAvailable: true }, (lock) => lock && !over && new Promise(stream));
  };
  const stream = (resolve) => {
    release = resolve;
    closeStream = close;
    began = Date.now();
    source = new EventSource(`/v1/tasks/${taskId}/events`);
    for (const name of ["status", "end"]) source.addEventListener(name, (event) => news(JSON.parse(event.data)));
    source.addEventListener("error", () => {
      close();
      rest = Date.now() - began > LONG_MS ? EVERY_MS : Math.min(rest * 2, LONGEST_PAUSE_MS);
      again = Date.now() + rest;
      wait(pause);
    });
  };
  listen();
  wait(EVERY_MS);
  return finish;
}

const ENDS = new Set(["Ready", "Error", "Request Moderated", "Content Moderated", "Task not found"]);
export const isEnd = (status) => ENDS.has(status);
