// One answer as it comes: its tokens, its steps, and the figures that follow from them. No page in here.

export class Answer {
  /** `now`: milliseconds of a steady clock, when the request is sent. */
  constructor(options, now) {
    this.options = options;
    this.startedAt = now;
    this.firstAfter = null; // milliseconds
    this.endedAfter = null;
    this.text = "";
    this.tokens = [];
    this.steps = [];
    this.counts = { accepted: 0, bonus: 0, plain: 0, rejected: 0 };
    this.drafter = "";
    this.told = {}; // what the service says of the whole answer: at first seed and class, at last the rest
    this.usage = null;
    this.finish = null;
  }

  /** Takes an event; returns the step that it tells of, if any. */
  add(event, now) {
    const choice = event.choices[0];
    this.text += choice?.delta.content ?? "";
    this.finish ??= choice?.finish_reason ?? null;
    this.usage ??= event.usage ?? null;
    const { traces, ...told } = event.draftfleet ?? {};
    Object.assign(this.told, told);
    const tokens = traces?.[0]?.tokens;
    return tokens?.length ? this.#step(tokens, now) : null;
  }

  end(now) {
    this.endedAfter = now - this.startedAt;
  }

  get figures() {
    const [first] = this.steps;
    const last = this.steps.at(-1);
    const decoded = this.tokens.length - (first?.tokens.length ?? 0); // the prefill's token is in no decode step
    const rounds = this.steps.length - 1;
    const seconds = last ? last.time - first.time : 0;
    const { accepted, rejected } = this.counts;
    return {
      tokens: this.tokens.length,
      steps: this.steps.length,
      length: this.told.accepted_length ?? (rounds > 0 ? decoded / rounds : null),
      speed: seconds > 0 ? decoded / seconds : null,
      seconds,
      accepted: this.told.num_accepted_tokens ?? accepted,
      drafted: this.told.num_draft_tokens ?? accepted + rejected,
    };
  }

  #step(tokens, now) {
    this.firstAfter ??= now - this.startedAt;
    const step = { index: this.steps.length, time: tokens[0].time, tokens: [], accepted: 0, own: 0, plain: 0, rejected: 0 };
    for (const token of tokens) {
      const kept = { ...token, index: this.tokens.length, step: step.index, after: token.time - (this.steps[0] ?? step).time };
      this.tokens.push(kept);
      step.tokens.push(kept);
      this.counts[token.origin] += 1;
      this.counts.rejected += token.rejected.length;
      step[{ accepted: "accepted", bonus: "own", plain: "plain" }[token.origin]] += 1;
      step.rejected += token.rejected.length;
      if (token.drafter) this.drafter = token.drafter;
    }
    this.steps.push(step);
    return step;
  }
}
