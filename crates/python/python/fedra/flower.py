"""A client of Flower's that trains with Fedra, for a project that has a Flower server already.

    from fedra.flower import ClientApp

    app = ClientApp("clinic.toml", data=lambda context: load(context.node_config["partition-id"]))

The server sends the model's arrays by the names of Hugging Face, as in `ArrayRecord(model.state_dict())`, and averages what
comes back, as Flower's `FedAvg` does. The experiment says how this client trains: `model.path` the folder of the same
model, `[work]`, and what the columns of its rows mean. What a server decides has no effect here: rounds, method, samplers.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import flwr.clientapp
import numpy
import safetensors.numpy
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict

from . import _fedra
from ._experiment import opened
from ._model import Model
from ._run import run
from ._start import beginning_with
from .errors import ConfigError, Error

__all__ = ["ClientApp"]


class ClientApp(flwr.clientapp.ClientApp):
    """A `flwr.clientapp.ClientApp` that answers `train` and `evaluate`.

    `experiment` and `data` are those of `fedra.run`; `data` may be a function of Flower's `Context`, such as one that reads
    the partition of this node. `model` is a folder or a model of `transformers` with its `tokenizer`, in the place of
    `model.path`. All clients need the same labels: `data.labels` of the experiment, in any order, or the model's own.

    Every round draws by the experiment's seed, so the batches of a client are the same in each: another order of rows is
    another `seed`, which also deals other rows for testing.

    A reply to `train` has the trained arrays, and `num-examples` and `train_loss` as metrics. One to `evaluate` has
    `num-examples`, `eval_loss` and the scores of the task on this client's test examples (`data.shares`), or on its
    validation examples if it has no others.
    """

    def __init__(
        self,
        experiment: Any,
        data: Any = None,
        *,
        model: Any = None,
        tokenizer: Any = None,
        threads: int | None = None,
    ) -> None:
        super().__init__()
        self._data, self._threads = data, threads
        tables = opened(experiment).to_dict()
        method = tables.get("method", {}).get("name", "fedavg")
        if method != "fedavg":
            raise ConfigError(f"method.name: found {method!r}, expected 'fedavg': a Flower server has the method")
        if "privacy" in tables:
            raise ConfigError("privacy: cannot be combined with a Flower server, which does not account for it")
        # Here is one client, with all of its rows.
        tables["federation"] = {"rounds": 1} if data is not None else {"rounds": 1, "clients": 1}
        tables.get("data", {}).pop("partition", None)
        tables.get("data", {}).get("columns", {}).pop("client", None)
        self._experiment = _fedra.Experiment(tables)
        self._scratch = tempfile.TemporaryDirectory(prefix="fedra-")
        if model is not None:
            start = Path(self._scratch.name) / "start"
            self._experiment = beginning_with(self._experiment, model, tokenizer, start)
            tables = self._experiment.to_dict()
        path = tables.get("model", {}).get("path")
        if path is None or not Path(path).is_dir():
            raise ConfigError(f"model.path: found {path!r}, expected the folder of the model whose arrays the server sends")
        self._start = Path(path)
        self.train()(self._train)
        self.evaluate()(self._evaluate)

    def _train(self, message: Message, context: Context) -> Message:
        with tempfile.TemporaryDirectory(prefix="fedra-") as scratch:
            experiment, given = self._of_round(message, Path(scratch))
            # The seed stays the same, because it also says which rows are for testing.
            trained = run(experiment, self._rows(context), threads=self._threads, progress=False)
            (report,) = trained.rounds
            metrics: dict[str, int | float | list[int] | list[float]] = {"num-examples": trained.summary["examples"]}
            if report.get("loss") is not None:
                metrics["train_loss"] = report["loss"]
            arrays = safetensors.numpy.load_file(trained.folder / "model/model.safetensors")
        record = ArrayRecord({name: Array(_back(name, given, arrays)) for name in given})
        return Message(RecordDict({"arrays": record, "metrics": MetricRecord(metrics)}), reply_to=message)

    def _evaluate(self, message: Message, context: Context) -> Message:
        with tempfile.TemporaryDirectory(prefix="fedra-") as scratch:
            experiment, _ = self._of_round(message, Path(scratch))
            sets = Model(Path(scratch) / "model").evaluate(experiment, self._rows(context), progress=False)["sets"]
        scored = next((sets[name] for name in ("client_test", "client_validation", "central_test") if name in sets), None)
        if scored is None:
            raise Error("found no examples to score on, expected a share of them in data.shares")
        scores = {name: value for name, value in scored["scores"].items() if value is not None}
        metrics = {"num-examples": scored["examples"], "eval_loss": scores.pop("loss"), **scores}
        return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)

    def _of_round(self, message: Message, scratch: Path) -> tuple[_fedra.Experiment, dict[str, Any]]:
        """The experiment of one round over the arrays that came, and these arrays."""
        given = {name: array.numpy() for name, array in message.content.array_records["arrays"].items()}
        folder = scratch / "model"
        shutil.copytree(self._start, folder, ignore=shutil.ignore_patterns("*.safetensors*", "*.bin", "*.gguf"))
        floats = {name: numpy.ascontiguousarray(array) for name, array in given.items() if array.dtype.kind == "f"}
        safetensors.numpy.save_file(floats, folder / "model.safetensors", metadata={"format": "pt"})
        return beginning_with(self._experiment, folder, None, folder), given

    def _rows(self, context: Context) -> Any:
        rows = self._data(context) if callable(self._data) else self._data
        return rows if rows is None else {"client": rows}


def _back(name: str, given: dict[str, Any], trained: dict[str, Any]) -> Any:
    """What goes back for an array that came: what was trained, in its type, or the array itself where nothing learns."""
    array = given[name]
    if name not in trained and array.dtype.kind == "f":
        # Weights that are tied came under two names, and are stored under one.
        twins = (other for other in trained if other in given and numpy.array_equal(given[other], array))
        name = next(twins, name)
        if name not in trained:
            raise Error(f"arrays: found {name!r}, which the model in model.path does not have")
    return trained[name].astype(array.dtype, copy=False).reshape(array.shape) if name in trained else array
