"""Writes crates/data/tests/fixtures/rouge.json: scores and stems of the rouge-score package.

    pip install rouge-score==0.1.2
    python tools/rouge_fixtures.py [DIR]        # DIR holds mts-dialog/test1.jsonl

Pairs and words are of our own making. Of real dialogues and notes only the scores are kept: the
test reads the texts where they are, and is skipped where they are not.
"""

import json
import pathlib
import random
import sys

from nltk.stem.porter import PorterStemmer
from rouge_score import rouge_scorer

ROOTS = """relate condition hesitate digit conform radical differ vile analog operate feud decide
hope call form sens triplic electr good reviv allow infer airlin gyroscop adjust defens irrit
replac depend adopt homolog commun activ angular effect bowdler prob rat ceas control roll
caress pon cat agree plaster motor hop tan fall hiss fizz fail fil happ sk enjoy spy cry try
patient prescrib medicat inflam hypertens diabet cough breath swell bleed infect operat fract
palpat auscult neurolog cardiolog bio archaeo theo geo ped ration nation use fly tie lie die
x1 b12 covid19 yyyy syzygy toy by ivy oaten orrery y ay yes""".split()
ENDINGS = """ s es ed ing er ers ly ally fully ness iveness fulness ation ational ization izer ator
alism ality ivity bility able ible ably ment ement ent ence ance ancy ency ion tion ic ical icate
ative alize icity ful ou ism ate iti ous ously ive ize y ies ied eed ll e logy logi ee""".split(" ")
ENDINGS = [ending.strip() for ending in " ".join(ENDINGS).split()] + [""]


def stems():
    stemmer = PorterStemmer()
    words = {root + ending for root in ROOTS for ending in ENDINGS if (len(root) * 7 + len(ending)) % 4 == 1}
    words |= {root for root in ROOTS}
    words |= set("skies dying lying tying news innings inning outings outing canning cannings".split())
    words |= set("howe proceed exceed succeed dies died flies spied sses ssess ing ed eed".split())
    return {word: stemmer.stem(word) for word in sorted(words) if len(word) > 3}


def texts(draw):
    words = """The patient has had a cough, coughing, and Fever (38.5°C) since two days; denies
    chest-pain/pressure. BP 120/80! Naïve TREATMENT with metformin 500mg was continued -- no
    allergies... He's relational, hoping for surgeries & operations İstanbul Straße Ⅳ K""".split()
    pick = lambda: " ".join(draw.choice(words) for _ in range(draw.randrange(0, 25)))
    return [(pick(), pick()) for _ in range(200)] + [("", ""), ("a", ""), ("", "a"), ("a", "a")]


def scores(scorers, reference, text):
    rows = [scorer.score(reference, text) for scorer in scorers]
    return [row[name].fmeasure for row in rows for name in ("rouge1", "rouge2", "rougeL")]


def main():
    names = ["rouge1", "rouge2", "rougeL"]
    scorers = [rouge_scorer.RougeScorer(names, use_stemmer=stemmed) for stemmed in (False, True)]
    draw = random.Random(1)
    pairs = [[r, t, *scores(scorers, r, t)] for r, t in texts(draw)]
    out = pathlib.Path(__file__).parent.parent / "crates/data/tests/fixtures/rouge.json"
    real = json.loads(out.read_text())["real"] if out.exists() else []
    if len(sys.argv) > 1:
        file = pathlib.Path(sys.argv[1]) / "mts-dialog/test1.jsonl"
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        real = [[round(x, 12) for x in scores(scorers, row["note"], row["dialogue"])] for row in rows]
    text = json.dumps({"stems": stems(), "pairs": pairs, "real": real}, ensure_ascii=False)
    out.write_text(text.replace("], [", "],\n[").replace('}, "', '},\n"') + "\n")


main()
