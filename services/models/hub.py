"""Models from the Hugging Face hub, in its own cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from services.models.errors import ModelUnavailableError
from services.models.progress import OnProgress, Progress

# No pickles: weights come as safetensors only.
_WANTED = ["*.safetensors", "*.safetensors.index.json", "*.json", "*.jinja", "*.model", "*.txt"]


def fetch_from_hub(model_id: str, on_progress: OnProgress) -> Path:
    """The local snapshot of `model_id`; downloads what is missing and resumes what broke off.

    Raises ModelUnavailableError when it is neither reachable nor cached.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
    from tqdm.auto import tqdm

    class Bar(tqdm):
        """Hands the hub client's byte counts on instead of drawing them."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            kwargs.pop("name", None)
            self._is_bytes = kwargs.get("unit") == "B"
            super().__init__(*args, **{**kwargs, "disable": True})
            self._done = int(kwargs.get("initial", 0) or 0)

        def update(self, n: float | None = 1) -> bool | None:
            self._done += int(n or 0)
            if self._is_bytes:
                on_progress(Progress("download", self._done, int(self.total or 0)))
            return None

    on_progress(Progress("download", 0, 0))
    try:
        return Path(snapshot_download(model_id, allow_patterns=_WANTED, tqdm_class=Bar))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelUnavailableError(
            f"{model_id}: it could not be fetched from the hub ({reason}). Check the name, the network, and for a "
            "gated model that you are logged in (hf auth login); or give a local folder or .gguf file with --target."
        ) from error
