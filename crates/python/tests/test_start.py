"""Models of transformers in memory, as the start of a run."""

import tomllib

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


def test_a_stopped_run_of_a_model_in_memory_goes_on_without_a_folder_and_after_it_was_kept(untrained, rows, trained, tmp_path):
    begin = {"model": trained.model.to_transformers(), "tokenizer": trained.model.to_tokenizer(), "progress": False}
    two = untrained.replace(federation={"rounds": 2})
    whole = fedra.run(two, rows, **begin)
    assert weights(fedra.run(two, rows, callbacks=[lambda round: round.stop()], **begin).resume(progress=False)) == weights(whole)
    stopped = fedra.run(two, rows, callbacks=[lambda round: round.stop()], **begin)
    kept = stopped.keep(tmp_path / "kept")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "kept-start"]
    assert weights(kept.resume(progress=False)) == weights(whole)
    assert str(tmp_path / "kept-start") in (kept.folder / "experiment.toml").read_text()


@pytest.fixture
def adapted(trained):
    """A model of peft in memory, with adapters that are not zero and a head of their own."""
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=2, lora_alpha=4, target_modules=["query", "value"], task_type="SEQ_CLS")
    torch.manual_seed(5)
    model = peft.get_peft_model(trained.model.to_transformers(), config, adapter_name="wards")
    with torch.no_grad():
        for name, value in model.named_parameters():
            if value.requires_grad:
                value.add_(torch.randn_like(value) * 0.1)
    return model


def logits(model, tokenizer, text="chest pain for 2 days"):
    with torch.no_grad():
        return model.eval()(**tokenizer(text, return_tensors="pt")).logits[0]


def test_adapters_in_memory_go_on_learning_and_come_back(untrained, rows, trained, adapted, tmp_path):
    tokenizer = trained.model.to_tokenizer()
    before = {name: value.clone() for name, value in adapted.state_dict().items()}
    begin = logits(adapted, tokenizer)
    # With a rate of nothing a run gives back what it began with.
    still = untrained.replace(work={"optimiser": {"name": "sgd", "rate": 1e-30}})
    same = fedra.run(still, rows, progress=False, model=adapted, tokenizer=tokenizer)
    assert torch.allclose(logits(same.model.to_transformers(), tokenizer), begin, atol=1e-5)
    run = fedra.run(untrained, rows, folder=tmp_path / "run", progress=False, model=adapted, tokenizer=tokenizer)
    after = adapted.state_dict()
    assert before.keys() == after.keys() and all(torch.equal(after[name], value) for name, value in before.items())
    back = run.model.to_peft()
    assert type(back).__name__ == "PeftModelForSequenceClassification"
    learned = logits(back, tokenizer)
    assert torch.allclose(learned, logits(run.model.to_transformers(), tokenizer), atol=1e-5)
    assert not torch.allclose(learned, begin, atol=1e-4)
    kept = tomllib.loads((tmp_path / "run/experiment.toml").read_text())["model"]
    assert kept["adapter"] == str(tmp_path / "run-start/adapter")


def test_a_run_that_leaves_adapters_alone_gives_them_as_those_of_peft(untrained, rows, trained, tmp_path):
    pytest.importorskip("peft")
    experiment = untrained.replace(model={"lora": {"rank": 2}, "weights": "bf16"})
    start = {"model": trained.model.to_transformers(), "tokenizer": trained.model.to_tokenizer()}
    run = fedra.run(experiment, rows, progress=False, **start).keep(tmp_path / "kept")
    assert not (run.folder / "model").exists() and run.model.path == run.folder / "adapter"
    model, tokenizer = run.model.to_transformers(), run.model.to_tokenizer()
    assert type(model).__name__ == "PeftModelForSequenceClassification"
    text = rows[0]["note"]
    ours = run.model.predict(text)
    probability, label = torch.softmax(logits(model, tokenizer, text), 0).max(0)
    assert model.config.id2label[int(label)] == ours["predicted"]
    # Its base was stored in bf16.
    assert float(probability) == pytest.approx(ours["probability"], abs=0.02)


def test_adapters_that_cannot_be_taken_are_refused(untrained, rows, trained):
    peft = pytest.importorskip("peft")
    inside = trained.model.to_transformers()
    inside.add_adapter(peft.LoraConfig(r=2, target_modules=["query", "value"]))
    with pytest.raises(fedra.ConfigError, match="model: found adapters that transformers has added"):
        fedra.run(untrained, rows, model=inside, tokenizer=trained.model.to_tokenizer())
