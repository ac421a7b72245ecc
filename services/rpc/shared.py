"""The credential that the replicas of a Ray cluster share."""

from __future__ import annotations

from typing import Any

from services.rpc.credential import Credential

_NAMESPACE = b"draftfleet"
_KEY = b"credential"


def shared_credential() -> Credential:
    """Made by whoever asks first, and kept where Ray keeps its own secrets for as long as the cluster lives.

    So it is in no file, argument or log, and replicas of an old version and a new one have the same.
    """
    from ray.experimental import internal_kv

    store: Any = internal_kv  # hides its names from type checkers
    store._internal_kv_put(_KEY, Credential.random().token.encode(), overwrite=False, namespace=_NAMESPACE)
    return Credential(store._internal_kv_get(_KEY, namespace=_NAMESPACE).decode())
