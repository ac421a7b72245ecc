// A conversation: prompts and answers in turn.
import { announce, byId, make } from "./dom.js";
import { follow } from "./panel.js";
import { useSeed } from "./settings.js";
import { Turn } from "./turn.js";
import { summary } from "./words.js";

let messages = [];
const turns = byId("turns");

/** Sends a prompt with all that was said before; returns the turn when it has ended. */
export async function sendChat(prompt, options, signal) {
  byId("empty").hidden = true;
  const turn = new Turn("Answer", options);
  const user = { role: "user", content: prompt };
  const conversation = messages; // another one may have begun when this turn ends
  turns.append(
    make("li", { class: "asked" }, make("span", { class: "who" }, "You"), make("p", {}, prompt)),
    make("li", { class: "answered" }, make("span", { class: "who" }, "Model"), turn.element),
  );
  follow(turn.answer, "This answer");
  const stay = keepInView();
  turn.onStep = stay;
  stay(true);
  const outcome = await turn.run([...conversation, user], signal);
  if (outcome !== "failed" && turn.answer.tokens.length) {
    conversation.push(user, { role: "assistant", content: turn.answer.text });
    turn.note.append(" · ", make("button", { type: "button", class: "quiet", onclick: () => useSeed(options.seed) }, `use seed ${options.seed} again`));
  }
  stay();
  announce(outcome === "failed" ? "" : `Answer ${outcome}: ${summary(turn.answer)}`);
  return turn;
}

export function clearChat() {
  messages = [];
  turns.replaceChildren();
  byId("empty").hidden = false;
}

/** Follows the growing text, unless the reader has scrolled away from its end. */
function keepInView() {
  const view = document.scrollingElement;
  let last = 0;
  return (isForced) => {
    const isAtEnd = view.scrollTop >= last - 40;
    if (isForced !== true && !isAtEnd) return;
    view.scrollTop = view.scrollHeight;
    last = view.scrollTop;
  };
}
