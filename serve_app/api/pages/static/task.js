// The page of one task.
import { el } from "./dom.js";
import { Session } from "./session.js";
import { TaskFollower, isFinal } from "./task_follower.js";
import { TaskView } from "./task_view.js";

class TaskPage {
  constructor(session, id) {
    this.session = session;
    this.id = id;
    this.main = document.getElementById("main");
  }

  async show() {
    try {
      const { task, element, title } = await TaskView.load(this.id, this.session, () => location.assign("/gallery"));
      document.title = `${title} · gen-serve`;
      this.main.replaceChildren(el("h1", {}, task.endpoint), element);
      if (!isFinal(task.status)) new TaskFollower(this.id, ({ status }) => isFinal(status) && this.show());
    } catch (error) {
      this.main.replaceChildren(el("h1", {}, "Task"), el("p", { class: "notice", role: "status" }, error.message));
    }
  }
}

await new TaskPage(await Session.open(), decodeURIComponent(location.pathname.split("/")[2])).show();
