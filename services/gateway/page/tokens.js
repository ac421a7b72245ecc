// The text of an answer, each token marked by where it came from and open to inspection.
import { make } from "./dom.js";
import { hideCard, showCard } from "./card.js";
import { counted } from "./words.js";

export class TokenText {
  constructor(label) {
    this.tokens = [];
    this.spans = [];
    this.current = -1;
    this.label = label;
    this.element = make("div", {
      class: "text",
      tabindex: "0",
      role: "group",
      "aria-label": label,
      onkeydown: (event) => this.#onKey(event),
      onpointerover: (event) => this.#onPointer(event),
      onpointerleave: () => this.#leave(),
      onblur: () => this.#leave(),
    });
  }

  append(step) {
    for (const token of step.tokens) {
      const rejected = token.rejected.map((draft) => make("del", { class: "r" }, draft.text.replaceAll("\n", "↵")));
      const kind = rejected.length ? `t ${token.origin} replaced` : `t ${token.origin}`;
      const span = make("span", { class: kind, "data-index": String(this.tokens.length) }, token.text);
      this.tokens.push(token);
      this.spans.push(span);
      this.element.append(...rejected, span);
    }
  }

  /** To be called at the end: who comes by keyboard learns what there is to walk through. */
  close() {
    const many = counted(this.tokens.length, "token");
    this.element.setAttribute("aria-label", `${this.label}, ${many}. Arrow keys walk through the tokens.`);
  }

  mark(index) {
    this.spans[index]?.classList.add("differs");
  }

  #onKey(event) {
    const to = this.#target(event.key);
    if (to === null || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    if (event.key === "Escape") this.#leave();
    else this.#go(Math.min(Math.max(to, 0), this.tokens.length - 1), true);
  }

  #target(key) {
    if (!this.tokens.length) return null;
    const step = this.tokens[this.current]?.step ?? -1;
    switch (key) {
      case "ArrowRight": return this.current + 1;
      case "ArrowLeft": return this.current - 1;
      case "ArrowDown": return this.#firstOf(step + 1, this.tokens.length - 1);
      case "ArrowUp": return this.#firstOf(step - 1, 0);
      case "Home": return 0;
      case "End": return this.tokens.length - 1;
      case "Escape": return this.current >= 0 ? this.current : null;
      default: return null;
    }
  }

  #firstOf(step, otherwise) {
    const index = this.tokens.findIndex((token) => token.step === step);
    return index < 0 ? otherwise : index;
  }

  #onPointer(event) {
    const index = event.target.dataset?.index;
    if (index !== undefined) this.#go(Number(index), false);
  }

  #go(index, isSpoken) {
    if (index === this.current && !isSpoken) return;
    this.#unmark();
    this.current = index;
    const { step } = this.tokens[index];
    for (let at = index; this.tokens[at]?.step === step; at -= 1) this.spans[at].classList.add("same-step");
    for (let at = index; this.tokens[at]?.step === step; at += 1) this.spans[at].classList.add("same-step");
    this.spans[index].classList.add("current");
    if (isSpoken) this.spans[index].scrollIntoView({ block: "nearest" });
    showCard(this.spans[index], this.tokens[index], isSpoken);
  }

  #leave() {
    this.#unmark();
    this.current = -1;
    hideCard();
  }

  #unmark() {
    for (const span of this.element.querySelectorAll(".same-step")) span.classList.remove("same-step", "current");
  }
}
