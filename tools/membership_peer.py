"""Membership results beside scikit-learn: the same scores, its ROC.

    fedra attack membership experiments/membership.toml --out DIR
    python tools/membership_peer.py DIR

Reads DIR/results.jsonl and DIR/VARIANT.csv, and prints the largest difference of the area under the
curve and of the true positive rates. Needs numpy and scikit-learn.
"""

import csv
import json
import pathlib
import sys

import numpy
from sklearn.metrics import roc_auc_score, roc_curve

NAMES = {"loss_threshold": "loss threshold", "lira": "LiRA"}


def main():
    folder = pathlib.Path(sys.argv[1])
    worst = 0.0
    for line in (folder / "results.jsonl").read_text().splitlines():
        ours = json.loads(line)
        with open(folder / f"{ours['variant']}.csv", newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["attack"] == NAMES[ours["attack"]]]
        member = numpy.array([int(row["member"]) for row in rows])
        score = numpy.array([float(row["score"]) for row in rows])
        fpr, tpr, _ = roc_curve(member, score, drop_intermediate=False)
        pairs = [("AUC", ours["auc"]["value"], roc_auc_score(member, score))]
        for found in ours["found"]:
            theirs = tpr[fpr <= found["fpr"]].max()
            pairs.append((f"TPR at {found['fpr']}", found["value"], theirs))
        for name, mine, theirs in pairs:
            worst = max(worst, abs(mine - theirs))
            print(f"{ours['variant']:16} {ours['attack']:15} {name:12} {mine:.6f} {theirs:.6f}")
    print(f"largest difference {worst:.2e}")
    return 0 if worst < 1e-9 else 1


if __name__ == "__main__":
    sys.exit(main())
