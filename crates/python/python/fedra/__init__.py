"""Fedra fine-tunes Transformers across organisations that may not share their data.

An experiment says what is learnt, from whom and how; `fedra.run` simulates the federation in this process.

    import fedra

    experiment = fedra.Experiment(
        data={"task": "classes", "columns": {"text": "note", "label": "ward", "client": "hospital"}},
        federation={"rounds": 5},
    )
    run = fedra.run(experiment, data=frame)       # pandas, Polars, Arrow, a dataset of Hugging Face, a list of dicts
    run.score, run.rounds.to_pandas()             # a notebook shows `run` with its curves
    run.model.predict("chest pain for two days")
    run.model.to_transformers()

Experiment   the keys of an experiment file, from a file, a dict or keywords
plan         what would be trained, sent and spent; nothing is trained
run, resume  a federation in this process; Ctrl-C stops between two steps, and a run goes on to the same bytes
Run, Model   what is left of it: rounds, summary, report; predictions, scores, transformers
compare      experiments over seeds, with intervals and verdicts
advise       when FedFrozen should freeze
audit        whether canaries refute a claimed epsilon
account      what private training costs
callbacks    MLflow, Weights & Biases, TensorBoard
flower       a client of a Flower project that trains with Fedra; `import fedra.flower` needs flwr

It is the library that the command `fedra` is made of: the same file gives the same bits.
"""

from . import account, callbacks, errors, progress
from ._fedra import Experiment, Parameters, __version__
from ._model import Model, evaluate, generate, predict
from ._plan import Plan, plan
from ._run import Report, Round, Rounds, Run, StopRun, resume, run
from ._studies import Advice, Comparison, advise, audit, compare
from .errors import ConfigError, DataError, Error, FolderOccupied, Interrupted, RunError

__all__ = [
    "Advice",
    "Comparison",
    "ConfigError",
    "DataError",
    "Error",
    "Experiment",
    "FolderOccupied",
    "Interrupted",
    "Model",
    "Parameters",
    "Plan",
    "Report",
    "Round",
    "Rounds",
    "Run",
    "RunError",
    "StopRun",
    "__version__",
    "account",
    "advise",
    "audit",
    "callbacks",
    "compare",
    "errors",
    "evaluate",
    "generate",
    "plan",
    "predict",
    "progress",
    "resume",
    "run",
]
