// A task until its end: told by events where they come, asked for where they don't.
import { get } from "./api.js";

const PATIENCE_MS = 15_000; // without an event, after which it is asked once more
const LONGEST_PAUSE_MS = 20_000;

// `told` gets every new body; `lost` whether the service is out of reach. Returns a function that stops it.
export function follow(id, told, lost = () => {}) {
  let over = false;
  let source = null;
  let timer = 0;
  let pause = 500;

  const finish = () => {
    over = true;
    source?.close();
    clearTimeout(timer);
  };
  const news = (body) => {
    if (over) return;
    lost(false);
    pause = 500;
    told(body);
    if (isEnd(body.status)) finish();
    else wait(PATIENCE_MS);
  };
  const ask = async () => {
    if (over) return;
    try {
      news(await get(`/v1/get_result?id=${encodeURIComponent(id)}`));
      if (!over && source?.readyState !== EventSource.OPEN) listen();
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
    source?.close();
    source = new EventSource(`/v1/tasks/${encodeURIComponent(id)}/events`);
    for (const name of ["status", "end"]) source.addEventListener(name, (event) => news(JSON.parse(event.data)));
    source.addEventListener("error", () => wait(pause));
  };
  listen();
  wait(PATIENCE_MS);
  return finish;
}

const ENDS = new Set(["Ready", "Error", "Request Moderated", "Content Moderated", "Task not found"]);
export const isEnd = (status) => ENDS.has(status);
