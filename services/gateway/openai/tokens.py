"""Tokens of a text and back, in vLLM's shapes."""

from __future__ import annotations

from services.gateway.errors import ApiError, ErrorKind
from services.gateway.gateway import ALIAS, Gateway
from services.gateway.openai.answers import Body
from services.gateway.openai.chats import tools_of, turns
from services.gateway.openai.parsing import parse
from services.gateway.openai.schema import DetokenizeRequest, TokenizeRequest


async def tokenize(gateway: Gateway, body: bytes) -> Body:
    """Raises ApiError."""
    request = parse(body, TokenizeRequest)
    gateway.check_model(request.model or ALIAS)
    if (request.prompt is None) == (request.messages is None):
        raise ApiError(ErrorKind.INVALID, "prompt: give it or messages, and not both", field="prompt")
    if request.messages is None:
        assert request.prompt is not None
        ids = await gateway.text_ids(request.prompt, "prompt", add_special=request.add_special_tokens is not False)
    elif request.add_special_tokens:
        message = "add_special_tokens: not with messages, whose template writes them; only false is allowed"
        raise ApiError(ErrorKind.UNSUPPORTED, message, field="add_special_tokens")
    else:
        ids = await gateway.chat_ids(turns(request.messages), "messages", tools_of(request.tools, None))
    return {
        "count": len(ids),
        "max_model_len": (await gateway.targets.info()).max_context,
        "tokens": ids,
        "token_strs": await gateway.tokenization.entries(ids) if request.return_token_strs else None,
    }


async def detokenize(gateway: Gateway, body: bytes) -> Body:
    """Raises ApiError."""
    request = parse(body, DetokenizeRequest)
    gateway.check_model(request.model or ALIAS)
    return {"prompt": await gateway.text_of(request.tokens, "tokens")}
