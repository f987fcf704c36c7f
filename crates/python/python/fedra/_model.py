"""Trained models: labels for texts, scores, text behind a prompt, and other libraries."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from . import _fedra
from ._data import parts_of
from ._experiment import opened
from .errors import ConfigError, Error
from .progress import Follower, Progress, log

PathLike = str | os.PathLike[str]

#: The class of transformers for a model folder that names none.
USUAL_CLASS = "AutoModel"
#: The file that makes a folder one of adapters.
_ADAPTERS = "adapter_config.json"
#: The class of transformers that peft means by a task.
_CLASS_OF_TASK = {
    "CAUSAL_LM": "AutoModelForCausalLM",
    "SEQ_CLS": "AutoModelForSequenceClassification",
    "TOKEN_CLS": "AutoModelForTokenClassification",
}


class Model:
    """A model folder in Hugging Face layout, a folder of adapters, the folder of a run, or `hf:ORG/NAME`.

    `base` is the model that adapters belong to, where it is not where they say. With `best=True` the model of a run's
    best round is taken instead of the last one. The model is read when it is first used, and then held.
    """

    def __init__(
        self,
        path: PathLike,
        *,
        best: bool = False,
        base: PathLike | None = None,
        device: str | None = None,
        precision: str | None = None,
        multi_label: bool = False,
        _files: object = None,
    ) -> None:
        #: The folder, or the name on the hub.
        self.path = path if isinstance(path, str) and path.startswith("hf:") else Path(path)
        self._best, self._base = best and _files is None, base
        self._device, self._precision, self._multi_label = device, precision, multi_label
        # Files that are temporary stay for as long as somebody has their model: whose they are, if anybody's.
        self._files = _files
        self._opened: _fedra.Predictor | None = None

    @property
    def labels(self) -> list[str]:
        """The labels that it gives, in the order of its outputs."""
        return self._predictor().labels

    def predict(
        self,
        data: Any,
        *,
        column: str | list[str] | None = None,
        threshold: float = 0.5,
        top: int = 5,
    ) -> Any:
        """Labels texts: the keys of `fedra predict` for each.

        A text gives a dict: `predicted` and `probability`, `probabilities` of the `top` likeliest labels; spans of a text
        where the model labels words. A list of texts, of pairs of texts or of lists of words gives a list. A data frame
        of pandas or Polars gives the same frame with the columns `predicted` and `probability`; `column` names its text,
        or two columns a pair; otherwise it is the column that the model was trained with, or `text`.
        """
        if isinstance(data, str):
            return self._answers([data], threshold, top)[0]
        home = type(data).__module__.split(".")[0]
        if home in ("pandas", "polars") and hasattr(data, "columns"):
            return self._label_frame(data, home, column, threshold, top)
        if hasattr(data, "tolist") or hasattr(data, "to_list"):
            data = data.to_list() if hasattr(data, "to_list") else data.tolist()
        return self._answers(list(data), threshold, top)

    def evaluate(
        self,
        experiment: Any,
        data: Any = None,
        *,
        columns: Mapping[str, Any] | None = None,
        split: str | None = None,
        progress: bool | Progress | None = None,
    ) -> dict[str, Any]:
        """Scores the model on labelled rows: the keys of `fedra evaluate --json`.

        `experiment` is an `Experiment` or what makes one, whose test and validation rows are taken, with `data` in the
        place of its own; or the path of a file of rows (`.jsonl`, `.csv`, `.tsv`, `.parquet`), with `columns` such as
        `{"text": "note", "label": "ward"}` and perhaps one `split`.
        """
        file = None
        if isinstance(experiment, (str, os.PathLike)) and not str(experiment).endswith(".toml"):
            if "\n" not in str(experiment):
                file, experiment = Path(experiment), None
        if experiment is not None:
            experiment = opened(experiment)
            if columns is not None or split is not None:
                raise ConfigError("columns and split apply only to a file of rows: an experiment has its own")
        follower = Follower(progress)
        try:
            return _fedra.evaluate(
                self.path, self._best, self._base, experiment, parts_of(data), file,
                dict(columns) if columns else None, split, self._device, self._precision, follower,
            )
        finally:
            follower.progress.end()

    def generate(
        self,
        prompt: str | Iterable[Mapping[str, Any]],
        *,
        max_tokens: int = 128,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        stop: str | Iterable[str] = (),
        chat_template: PathLike | None = None,
        on_text: Callable[[str], Any] | None = None,
    ) -> str:
        """What a decoder writes behind a prompt, or answers to the last message of a conversation: a list of messages such
        as `{"role": "user", "content": "I cough"}`, written by the model's own chat template or by `chat_template` (a
        file in Jinja, "plain" or "chatml").

        The likeliest token each time, or a draw if `temperature`, `top_k` or `top_p` is given; the same `seed` draws the
        same text. `on_text` is called with each piece as it is made.
        """
        asked: str | tuple[str, PathLike | None]
        if isinstance(prompt, str):
            if chat_template is not None:
                raise ConfigError("chat_template: applies only to a list of messages, not to a text")
            asked = prompt
        else:
            asked = (json.dumps([dict(message) for message in prompt]), chat_template)
        written = _fedra.generate(
            self.path, self._best, self._base, asked, max_tokens, (temperature, top_k, top_p, seed),
            [stop] if isinstance(stop, str) else list(stop), self._device, self._precision, on_text,
        )
        for note in written["notes"]:
            log.info("%s", note)
        return written["text"]

    def to_transformers(self, **options: Any):
        """The model as one of `transformers`, of the class that its `config.json` names, or where it is adapters, as one of
        `peft` over its base; options go to `from_pretrained`. `to_tokenizer` gives its tokenizer."""
        import transformers

        folder = self._folder()
        if (folder / _ADAPTERS).is_file():
            return self.to_peft(**options)
        config = _json(folder / "config.json")
        name = next(iter(config.get("architectures") or []), USUAL_CLASS)
        return getattr(transformers, name).from_pretrained(folder, **options)

    def to_tokenizer(self, **options: Any):
        """The tokenizer of the model, or of the base of adapters, as one of `transformers`."""
        import transformers

        folder = self._folder()
        place, options = _base_of(folder, self._base, options) if (folder / _ADAPTERS).is_file() else (folder, options)
        return transformers.AutoTokenizer.from_pretrained(place, **options)

    def to_peft(self, base: Any = None, **options: Any):
        """The adapters of a run with `model.lora`, over `base`, a model of `transformers`; usually the one they were trained
        over. Options go to `from_pretrained` of that base."""
        import peft

        folder = self._folder()
        if not (folder / _ADAPTERS).is_file():
            # Beside the merged model of a run.
            folder = folder.with_name(folder.name.replace("model", "adapter"))
        if not (folder / _ADAPTERS).is_file():
            raise Error(f"{folder}: found no adapters, expected a run with model.lora over a pretrained model")
        if base is None:
            base = _opened_base(folder, self._base, options)
        return peft.PeftModel.from_pretrained(base, folder)

    def __repr__(self) -> str:
        return f"Model({str(self.path)!r})"

    def _folder(self) -> Path:
        if isinstance(self.path, str):
            raise Error(f"{self.path} is a model of the hub: transformers opens it by its name")
        if not (self.path / "experiment.toml").is_file():
            return self.path
        model = self.path / ("model-best" if self._best else "model")
        # Adapters alone are left over weights in less memory.
        return model if model.is_dir() else model.with_name(model.name.replace("model", "adapter"))

    def _predictor(self) -> _fedra.Predictor:
        if self._opened is None:
            self._opened = _fedra.Predictor(
                self.path, self._best, self._base, self._device, self._precision, self._multi_label
            )
        return self._opened

    def _answers(self, rows: list[Any], threshold: float, top: int) -> list[dict[str, Any]]:
        predictor = self._predictor()
        if predictor.reads_images:
            rows = [_image_bytes(row) for row in rows]
        return predictor.predict(rows, threshold, top)

    def _label_frame(self, frame: Any, home: str, column: Any, threshold: float, top: int) -> Any:
        names = [column] if isinstance(column, str) else list(column or self._predictor().columns or ["text"])
        missing = [name for name in names if name not in list(frame.columns)]
        if missing:
            raise ConfigError(f"column: found the columns {list(frame.columns)}, expected {missing[0]!r}; column= names another")
        texts = [frame[name].to_list() for name in names]
        rows = texts[0] if len(texts) == 1 else list(zip(*texts))
        answers = self._answers(rows, threshold, top)
        added = {"predicted": [answer["predicted"] for answer in answers]}
        if all("probability" in answer for answer in answers):
            added["probability"] = [answer["probability"] for answer in answers]
        if home == "pandas":
            return frame.assign(**added)
        import polars

        return frame.with_columns(**{name: polars.Series(name, values) for name, values in added.items()})


def predict(model: Any, data: Any, **options: Any) -> Any:
    """Labels texts with the model in a folder: `Model(model).predict(data, ...)`."""
    return _of(model).predict(data, **options)


def evaluate(model: Any, experiment: Any, data: Any = None, **options: Any) -> dict[str, Any]:
    """Scores the model in a folder on labelled rows: `Model(model).evaluate(experiment, data, ...)`."""
    return _of(model).evaluate(experiment, data, **options)


def generate(model: Any, prompt: str | Iterable[Mapping[str, Any]], **options: Any) -> str:
    """What the decoder in a folder writes behind a prompt, or answers in a conversation: `Model(model).generate(prompt,
    ...)`."""
    return _of(model).generate(prompt, **options)


def _of(model: Any) -> Model:
    if isinstance(model, Model):
        return model
    own = getattr(model, "model", None)
    return own if isinstance(own, Model) else Model(model)


def _base_of(adapters: Path, base: PathLike | None, options: Mapping[str, Any]) -> tuple[PathLike, dict[str, Any]]:
    """Where the base of adapters is, for `from_pretrained` with these options."""
    if base is not None:
        return base, dict(options)
    config = _json(adapters / _ADAPTERS)
    named = {"revision": config["revision"]} if config.get("revision") else {}
    return config["base_model_name_or_path"], named | dict(options)


def _opened_base(adapters: Path, base: PathLike | None, options: Mapping[str, Any]) -> Any:
    """The base of adapters, with a head of their classes."""
    import transformers

    place, options = _base_of(adapters, base, options)
    task = _json(adapters / _ADAPTERS).get("task_type")
    if task is None:
        config = transformers.AutoConfig.from_pretrained(place, **options)
        name = next(iter(config.architectures or []), USUAL_CLASS)
        return getattr(transformers, name).from_pretrained(place, **options)
    labels = adapters / "labels.json"
    if labels.is_file() and task != "CAUSAL_LM":
        names = dict(enumerate(_json(labels)))
        classes = {"id2label": names, "label2id": {name: place for place, name in names.items()}}
        # A head of other classes is replaced by that of the adapters.
        options = {**classes, "ignore_mismatched_sizes": True, **options}
    return getattr(transformers, _CLASS_OF_TASK[task]).from_pretrained(place, **options)


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _image_bytes(image: Any) -> bytes:
    """The bytes of an image: of a file, of Pillow, or as they are."""
    if isinstance(image, (str, os.PathLike)):
        return Path(image).read_bytes()
    if hasattr(image, "save"):
        import io

        buffer = io.BytesIO()
        image.save(buffer, "PNG")
        return buffer.getvalue()
    return bytes(image)
