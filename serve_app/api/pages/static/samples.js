// A few images by a tuned model, to see what it does. They cost what they cost: so only when asked for.
import { post } from "./api.js";
import { el } from "./dom.js";
import { follow, isEnd } from "./follow.js";

const PROMPTS = ["a large yellow star on a black background", "a red circle on a white background", "a large pink heart on a light blue background"];

// A button; its images appear in `place`.
export function samples(endpoint, finetune_id, place) {
  const gallery = el("div", { class: "samples", role: "group", "aria-label": "Samples" });
  const button = el("button", { type: "button" }, "Samples");
  button.addEventListener("click", async () => {
    button.disabled = true;
    gallery.replaceChildren();
    place.replaceChildren(gallery);
    await Promise.all(PROMPTS.map((prompt) => draw(endpoint, { prompt, finetune_id }, gallery)));
    button.disabled = false;
  });
  return button;
}

async function draw(endpoint, body, gallery) {
  const place = el("figure", {}, el("progress", { "aria-label": body.prompt }));
  gallery.append(place);
  try {
    const { id } = await post(`/v1/${endpoint}`, body);
    follow(id, (task) => {
      if (task.status === "Ready") place.replaceChildren(el("img", { src: task.result.sample, alt: body.prompt }));
      else if (isEnd(task.status)) place.replaceChildren(el("p", { class: "bad" }, task.details?.error ?? task.status));
    }, () => {});
  } catch (problem) {
    place.replaceChildren(el("p", { class: "bad" }, problem.message));
  }
}
