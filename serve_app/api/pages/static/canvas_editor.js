// The base of the editors in which people place things: masks, boxes, the frame of outpainting, keyframes.

const DIRECTIONS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export const clamp = (value, min, max) => Math.min(Math.max(value, min), max);

// Fires the event that typing fires, so that the form reads the field again.
export const notifyChange = (element) => element.dispatchEvent(new Event("input", { bubbles: true }));

// `surface` is the element on which things lie. `view` is the part of the plane that it shows, in the editor's units.
export class CanvasEditor {
  constructor(surface, view = { x: 0, y: 0, width: 1, height: 1 }) {
    this.surface = surface;
    this.view = view;
  }

  notify() {
    notifyChange(this.surface);
  }

  // Positions an element of the surface.
  place(element, x, y, width, height) {
    const { view } = this;
    const percent = (length, side) => `${(100 * length) / side}%`;
    element.style.left = percent(x - view.x, view.width);
    element.style.top = percent(y - view.y, view.height);
    element.style.width = percent(width, view.width);
    element.style.height = percent(height, view.height);
  }

  // Returns the point of a pointer event in the units of the view.
  pointAt({ clientX, clientY }) {
    const box = this.surface.getBoundingClientRect();
    const { x, y, width, height } = this.view;
    return [x + ((clientX - box.left) / box.width) * width, y + ((clientY - box.top) / box.height) * height];
  }

  // `start(event)` returns a function that gets the distance from the point of the press; nothing ignores the press.
  onDrag(element, start, end = () => {}) {
    element.addEventListener("pointerdown", (event) => {
      const move = event.button === 0 && start(event);
      if (!move) return;
      event.preventDefault(); // no selection of text, no drag of an image
      event.stopPropagation();
      element.setPointerCapture(event.pointerId);
      const scaleX = this.view.width / this.surface.clientWidth;
      const scaleY = this.view.height / this.surface.clientHeight;
      const moveBy = (next) => move((next.clientX - event.clientX) * scaleX, (next.clientY - event.clientY) * scaleY);
      element.addEventListener("pointermove", moveBy);
      element.addEventListener("lostpointercapture", () => {
        element.removeEventListener("pointermove", moveBy);
        end();
      }, { once: true });
    });
  }

  // `move(x, y, event)` gets the direction of an arrow key. `actions` maps other keys to functions.
  onKeys(element, move, actions = {}) {
    element.addEventListener("keydown", (event) => {
      if (event.target !== element) return;
      if (DIRECTIONS[event.key]) move(...DIRECTIONS[event.key], event);
      else if (actions[event.key]) actions[event.key]();
      else return;
      event.preventDefault();
    });
  }
}
