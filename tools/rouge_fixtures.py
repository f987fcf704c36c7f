"""Writes crates/data/tests/fixtures/rouge.json: scores of the rouge-score package.

    pip install rouge-score==0.1.2
    python tools/rouge_fixtures.py [DIR]        # DIR holds mts-dialog/test1.jsonl

Pairs are of our own making. Of real dialogues and notes only the scores are kept: the
test reads the texts where they are, and is skipped where they are not.
"""

import json
import pathlib
import random
import sys

from rouge_score import rouge_scorer


def texts(draw):
    words = """The patient has had a cough, coughing, and Fever (38.5°C) since two days; denies
    chest-pain/pressure. BP 120/80! Naïve TREATMENT with metformin 500mg was continued -- no
    allergies... He's relational, hoping for surgeries & operations İstanbul Straße Ⅳ K""".split()
    pick = lambda: " ".join(draw.choice(words) for _ in range(draw.randrange(0, 25)))
    return [(pick(), pick()) for _ in range(200)] + [("", ""), ("a", ""), ("", "a"), ("a", "a")]


def scores(scorer, reference, text):
    return [score.fmeasure for score in scorer.score(reference, text).values()]


def main():
    scorer = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL"])
    draw = random.Random(1)
    pairs = [[r, t, *scores(scorer, r, t)] for r, t in texts(draw)]
    out = pathlib.Path(__file__).parent.parent / "crates/data/tests/fixtures/rouge.json"
    real = json.loads(out.read_text())["real"] if out.exists() else []
    if len(sys.argv) > 1:
        file = pathlib.Path(sys.argv[1]) / "mts-dialog/test1.jsonl"
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        real = [[round(x, 12) for x in scores(scorer, row["note"], row["dialogue"])] for row in rows]
    text = json.dumps({"pairs": pairs, "real": real}, ensure_ascii=False)
    out.write_text(text.replace("], [", "],\n[").replace('}, "', '},\n"') + "\n")


main()
