// A task of the playground: its progress, its previews, its result and the actions on it.
import { remove, taskPath } from "./api.js";
import { announce, button, downloadResult, el, formatCredits, fromTemplate, setText, zoomable } from "./dom.js";
import { promptWords } from "./layout.js";
import { STATUS_LABELS, TaskFollower, describeProgress } from "./task_follower.js";
import { ShareControl, failureReason, player, retentionNote } from "./task_view.js";

const CANCELLED = "Cancelled by the client"; // the service's own text

export class TaskCard {
  // `request` is {id, endpoint, body, cost}. `handlers` is {repeat(body), edit(id), reuseSeed(seed), mayRevoke}.
  constructor(request, handlers) {
    Object.assign(this, fromTemplate("task-card"), { request, handlers });
    const { id, endpoint, body, cost } = request;
    this.prompt.textContent = promptWords(body.prompt);
    this.title = this.element.ariaLabel = this.prompt.textContent || endpoint;
    this.price = el("span", {}, cost == null ? "" : ` · ${formatCredits(cost)}`);
    this.facts.append(endpoint, this.price);
    // Until there is an image, which has a ratio of its own.
    const ratio = body.width && body.height ? `${body.width} / ${body.height}` : body.aspect_ratio?.replace(":", " / ");
    this.stage.style.aspectRatio = ratio ?? "";
    this.cancel.onclick = () => remove(taskPath(id)).catch(() => {});
    new TaskFollower(id, (task) => this.#show(task), (isConnected) => {
      if (!isConnected) setText(this.status, "The service can't be reached; trying again");
    });
  }

  #show(task) {
    const label = STATUS_LABELS[task.status] ?? task.status;
    const percent = task.status === "Generating" && task.progress !== null ? ` ${Math.round(100 * task.progress)} %` : "";
    this.status.textContent = describeProgress(label + percent, task.details);
    if (task.progress === null) this.bar.removeAttribute("value");
    else this.bar.value = task.progress;
    if (task.preview) this.#setStage(el("img", { src: task.preview.sample, alt: "Preview" }));
    if (task.status === "Ready") this.#showResult(task);
    else if (label === "Blocked" || label === "Failed") this.#showFailure(task);
  }

  #setStage(element) {
    this.stage.style.aspectRatio = "";
    this.stage.replaceChildren(element);
  }

  #endProgress(price) {
    this.bar.remove();
    this.cancel.remove();
    this.price.textContent = price;
  }

  #showResult({ cost, result, details }) {
    const { id, body } = this.request;
    const { repeat, edit, reuseSeed, mayRevoke } = this.handlers;
    this.#endProgress(cost === undefined ? "" : ` · ${formatCredits(cost)}`);
    const url = result.sample;
    this.#setStage(player(url) ?? this.#resultImage(url));
    for (const further of result.samples?.slice(1) ?? []) this.stage.append(player(further) ?? this.#resultImage(further));
    this.notes.append(...(details?.warnings ?? []).map((warning) => el("p", { class: "notice" }, warning)));
    const share = new ShareControl(id, mayRevoke);
    const download = (event) => {
      event.preventDefault();
      downloadResult(id).catch(() => el("a", { href: url, download: "" }).click());
    };
    this.actions.append(
      el("a", { class: "button", href: url, download: "", onclick: download }, "Download"),
      button("Run again", () => repeat({ ...body, seed: undefined })),
      player(url) ? "" : button("Edit this", () => edit(id)),
      share.button,
      button(`Seed ${result.seed}`, () => reuseSeed(result.seed), { title: "Use this seed again" }),
      el("a", { href: `/t/${id}` }, "Details"),
      retentionNote(id));
    this.actions.after(share.status);
    announce(`Done: ${this.title}`);
  }

  #resultImage(url) {
    const { body } = this.request;
    const before = body.images?.[0] ?? body.input_image ?? body.image;
    const image = el("img", { src: url, alt: `Result: ${this.title}` });
    return before ? comparison(before, image) : zoomable(image);
  }

  #showFailure({ status, details }) {
    this.#endProgress(" · not charged");
    if (details?.error === CANCELLED) this.status.textContent = "Cancelled";
    else this.notes.append(el("p", { class: "bad" }, failureReason(status, details)));
    this.actions.append(button("Run again", () => this.handlers.repeat(this.request.body)));
    announce(`${this.status.textContent}: ${this.title}`);
  }
}

const RATIO_TOLERANCE = 0.02; // for rounded sides

// Shows the result over the input image, with a slider between them. If their shapes differ, it shows only the result.
function comparison(inputUrl, result) {
  const before = el("img", { src: inputUrl, alt: "Before" });
  const edge = el("div", { class: "divide" });
  const move = () => {
    result.style.clipPath = `inset(0 0 0 ${slider.value}%)`;
    edge.style.left = `${slider.value}%`;
  };
  const label = "From the result to the image before";
  const slider = el("input", { type: "range", min: 0, max: 100, value: 50, "aria-label": label, oninput: move });
  const element = el("div", { class: "compare" }, result);
  Promise.all([before.decode(), result.decode()]).catch(() => {}).then(() => {
    const ratio = (image) => image.naturalWidth / image.naturalHeight;
    if (Math.abs(ratio(result) / ratio(before) - 1) >= RATIO_TOLERANCE) return;
    result.classList.add("over");
    move();
    element.replaceChildren(el("div", { class: "pair" }, before, result, edge, slider),
      el("div", { class: "row apart faint" }, el("span", {}, "Before"), el("span", {}, "After")));
  });
  return element;
}
