"""Models in memory as the start of a run. A run begins with a folder in Hugging Face layout, so they are written to one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ._fedra import Experiment
from .errors import ConfigError

#: The keys of `[model]` that say how a model learns and not which it is.
_STAY = ("head", "lora", "weights")


def beginning_with(experiment: Experiment, model: Any, tokenizer: Any, folder: Path) -> Experiment:
    """The same experiment over another model, which is written to the folder if it is in memory."""
    tables = experiment.to_dict()
    stays = {key: value for key, value in tables.get("model", {}).items() if key in _STAY}
    return Experiment(tables | {"model": stays | start_keys(model, tokenizer, folder)})


def start_keys(model: Any, tokenizer: Any, folder: Path) -> dict[str, Any]:
    """Writes a model to a folder, which is left alone if it is there; the keys of `[model]` that name it."""
    if isinstance(model, (str, os.PathLike)):
        if tokenizer is not None:
            raise ConfigError("tokenizer: applies only to a model in memory, because a folder has its own")
        return {"path": str(model)}
    if not hasattr(model, "save_pretrained") or not hasattr(model, "config"):
        raise ConfigError(
            f"model: found a {type(model).__name__}, expected a model of transformers, a folder or hf:ORG/NAME"
        )
    if not hasattr(tokenizer, "save_pretrained"):
        raise ConfigError(
            f"tokenizer: found a {type(tokenizer).__name__}, expected the model's tokenizer as one of transformers"
        )
    if hasattr(model, "peft_config"):
        raise ConfigError(
            "model: found adapters of peft in memory, expected a model of transformers; save_pretrained writes adapters to a "
            "folder, which model.adapter names, over the base in model.path"
        )
    keys = {"path": str(folder)}
    if folder.exists():
        return keys
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if not (folder / "tokenizer.json").is_file():
        raise ConfigError(
            f"tokenizer: found a {type(tokenizer).__name__}, which writes no tokenizer.json, expected a fast tokenizer"
        )
    return keys
