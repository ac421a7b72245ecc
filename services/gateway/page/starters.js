// Prompts to begin with, where nothing has been asked yet.
import { make } from "./dom.js";

const STARTERS = [ // one for each class that prompts are taken for
  { kind: "chat", lead: "Explain something", prompt: "Why is the sky blue? Answer in a few sentences." },
  {
    kind: "code",
    lead: "Repeat a function",
    prompt: `Repeat this Python code exactly, without changes:

def merge_intervals(intervals):
    """Merge overlapping intervals and return them in order."""
    if not intervals:
        return []
    intervals = sorted(intervals, key=lambda interval: interval[0])
    merged = [intervals[0]]
    for start, end in intervals[1:]:
        last_start, last_end = merged[-1]
        if start <= last_end:
            merged[-1] = (last_start, max(last_end, end))
        else:
            merged.append((start, end))
    return merged
`,
  },
  {
    kind: "maths",
    lead: "Work something out",
    prompt: "A baker sells 48 rolls on Monday and half as many on Tuesday. How many rolls is that in all? Work it out step by step.",
  },
];

/** A list of them; `choose` takes the text of the one picked. */
export function starters(choose) {
  const pick = ({ kind, lead, prompt }) =>
    make("button", { type: "button", class: "starter", onclick: () => choose(prompt) },
      make("b", {}, lead), make("span", { class: "kind" }, kind), make("span", { class: "starter-text" }, prompt));
  return make("ul", { class: "starters" }, ...STARTERS.map((starter) => make("li", {}, pick(starter))));
}
