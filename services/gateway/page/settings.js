// The settings of the next answer, as the form holds them.
import { byId } from "./dom.js";

const field = (name) => byId("composer").elements[name];

/** What to ask for. A seed is always named, so that an answer can be had again. */
export function options() {
  const seed = field("seed").value;
  return {
    drafter: field("drafter").value,
    force: field("force").value === "always",
    temperature: Number(field("temperature").value),
    max_tokens: Number(field("max_tokens").value),
    seed: seed === "" ? crypto.getRandomValues(new Uint32Array(1))[0] : Number(seed),
  };
}

export const isTogether = () => field("order").value === "together";

export function useSeed(seed) {
  field("seed").value = String(seed);
}

/** Says behind each drafter whether the fleet has one now. */
export function offerDrafters(kinds) {
  for (const option of field("drafter").options) {
    if (["auto", "none"].includes(option.value)) continue;
    const label = kinds.has(option.value) ? option.value : `${option.value} (none here)`;
    if (option.textContent !== label) option.textContent = label;
  }
}
