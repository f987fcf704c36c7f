"""Where people log: MLflow, Weights & Biases, TensorBoard.

    fedra.run(experiment, callbacks=[fedra.callbacks.MLflow()])

Each logs the experiment once, the numbers of every round with the round as the step, and what the run came to. The
numbers have the names of `rounds.csv`. A callback of your own is any function of a `fedra.Round`, or an object with
`on_begin(run)`, `on_round(round)` and `on_end(run)`.
"""

from __future__ import annotations

from typing import Any

from ._run import Round, Run

__all__ = ["MLflow", "WandB", "TensorBoard", "numbers"]


def numbers(round: Round) -> dict[str, float]:
    """The numbers of a round by name: loss, scores, bytes, epsilon, seconds."""
    report = round.report
    found: dict[str, float] = {}
    if round.loss is not None:
        found["loss"] = round.loss
    if round.epsilon is not None:
        found["epsilon"] = round.epsilon
    found["bytes.up"], found["bytes.down"] = report["bytes"]["up"], report["bytes"]["down"]
    found["seconds"] = report["seconds"]
    found["arrived"] = len(report["arrived"])
    found.update({name: value for name, value in round.scores.items() if value is not None})
    return found


def settings(run: Run) -> dict[str, Any]:
    """The keys of a run's experiment by their names with dots."""
    import tomllib

    def flat(table: dict[str, Any], before: str = ""):
        for key, value in table.items():
            if isinstance(value, dict):
                yield from flat(value, f"{before}{key}.")
            else:
                yield f"{before}{key}", value

    return dict(flat(tomllib.loads((run.folder / "experiment.toml").read_text(encoding="utf-8"))))


class _Logged:
    """Logs the settings behind the first round, because they are settled by then."""

    def __init__(self) -> None:
        self._is_begun = False

    def on_begin(self, run: Run) -> None:
        self._is_begun = False

    def on_round(self, round: Round) -> None:
        if not self._is_begun:
            self._is_begun = True
            self.begin(settings(round.run))
        self.log(numbers(round), round.number)

    def begin(self, keys: dict[str, Any]) -> None:
        """Logs the experiment."""

    def log(self, found: dict[str, float], step: int) -> None:
        """Logs the numbers of a round."""


class MLflow(_Logged):
    """Logs to MLflow: into the run that is active, or into one of its own. `model=True` logs the model folder too."""

    def __init__(self, *, model: bool = False, **options: Any) -> None:
        super().__init__()
        self._options, self._model, self._own = options, model, False

    def on_begin(self, run: Run) -> None:
        import mlflow

        super().on_begin(run)
        if mlflow.active_run() is None:
            mlflow.start_run(**self._options)
            self._own = True

    def begin(self, keys: dict[str, Any]) -> None:
        import mlflow

        mlflow.log_params({key: str(value)[:500] for key, value in keys.items()})

    def log(self, found: dict[str, float], step: int) -> None:
        import mlflow

        mlflow.log_metrics(found, step=step)

    def on_end(self, run: Run) -> None:
        import mlflow

        if self._model and run.complete:
            mlflow.log_artifacts(str(run.model.path), "model")
        if self._own:
            mlflow.end_run("FINISHED" if run.complete else "KILLED")
            self._own = False


class WandB(_Logged):
    """Logs to Weights & Biases: into the run that is active, or into one of its own, for which options are those of
    `wandb.init`."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._options, self._own = options, False

    def on_begin(self, run: Run) -> None:
        import wandb

        super().on_begin(run)
        if wandb.run is None:
            wandb.init(**self._options)
            self._own = True

    def begin(self, keys: dict[str, Any]) -> None:
        import wandb

        wandb.config.update(keys, allow_val_change=True)

    def log(self, found: dict[str, float], step: int) -> None:
        import wandb

        # With a step, nothing is written before the next one comes, unless it is committed.
        wandb.log(found, step=step, commit=True)

    def on_end(self, run: Run) -> None:
        import wandb

        if run.complete and (score := run.summary["score"]):
            wandb.summary[f"{score['on']}.{score['name']}"] = score["value"]
        if self._own:
            wandb.finish(exit_code=0 if run.complete else 1)
            self._own = False


class TensorBoard(_Logged):
    """Logs to TensorBoard through a writer such as `torch.utils.tensorboard.SummaryWriter`. Without one, the key
    `log = ["tensorboard"]` of an experiment writes the same into the run's folder, and needs no other package."""

    def __init__(self, writer: Any) -> None:
        super().__init__()
        self._writer = writer

    def log(self, found: dict[str, float], step: int) -> None:
        for name, value in found.items():
            self._writer.add_scalar(name.replace(".", "/"), value, step)

    def on_end(self, run: Run) -> None:
        self._writer.flush()
