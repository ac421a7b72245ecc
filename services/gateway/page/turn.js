// One answer on the page: its text, its rhythm, and a line about it. Chat and side by side share it.
import { Answer } from "./answer.js";
import { make } from "./dom.js";
import { refresh } from "./panel.js";
import { ServerError, streamChat } from "./server.js";
import { Strip } from "./strip.js";
import { TokenText } from "./tokens.js";
import { counted, fixed } from "./words.js";

export class Turn {
  constructor(label, options, isTimed = false) {
    this.text = new TokenText(label);
    this.strip = new Strip(`Rhythm of the ${label.toLowerCase()}`, isTimed);
    this.note = make("p", { class: "note" }, "waiting for the first token …");
    this.answer = new Answer(options, performance.now());
    this.onStep = () => {};
    this.element = make("div", { class: "turn running" }, this.text.element, this.strip.element, this.note);
  }

  /** Streams the answer to its end. Says how it ended: "done", "stopped" or "failed". */
  async run(messages, signal) {
    const { answer } = this;
    answer.startedAt = performance.now();
    let outcome = "done";
    try {
      for await (const event of streamChat(messages, answer.options, signal)) this.#take(event);
    } catch (error) {
      if (error.name === "AbortError") outcome = "stopped";
      else outcome = this.#fail(error);
    }
    answer.end(performance.now());
    this.element.classList.remove("running");
    this.text.close();
    if (outcome !== "failed") this.note.textContent = this.#ending(outcome);
    refresh();
    return outcome;
  }

  #take(event) {
    const step = this.answer.add(event, performance.now());
    if (!step) return;
    this.text.append(step);
    this.strip.append(step);
    this.note.textContent = `${counted(this.answer.tokens.length, "token")} in ${counted(this.answer.steps.length, "step")} …`;
    this.onStep(step);
    refresh();
  }

  #fail(error) {
    const isExpected = error instanceof ServerError;
    if (!isExpected) console.error(error);
    const said = isExpected ? error.message : "the page failed to read the answer";
    this.note.replaceChildren(make("strong", { class: "wrong", role: "alert" }, said));
    this.needsKey = error.status === 401 || error.status === 403;
    return "failed";
  }

  #ending(outcome) {
    const { tokens, steps, speed, seconds, accepted, drafted } = this.answer.figures;
    const said = [`${counted(tokens, "token")} in ${counted(steps, "step")}`];
    if (this.strip.isTimed) said.push(`${fixed(seconds, 2)} s`);
    if (speed !== null) said.push(`${fixed(speed, 1)} tokens/s`);
    if (drafted) said.push(`${accepted} of ${counted(drafted, "draft")} stood`);
    if (outcome === "stopped") said.push("stopped");
    else if (this.answer.finish === "length") said.push("cut at max tokens");
    return said.join(" · ");
  }
}
