"""What is done with a model that has learnt."""

import json
import subprocess

import fedra
import pytest
from conftest import some_rows


def test_a_text_a_list_and_a_frame_get_the_same_labels(trained):
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    texts = [row["note"] for row in some_rows(6)]
    model = trained.model
    listed = model.predict(texts)
    assert model.predict(texts[0]) == listed[0]
    assert {answer["predicted"] for answer in listed} <= set(model.labels)
    assert all(0 < answer["probability"] <= 1 and len(answer["probabilities"]) == 3 for answer in listed)
    labels = [answer["predicted"] for answer in listed]
    # The column is that which the run was trained with.
    frame = model.predict(pandas.DataFrame({"note": texts, "id": range(6)}))
    assert list(frame["predicted"]) == labels and list(frame.columns)[:2] == ["note", "id"]
    assert list(model.predict(polars.DataFrame({"text": texts}), column="text")["predicted"]) == labels
    assert model.predict(pandas.Series(texts)) == listed
    with pytest.raises(fedra.ConfigError, match="expected 'note'"):
        model.predict(pandas.DataFrame({"text": texts}))
    assert fedra.predict(trained, texts) == fedra.predict(trained.folder, texts) == listed


def test_predictions_are_those_of_the_command(trained, command):
    text = some_rows(1)[0]["note"]
    done = subprocess.run([command, "predict", "--model", trained.folder, "--text", text], capture_output=True, text=True)
    told = json.loads(done.stdout)
    ours = trained.model.predict(text)
    assert {key: told[key] for key in ours} == ours


def test_what_cannot_be_labelled_is_named_by_its_place(trained):
    with pytest.raises(fedra.ConfigError, match="data: found a float in place 1, expected a text"):
        trained.model.predict(["x", 1.5])
    with pytest.raises(fedra.Error, match="no .*gone"):
        fedra.predict("gone", "x")


def test_a_model_is_scored_on_an_experiment_and_on_a_file(trained, experiment, tmp_path):
    scored = trained.model.evaluate(experiment.replace(work={"epochs": 4}), some_rows(72))
    central = scored["sets"]["central_test"]
    assert central["scores"]["macro_f1"] == trained.score
    file = tmp_path / "new.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in some_rows(12)))
    of_file = trained.model.evaluate(file, columns={"text": "note", "label": "ward"})
    assert of_file["sets"]["rows"]["examples"] == 12
    with pytest.raises(fedra.ConfigError, match="does not tell its format"):
        trained.model.evaluate(tmp_path / "rows.xlsx")


def test_a_model_becomes_one_of_transformers_with_the_same_answers(trained):
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    model, tokenizer = trained.model.to_transformers(), trained.model.to_tokenizer()
    assert isinstance(model, transformers.PreTrainedModel)
    text = some_rows(1)[0]["note"]
    logits = model(**tokenizer(text, return_tensors="pt")).logits[0].detach()
    probability, label = torch.softmax(logits, 0).max(0)
    ours = trained.model.predict(text)
    assert model.config.id2label[int(label)] == ours["predicted"]
    assert float(probability) == pytest.approx(ours["probability"], abs=1e-5)


def test_a_decoder_writes_behind_a_prompt(repository):
    folder = repository / "../shared/models/stories260k"
    if not folder.is_dir():
        pytest.skip("needs ../shared/models/stories260k")
    model, pieces = fedra.Model(folder), []
    text = model.generate("Once upon a time", max_tokens=12, on_text=pieces.append)
    assert text and "".join(pieces) == text
    drawn = [model.generate("Once", max_tokens=8, temperature=1.0, seed=seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1]
    with pytest.raises(fedra.ConfigError, match="seed: applies only with"):
        model.generate("Once", seed=3)
    with pytest.raises(ZeroDivisionError):
        model.generate("Once", on_text=lambda text: 1 / 0)
