"""Functions behind rounds, and logs elsewhere."""

import traceback

import fedra
import pytest
from conftest import weights

numpy = pytest.importorskip("numpy")


def test_a_callback_sees_the_round_and_the_model_in_place(experiment, rows):
    seen, models = [], []

    def look(round):
        seen.append((round.number, round.rounds, round.loss, dict(round.scores)))
        models.append(round.parameters)

    run = fedra.run(experiment, rows, progress=False, callbacks=[look])
    assert [number for number, *_ in seen] == [1, 2, 3] and seen[0][1] == 3
    assert [report["loss"] for report in run.rounds] == [loss for _, _, loss, _ in seen]
    assert "central_test.macro_f1" in seen[-1][3]
    name = next(name for name in models[0] if name.startswith("block.0.query.weight"))
    first, last = models[0][name], models[-1][name]
    assert first.shape == (16, 16) and first.dtype == numpy.float32
    assert not numpy.array_equal(first, last)
    # Views of the library's memory: the same twice, and nobody's to change.
    assert numpy.shares_memory(last, models[-1][name]) and not last.flags.writeable
    assert len(models[0]) == len(models[0].keys()) == len(list(models[0]))
    assert name in models[0] and "block.9.query.weight" not in models[0]
    with pytest.raises(KeyError):
        models[0]["nothing"]


def test_the_last_parameters_are_those_of_the_model_folder(experiment, rows):
    safetensors = pytest.importorskip("safetensors.numpy")
    last = {}
    run = fedra.run(experiment, rows, progress=False, callbacks=[lambda round: last.update(round.parameters.items())])
    stored = safetensors.load_file(run.folder / "model/model.safetensors")
    flat = {array.tobytes() for array in stored.values()}
    assert all(array.tobytes() in flat for name, array in last.items() if "query.weight" in name)


def test_callbacks_change_no_bit(experiment, rows):
    watched = fedra.run(experiment, rows, progress=False, callbacks=[lambda round: round.parameters.items()])
    assert weights(watched) == weights(fedra.run(experiment, rows, progress=False))


def test_an_exception_ends_the_run_with_its_traceback_and_leaves_it_resumable(experiment, rows):
    def broken(round):
        if round.number == 2:
            raise LookupError("no such table")

    with pytest.raises(LookupError, match="no such table") as raised:
        fedra.run(experiment, rows, progress=False, callbacks=[broken])
    frames = [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]
    assert frames[-1] == "broken"
    assert raised.value.__notes__ == ["the run was stopped after 2 rounds; `error.run.resume()` goes on"]
    run = raised.value.run
    assert len(run.rounds) == 2 and not run.complete
    with pytest.raises(fedra.Error, match="stopped after 2 rounds"):
        run.summary
    run.resume(progress=False)
    assert weights(run) == weights(fedra.run(experiment, rows, progress=False))


def test_a_callback_may_end_the_run_without_an_error(experiment, rows):
    run = fedra.run(experiment, rows, progress=False, callbacks=[lambda round: round.number == 1 and round.stop()])
    assert len(run.rounds) == 1 and not run.complete
    assert run.resume(progress=False).complete


def test_parameters_are_asked_for_while_the_callback_is_on(experiment, rows):
    kept = []
    fedra.run(experiment, rows, progress=False, callbacks=[kept.append])
    with pytest.raises(fedra.Error, match="the run has gone on"):
        kept[0].parameters


def test_objects_hear_the_begin_and_the_end(experiment, rows):
    heard = []

    class Watch:
        def on_begin(self, run):
            heard.append("begin")

        def on_end(self, run):
            heard.append(run.complete)

    fedra.run(experiment, rows, progress=False, callbacks=[Watch(), Watch()])
    assert heard == ["begin", "begin", True, True]
    with pytest.raises(ZeroDivisionError):
        fedra.run(experiment, rows, progress=False, callbacks=[Watch(), lambda round: 1 / 0])
    assert heard[4:] == ["begin", False]


class Writer:
    def __init__(self):
        self.scalars, self.flushed = [], False

    def add_scalar(self, name, value, step):
        self.scalars.append((name, value, step))

    def flush(self):
        self.flushed = True


def test_tensorboard_gets_the_numbers_of_the_rounds_file(experiment, rows):
    writer = Writer()
    run = fedra.run(experiment, rows, progress=False, callbacks=[fedra.callbacks.TensorBoard(writer)])
    columns = run.rounds.columns()
    assert writer.flushed and {step for *_, step in writer.scalars} == {1, 2, 3}
    for name, value, step in writer.scalars:
        assert columns[name.replace("/", ".")][step - 1] == value


def test_mlflow_gets_settings_and_numbers(experiment, rows, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.chdir(tmp_path)
    run = fedra.run(experiment, rows, progress=False, callbacks=[fedra.callbacks.MLflow(run_name="wards")])
    assert mlflow.active_run() is None
    found = mlflow.search_runs(search_all_experiments=True).iloc[0]
    assert found["params.work.batch"] == "4"
    assert found["metrics.loss"] == run.rounds[-1]["loss"]
    stopped = [lambda round: round.stop(), fedra.callbacks.MLflow(run_name="stopped")]
    fedra.run(experiment, rows, progress=False, callbacks=stopped)
    assert mlflow.active_run() is None
    ended = mlflow.search_runs(search_all_experiments=True).set_index("tags.mlflow.runName")["status"]
    assert dict(ended) == {"wards": "FINISHED", "stopped": "KILLED"}


def test_weights_and_biases_gets_settings_and_numbers(experiment, rows, tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    mine = wandb.init(project="wards")
    run = fedra.run(experiment, rows, progress=False, callbacks=[fedra.callbacks.WandB()])
    assert wandb.config["work.batch"] == 4 and wandb.run is mine
    assert mine.summary["loss"] == run.rounds[-1]["loss"]
    mine.finish()


def test_tensorboards_own_reader_finds_what_a_callback_wrote(experiment, rows, tmp_path):
    pytest.importorskip("tensorboard")
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    writer = tensorboard.SummaryWriter(tmp_path)
    run = fedra.run(experiment, rows, progress=False, callbacks=[fedra.callbacks.TensorBoard(writer)])
    writer.close()
    events = accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    losses = [(event.step, numpy.float32(event.value)) for event in events.Scalars("loss")]
    assert losses == [(report["round"] + 1, numpy.float32(report["loss"])) for report in run.rounds]
