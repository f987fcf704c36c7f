"""Models in memory as the start of a run. A run begins with a folder in Hugging Face layout, so they are written to one."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

from ._fedra import Experiment
from .errors import ConfigError

#: The keys of `[model]` that say how a model learns and not which it is.
_STAY = ("head", "lora", "weights")
#: Where the adapters of a model in memory lie, in the folder of their base.
ADAPTER = "adapter"


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
            f"model: found a {type(model).__name__}, expected a model of transformers or peft, a folder or hf:ORG/NAME"
        )
    if not hasattr(tokenizer, "save_pretrained"):
        raise ConfigError(
            f"tokenizer: found a {type(tokenizer).__name__}, expected the model's tokenizer as one of transformers"
        )
    is_adapted = hasattr(model, "peft_config")
    if is_adapted and not hasattr(model, "get_base_model") or getattr(model, "_hf_peft_config_loaded", False):
        raise ConfigError("model: found adapters that transformers has added, expected peft.get_peft_model(model, config)")
    keys = {"path": str(folder)}
    if is_adapted:
        keys["adapter"] = str(folder / ADAPTER)
    if folder.exists():
        return keys
    if is_adapted:
        _save_adapters(model, folder / ADAPTER)
        # What is left of a copy without its adapters is the base, whatever its modules were called beneath them.
        model = copy.deepcopy(model).unload()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if not (folder / "tokenizer.json").is_file():
        raise ConfigError(
            f"tokenizer: found a {type(tokenizer).__name__}, which writes no tokenizer.json, expected a fast tokenizer"
        )
    return keys


def _save_adapters(model: Any, folder: Path) -> None:
    """Writes the adapters that are active, with the names of the classes of a head that learns beside them."""
    name = model.active_adapter
    if not isinstance(name, str):
        raise ConfigError(f"model: found the adapters {name!r} active together, expected one")
    model.save_pretrained(folder, selected_adapters=[name])
    # One that is not called "default" is in a folder of its own.
    if not (folder / "adapter_config.json").is_file():
        for file in (folder / name).iterdir():
            file.rename(folder / file.name)
    classes = getattr(model.config, "id2label", None)
    if model.peft_config[name].modules_to_save and classes:
        labels = [classes[place] for place in sorted(classes)]
        (folder / "labels.json").write_text(json.dumps(labels), encoding="utf-8")
