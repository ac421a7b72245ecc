// The same prompt and seed twice: plainly, and with drafts.
import { announce, byId, make } from "./dom.js";
import { follow } from "./panel.js";
import { Turn } from "./turn.js";
import { counted, fixed } from "./words.js";

const stage = byId("compare");

export function offerCompare(starters) {
  stage.replaceChildren(
    make("div", { class: "empty" }, make("h2", {}, "The same words, sooner"),
      make("p", {}, "One prompt and one seed, answered twice: without drafts, and with them. The texts have to be the same; the time is what may differ."),
      starters),
  );
}

/** Runs both; returns the turns when both have ended. */
export async function sendCompare(prompt, options, isTogether, signal) {
  const plain = new Turn("Plain answer", { ...options, drafter: "none", force: false }, true);
  const drafted = new Turn("Speculative answer", options, true);
  const verdict = make("p", { class: "verdict" }, isTogether ? "Both run now, sharing the machine …" : "First plainly …");
  stage.replaceChildren(
    make("p", { class: "asked-both" }, prompt),
    verdict,
    make("div", { class: "lanes" }, lane("Plain", "drafter none", plain), lane("Speculative", `drafter ${options.drafter}`, drafted)),
  );
  const turns = [plain, drafted];
  for (const turn of turns) turn.onStep = () => share(turns);
  const messages = [{ role: "user", content: prompt }];
  const showDrafted = () => follow(drafted.answer, "The speculative answer");
  if (isTogether) showDrafted();
  else follow(plain.answer, "The plain answer");
  const outcomes = isTogether
    ? await Promise.all(turns.map((turn) => turn.run(messages, signal)))
    : await inTurns(turns, messages, signal, () => {
        verdict.textContent = "… then with drafts";
        showDrafted();
      });
  if (outcomes.every((outcome) => outcome === "done")) judge(plain, drafted, isTogether, verdict);
  else verdict.textContent = "Not compared: at least one answer did not come to its end.";
  announce(verdict.textContent);
  return turns;
}

async function inTurns([plain, drafted], messages, signal, between) {
  const first = await plain.run(messages, signal);
  if (first !== "done") {
    drafted.note.textContent = "not asked";
    drafted.element.classList.remove("running");
    return [first, "stopped"];
  }
  between();
  return [first, await drafted.run(messages, signal)];
}

function judge(plain, drafted, isTogether, verdict) {
  const at = firstDifference(plain.answer, drafted.answer);
  const isSame = at === null;
  const { speed: slow } = plain.answer.figures;
  const { speed: fast } = drafted.answer.figures;
  const said = [make("b", { class: "same", "data-same": String(isSame) }, isSame ? "Identical" : "Different")];
  if (isSame) said.push(`, all ${counted(plain.answer.tokens.length, "token")} of them`);
  else {
    said.push(` from token ${at + 1} on; this service promises “${drafted.answer.told.exactness}”`);
    plain.text.mark(at);
    drafted.text.mark(at);
  }
  if (slow && fast) {
    const how = isTogether ? "while both shared the machine" : "one after the other";
    said.push(". ", make("b", { class: "ratio" }, `${fixed(fast / slow, 2)} ×`),
      ` the speed after the first token: ${fixed(slow, 1)} plainly, ${fixed(fast, 1)} tokens/s with drafts, ${how}.`);
  }
  verdict.replaceChildren(...said);
}

/** Index of the first token that differs, or null where ids and text are the same. */
function firstDifference(left, right) {
  const length = Math.max(left.tokens.length, right.tokens.length);
  for (let at = 0; at < length; at += 1) if (left.tokens[at]?.id !== right.tokens[at]?.id) return at;
  return left.text === right.text ? null : length;
}

/** One scale of time for both strips. */
function share(turns) {
  const seconds = Math.max(...turns.map((turn) => turn.strip.seconds));
  for (const turn of turns) turn.strip.stretch(seconds);
}

function lane(title, how, turn) {
  return make("section", { class: "lane", "aria-label": title },
    make("h2", {}, title, make("span", { class: "hint" }, how)), turn.element);
}
