#!/usr/bin/env python3
"""Prints scikit-learn's macro and micro F1 of the examples in crates/data/src/scores/labels.rs.

    python tools/score_fixtures.py            (needs scikit-learn; see requirements.txt)
"""
from sklearn.metrics import f1_score
from sklearn.preprocessing import MultiLabelBinarizer

LABELS = range(5)
CODES = [([0, 2], [0]), ([2, 4], [2, 1]), ([], []), ([0], [0, 2])]
CLASSES = [(0, 0), (2, 2), (4, 1), (2, 0), (0, 0)]


def main():
    matrix = MultiLabelBinarizer(classes=list(LABELS))
    truth, guess = (matrix.fit_transform(sets) for sets in zip(*CODES))
    for average in ("macro", "micro"):
        print("codes", average, f1_score(truth, guess, average=average, zero_division=0))
    truth, guess = zip(*CLASSES)
    print("classes macro", f1_score(truth, guess, average="macro", zero_division=0))


if __name__ == "__main__":
    main()
