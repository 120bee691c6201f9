// Things that are moved on a page: by a pointer that was pressed on them, and by arrow keys.

// `begin(event)` answers with what to do as the pointer moves, in pixels from where it was pressed; or with nothing.
export function drag(element, begin, end = () => {}) {
  element.addEventListener("pointerdown", (event) => {
    const move = event.button === 0 && begin(event);
    if (!move) return;
    // Neither text is selected on the way, nor an image dragged; nor is what lies below meant.
    event.preventDefault();
    event.stopPropagation();
    element.setPointerCapture(event.pointerId);
    const moved = (next) => move(next.clientX - event.clientX, next.clientY - event.clientY);
    element.addEventListener("pointermove", moved);
    element.addEventListener("lostpointercapture", () => {
      element.removeEventListener("pointermove", moved);
      end();
    }, { once: true });
  });
}

const DIRECTIONS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

// `act(x, y, event)` is told where an arrow key points; `removed` is called for Delete and Backspace.
export function keys(element, act, removed = null) {
  element.addEventListener("keydown", (event) => {
    if (event.target !== element) return;
    if (DIRECTIONS[event.key]) act(...DIRECTIONS[event.key], event);
    else if (removed && (event.key === "Delete" || event.key === "Backspace")) removed();
    else return;
    event.preventDefault();
  });
}

export const clamp = (value, least, most) => Math.min(Math.max(value, least), most);
// Says that a field has changed, as typing does.
export const changed = (element) => element.dispatchEvent(new Event("input", { bubbles: true }));
