// The page of one task, for as long as it is kept.
import { el } from "./dom.js";
import { follow, isEnd } from "./follow.js";
import { open } from "./shell.js";
import { taskView } from "./task_view.js";

const session = await open();
const main = document.getElementById("main");
const id = decodeURIComponent(location.pathname.split("/")[2]);

async function show() {
  try {
    const { task, element, title } = await taskView(id, session, () => location.assign("/gallery"));
    document.title = `${title} · gen-serve`;
    main.replaceChildren(el("h1", {}, task.endpoint), element);
    if (!isEnd(task.status)) follow(id, ({ status }) => isEnd(status) && show());
  } catch (refusal) {
    main.replaceChildren(el("h1", {}, "Task"), el("p", { class: "notice", role: "status" }, refusal.message));
  }
}

await show();
