// The card beside a token: where it came from, when, and which drafts it took the place of.
import { announce, byId, make } from "./dom.js";
import { counted, fixed, origin, visible } from "./words.js";

const GAP = 8;
const LINGER_MS = 120; // so that the pointer can move onto it

const card = byId("card");
let leaving = 0;
let anchor = null;

card.addEventListener("pointerenter", () => clearTimeout(leaving));
card.addEventListener("pointerleave", () => hideCard());
addEventListener("scroll", () => place(), { passive: true, capture: true });
addEventListener("keydown", (event) => {
  if (event.key === "Escape") close();
});

/** `isSpoken`: whoever moved here by keyboard may not see it. */
export function showCard(element, token, isSpoken) {
  clearTimeout(leaving);
  anchor = element;
  card.replaceChildren(
    make("p", { class: "card-text" }, visible(token.text), make("span", { class: "hint" }, ` id ${token.id}`)),
    make("p", {}, make("span", { class: `dot ${token.origin}` }), origin(token)),
    ...rejected(token),
    make("p", { class: "hint" }, `token ${token.index + 1} · step ${token.step + 1} · ${fixed(token.after, 3)} s after the first`),
  );
  card.hidden = false;
  place();
  if (isSpoken) announce(spoken(token));
}

export function hideCard() {
  clearTimeout(leaving);
  leaving = setTimeout(close, LINGER_MS);
}

function close() {
  card.hidden = true;
}

function rejected(token) {
  if (!token.rejected.length) return [];
  const drafts = token.rejected.map((draft) => make("del", { class: "r" }, visible(draft.text)));
  const lead = token.origin === "accepted" ? "thrown away: " : "drafted here instead, and rejected: ";
  return [make("p", { class: "card-rejected" }, make("span", { class: "hint" }, lead), ...drafts)];
}

function spoken(token) {
  const drafts = token.rejected.map((draft) => `“${draft.text.trim() || "blank"}”`).join(", ");
  const tail = drafts ? `; ${counted(token.rejected.length, "draft")} rejected: ${drafts}` : "";
  return `“${token.text.trim() || "blank"}”, ${origin(token)}, step ${token.step + 1}${tail}`;
}

/** Beside its token, for as long as that is in view. */
function place() {
  if (card.hidden) return;
  const rect = anchor.getClientRects()[0] ?? anchor.getBoundingClientRect();
  const { innerWidth, innerHeight } = window;
  if (!anchor.isConnected || rect.bottom < 0 || rect.top > innerHeight) return close();
  const { offsetWidth, offsetHeight } = card;
  const left = Math.min(Math.max(rect.left, GAP), innerWidth - offsetWidth - GAP);
  const below = rect.bottom + GAP;
  const top = below + offsetHeight > innerHeight ? rect.top - offsetHeight - GAP : below;
  card.style.left = `${Math.round(left)}px`;
  card.style.top = `${Math.round(Math.max(top, GAP))}px`;
}
