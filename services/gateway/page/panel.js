// The figures of one answer beside the conversation.
import { byId, say } from "./dom.js";
import { fixed, percent, why } from "./words.js";

let shown = null;
let title = "";
let isDue = false;

/** From now on the panel follows this answer, under this title. */
export function follow(answer, named) {
  shown = answer;
  title = named;
  refresh();
}

/** Shows what has changed, once a frame at most. */
export function refresh() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    if (shown) draw(shown);
  });
}

function draw(answer) {
  const { length, speed } = answer.figures;
  const { told, counts } = answer;
  say(byId("figures-title"), title);
  say(byId("f-length"), fixed(length, 2));
  say(byId("f-speed"), fixed(speed, 1));
  say(byId("f-first"), fixed(answer.firstAfter, 0));
  for (const kind of ["accepted", "bonus", "plain", "rejected"]) say(byId(`f-${kind}`), String(counts[kind]));
  say(byId("f-class"), told.class === undefined ? "–" : `${told.class}, ${percent(told.class_confidence)} sure`);
  say(byId("f-asked"), answer.options.drafter);
  say(byId("f-drafter"), answer.drafter || (answer.endedAfter === null ? "–" : "none"));
  say(byId("f-why"), why(answer));
  say(byId("glance"), `${fixed(length, 2)} tokens a step · ${fixed(speed, 1)} tokens/s · ${answer.drafter || "no drafts"}`);
}
