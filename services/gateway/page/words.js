// Figures and reasons in words.

const ORIGINS = {
  accepted: "a draft that stood",
  bonus: "the model’s own token after the drafts",
  plain: "decoded without drafts",
};

export const fixed = (value, digits) => (value === null || value === undefined ? "–" : value.toFixed(digits));
export const percent = (share) => `${Math.round(share * 100)} %`;
export const counted = (number, one, many = `${one}s`) => `${number} ${number === 1 ? one : many}`;

/** A token's text with what would not be seen made visible. */
export function visible(text) {
  return text.replaceAll("\n", "↵").replaceAll("\t", "⇥").replaceAll(" ", "␣") || "∅";
}

/** Where a token came from, and from whom. */
export function origin(token) {
  const by = token.drafter ? ` · ${token.drafter}` : "";
  return `${token.origin}: ${ORIGINS[token.origin]}${by}`;
}

/** Why this drafter drafted as it did, from what the service told. */
export function why(answer) {
  const { class: kind, num_rounds: rounds, num_drafts: drafts } = answer.told;
  const asked = answer.options.drafter;
  if (asked === "none") return "Speculation is off for this answer: each step decodes one token.";
  if (kind === undefined) return "";
  const said = [];
  if (asked === "auto") said.push(`The router prefers the kind that has been fastest for ${kind}, now and then another to keep measuring, and takes the first with room.`);
  else if (answer.drafter && !answer.drafter.split("+").includes(asked)) said.push(`No ${asked} drafter had room, so another took its place.`);
  if (answer.drafter.includes("+lookup")) said.push("Lookup stepped in where the text repeated itself.");
  if (rounds) {
    const otherwise = answer.options.force ? "none came" : "they were not worth it, or did not come";
    said.push(`Drafts were checked in ${drafts} of ${counted(rounds, "step")}; elsewhere ${otherwise}.`);
  }
  return said.join(" ");
}

/** One line about a finished answer. */
export function summary(answer) {
  const { tokens, length, speed } = answer.figures;
  const said = [counted(tokens, "token")];
  if (speed !== null) said.push(`${fixed(speed, 1)} tokens/s`);
  if (length !== null) said.push(`${fixed(length, 2)} tokens a step`);
  return said.join(", ");
}
