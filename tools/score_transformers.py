"""Scores a saved sequence classifier with transformers and prints its macro F1.

    python tools/score_transformers.py FOLDER ROWS.jsonl

Answers are named by the folder's id2label and compared with the rows' labels, so the score does not
depend on the order of the classes. The test `models` of the command line compares it with the score
that a run gives the same folder, with the Python that FEDRA_PYTHON names.
"""

import argparse
import json
from pathlib import Path

import torch
import transformers


def macro_f1(answers, labels):
    scores = []
    for name in sorted(set(labels) | set(answers)):
        right = sum(a == l == name for a, l in zip(answers, labels))
        said = answers.count(name) + labels.count(name)
        scores.append(2 * right / said)
    return sum(scores) / len(scores)


def main():
    arguments = argparse.ArgumentParser(description="Score a classifier with transformers.")
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("rows", type=Path)
    given = arguments.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = transformers.AutoModelForSequenceClassification.from_pretrained(given.folder).eval()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(given.folder / "tokenizer.json"))
    rows = [json.loads(line) for line in given.rows.read_text().splitlines()]
    answers = []
    with torch.no_grad():
        for row in rows:
            ids = torch.tensor([tokenizer(row["text"])["input_ids"]])
            answers.append(model.config.id2label[model(input_ids=ids).logits.argmax().item()])
    print(macro_f1(answers, [row["label"] for row in rows]))


if __name__ == "__main__":
    main()
