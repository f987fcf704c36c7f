"""Models of transformers in memory, as the start of a run."""

import fedra
import pytest
from conftest import weights

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")


@pytest.fixture
def untrained(experiment, rows):
    """The keys of an experiment that has no model of its own."""
    return experiment.replace(data={"labels": ["heart", "lung", "skin"]}, federation={"rounds": 1})


def test_a_model_in_memory_gives_the_bits_of_its_folder(untrained, rows, trained, tmp_path):
    model, tokenizer = trained.model.to_transformers(), trained.model.to_tokenizer()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.save_pretrained(tmp_path / "saved")
    tokenizer.save_pretrained(tmp_path / "saved")
    of_folder = fedra.run(untrained, rows, progress=False, model=tmp_path / "saved")
    run = fedra.run(untrained, rows, progress=False, model=model, tokenizer=tokenizer)
    assert weights(run) == weights(of_folder)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert weights(run) != weights(trained)
    back = run.model.to_transformers()
    assert type(back) is type(model)
    assert any(not torch.equal(value, before[name]) for name, value in back.state_dict().items())
    assert fedra.plan(untrained, rows, model=model, tokenizer=tokenizer)["bytes"] == run.summary["bytes"]


def test_a_run_of_a_model_in_memory_is_resumed_with_it(untrained, rows, trained, tmp_path):
    model, tokenizer = trained.model.to_transformers(), trained.model.to_tokenizer()
    two = untrained.replace(federation={"rounds": 2})
    begin = {"model": model, "tokenizer": tokenizer, "progress": False}
    folder = tmp_path / "run"
    stopped = fedra.run(two, rows, folder=folder, callbacks=[lambda round: round.stop()], **begin)
    assert len(stopped.rounds) == 1
    resumed = fedra.run(two, rows, folder=folder, resume=True, **begin)
    assert weights(resumed) == weights(fedra.run(two, rows, **begin))
    # Nothing is written where there are files already.
    (tmp_path / "other-start").mkdir()
    with pytest.raises(fedra.FolderOccupied, match="other-start: found files"):
        fedra.run(two, rows, folder=tmp_path / "other", **begin)


def test_what_is_no_model_is_refused(untrained, rows, trained):
    with pytest.raises(fedra.ConfigError, match="model: found a int, expected a model of transformers"):
        fedra.run(untrained, rows, model=3)
    with pytest.raises(fedra.ConfigError, match="tokenizer: found a NoneType"):
        fedra.run(untrained, rows, model=trained.model.to_transformers())
    with pytest.raises(fedra.ConfigError, match="applies only with model="):
        fedra.run(untrained, rows, tokenizer=trained.model.to_tokenizer())
