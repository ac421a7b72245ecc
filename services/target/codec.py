"""From the engine's emissions to the chunks of the API."""

from __future__ import annotations

from protos import generation_pb2 as pb
from services.target.emission import Emission, Finish
from services.target.sampling.logprobs import TokenLogprobs

_FINISH = {
    "stop": pb.FINISH_REASON_STOP,
    "length": pb.FINISH_REASON_LENGTH,
    "abort": pb.FINISH_REASON_ABORT,
}
_ORIGIN = {"plain": pb.ORIGIN_PLAIN, "accepted": pb.ORIGIN_ACCEPTED, "bonus": pb.ORIGIN_BONUS}


def to_chunk(emission: Emission, requested_drafter: str, exactness: str) -> pb.GenerateChunk:
    chunk = pb.GenerateChunk(
        choice=emission.choice,
        token_ids=emission.tokens,
        text=emission.text,
        token_times=[emission.time] * len(emission.tokens),
        logprobs=[_logprobs(entry) for entry in emission.logprobs],
        prompt_logprobs=[_logprobs(entry) for entry in emission.prompt_logprobs],
        trace=[pb.TokenTrace(origin=_ORIGIN[t.origin], rejected=t.rejected, drafter=t.drafter) for t in emission.trace],
    )
    if emission.finish is not None:
        _add_finish(chunk, emission.finish, requested_drafter, exactness)
    return chunk


def _add_finish(chunk: pb.GenerateChunk, finish: Finish, requested_drafter: str, exactness: str) -> None:
    chunk.finish_reason = _FINISH[finish.reason]
    chunk.stop_reason = finish.stop
    chunk.usage.prompt_tokens = finish.prompt_tokens
    chunk.usage.completion_tokens = finish.completion_tokens
    chunk.usage.cached_prompt_tokens = finish.cached_prompt_tokens
    statistics = finish.statistics
    chunk.speculation.CopyFrom(
        pb.SpeculationStats(
            drafter=statistics.drafter,
            requested_drafter=requested_drafter,
            num_drafts=statistics.num_drafts,
            num_draft_tokens=statistics.num_draft_tokens,
            num_accepted_tokens=statistics.num_accepted_tokens,
            num_rounds=statistics.num_rounds,
            accepted_length=statistics.accepted_length,
            exactness=exactness,
        )
    )


def _logprobs(entry: TokenLogprobs) -> pb.TokenLogprobs:
    return pb.TokenLogprobs(
        token_id=entry.token,
        logprob=entry.logprob,
        top=[pb.Alternative(token_id=token, logprob=value) for token, value in entry.top],
    )
