"""Conversations and preferences in memory."""

import json

import fedra
import pytest
from conftest import weights

pandas, polars, pyarrow = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))


def talks(count: int = 12) -> list[dict]:
    parts = [("My head hurts", "drink water and rest"), ("I cough", "drink warm tea"), ("My foot hurts", "rest it")]
    rows = []
    for place in range(count):
        asked, answer = parts[place % 3]
        messages = [{"role": "user", "content": f"{asked} since day {place}"}, {"role": "assistant", "content": answer}]
        if place % 2:
            messages.insert(0, {"role": "system", "content": "be brief"})
        rows.append({"messages": messages, "clinic": ["north", "south"][place % 2]})
    return rows


def pairs(count: int = 12) -> list[dict]:
    return [
        {
            "prompt": talk["messages"][-2]["content"],
            "chosen": talk["messages"][-1]["content"],
            "rejected": "no idea",
            "clinic": talk["clinic"],
        }
        for talk in talks(count)
    ]


TALKS = {
    "name": "talks",
    "seed": 2,
    "data": {"task": "chat", "columns": {"client": "clinic"}, "shares": {"central": 0.25}, "max_tokens": 64},
    "model": {"preset": "tiny-decoder"},
    "federation": {"rounds": 2},
    "work": {"batch": 4},
}
HOLDERS = {
    "dicts": lambda rows: rows,
    "pandas": pandas.DataFrame,
    "polars": polars.DataFrame,
    "pyarrow": pyarrow.Table.from_pylist,
    "messages as JSON": lambda rows: [row | {"messages": json.dumps(row["messages"])} for row in rows],
    "dataset": lambda rows: pytest.importorskip("datasets").Dataset.from_list(rows),
}


@pytest.fixture(scope="module")
def talked():
    return fedra.run(TALKS, talks(), progress=False)


@pytest.mark.parametrize("holder", HOLDERS)
def test_conversations_give_the_bits_of_the_same_rows_in_a_file(holder, talked, tmp_path):
    if holder == "dicts":
        file = tmp_path / "talks.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in talks()))
        run = fedra.run(fedra.Experiment(TALKS, data={"source": "jsonl", "path": file}), progress=False)
    else:
        run = fedra.run(TALKS, HOLDERS[holder](talks()), progress=False)
    assert weights(run) == weights(talked)
    assert run.summary["score"]["name"] == "negative_loss"


def test_a_conversation_is_answered(talked, tmp_path):
    asked, pieces = [{"role": "user", "content": "I cough"}], []
    answer = talked.model.generate(asked, max_tokens=8, on_text=pieces.append)
    assert "".join(pieces) == answer
    assert fedra.generate(talked, asked, max_tokens=8) == answer
    # The template says what is in front of an answer: as a text it is the same question.
    template = (talked.folder / "model/chat_template.jinja").read_text()
    assert template and talked.model.generate("user: I cough\nassistant:", max_tokens=8).strip() == answer.strip()
    with pytest.raises(fedra.ConfigError, match="prompt: expected a message of the user at the end"):
        talked.model.generate([*asked, {"role": "assistant", "content": "tea"}])
    with pytest.raises(fedra.ConfigError, match="prompt: found .*expected a list of messages"):
        talked.model.generate([{"content": "I cough"}])
    with pytest.raises(fedra.ConfigError, match="applies only to a list of messages"):
        talked.model.generate("I cough", chat_template="plain")


@pytest.mark.parametrize("holder", ["dicts", "pandas", "polars", "pyarrow", "dataset"])
def test_preferences_are_learned_with_adapters(holder, talked):
    tables = {
        **TALKS,
        "data": TALKS["data"] | {"task": "preference"},
        "model": {"path": talked.folder / "model", "lora": {"rank": 2, "head": "frozen"}},
    }
    run = fedra.run(tables, HOLDERS[holder](pairs()), progress=False)
    assert run.summary["score"]["name"] == "preference_accuracy"
    assert run.summary["clients"] == 2
    # Answers may be lists of messages, and the rows mean the same.
    listed = [
        row
        | {
            name: [{"role": role, "content": row[name]}]
            for name, role in (("prompt", "user"), ("chosen", "assistant"), ("rejected", "assistant"))
        }
        for row in pairs()
    ]
    assert weights(fedra.run(tables, HOLDERS[holder](listed), progress=False)) == weights(run)
