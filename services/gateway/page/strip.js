// The rhythm of an answer: a column for each step, its tokens stacked, rejected drafts hollow on top.
import { counted } from "./words.js";

const SPACE = "http://www.w3.org/2000/svg";
const KINDS = ["accepted", "own", "plain", "rejected"];
const CELL = 5;
const ROOM = 9; // cells in height; taller steps squeeze the scale
const MIN_COLUMNS = 72;
const TIMED_WIDTH = 1000;
const TIMED_COLUMN = 8; // less where the steps are dense

export class Strip {
  /** `isTimed`: columns stand at their time instead of side by side. */
  constructor(label, isTimed = false) {
    this.label = label;
    this.isTimed = isTimed;
    this.steps = [];
    this.seconds = 0; // shown, when timed
    this.height = ROOM;
    this.isDue = false;
    this.element = document.createElementNS(SPACE, "svg");
    this.element.setAttribute("class", "strip");
    this.element.setAttribute("role", "img");
    this.element.setAttribute("preserveAspectRatio", "none");
    this.paths = Object.fromEntries(KINDS.map((kind) => [kind, this.#path(kind)]));
    this.#draw();
  }

  append(step) {
    this.steps.push(step);
    this.height = Math.max(this.height, step.tokens.length + step.rejected);
    this.seconds = Math.max(this.seconds, this.#at(step));
    this.#later();
  }

  /** Makes room for so many seconds, so that two strips can share one scale. */
  stretch(seconds) {
    if (!this.isTimed || seconds <= this.seconds) return;
    this.seconds = seconds;
    this.#later();
  }

  /** Draws once a frame at most. */
  #later() {
    if (this.isDue) return;
    this.isDue = true;
    requestAnimationFrame(() => {
      this.isDue = false;
      this.#draw();
    });
  }

  #at(step) {
    return step.time - this.steps[0].time;
  }

  #draw() {
    const columns = Math.max(this.steps.length, MIN_COLUMNS);
    const width = this.isTimed ? TIMED_WIDTH : columns * CELL;
    const column = this.isTimed ? Math.min(TIMED_COLUMN, (0.8 * width) / columns) : CELL - 1;
    const tall = this.height * CELL;
    this.element.setAttribute("viewBox", `0 0 ${width} ${tall}`);
    const lines = { accepted: "", own: "", plain: "", rejected: "" };
    for (const step of this.steps) {
      const x = this.isTimed ? (this.#at(step) / (this.seconds || 1)) * (width - column) : step.index * CELL;
      let level = 0;
      for (const kind of KINDS) {
        if (!step[kind]) continue;
        for (const end = level + step[kind]; level < end; level += 1) {
          const top = tall - (level + 1) * CELL;
          lines[kind] += `M${x.toFixed(2)} ${top + 0.5}h${column.toFixed(2)}v${CELL - 1}h${-column.toFixed(2)}z`;
        }
      }
    }
    for (const kind of KINDS) this.paths[kind].setAttribute("d", lines[kind]);
    this.element.setAttribute("aria-label", `${this.label}: ${counted(this.steps.length, "step")}, the tallest of ${this.#tallest()}`);
  }

  #tallest() {
    return counted(Math.max(0, ...this.steps.map((step) => step.tokens.length)), "token");
  }

  #path(kind) {
    const path = document.createElementNS(SPACE, "path");
    path.setAttribute("class", `ink-${kind === "own" ? "bonus" : kind}`);
    this.element.append(path);
    return path;
  }
}
