#!/usr/bin/env python3
"""Time `fedra predict` against the same in `transformers` on CPU, interleaved, and compare the answers.

    pip install torch transformers
    python tools/bench_predict.py --fedra target/release/fedra --base models/minilm-l6 --texts notes.jsonl

A head with random weights is put on the base and saved to a temporary folder, which both sides load. Each
repeat runs the peer, then fedra, in processes of their own with the same number of threads. Both times run
from the texts in memory or in the file to the last probability, tokens included, loading the model not. The
peer is given its best batch policy: texts sorted by length, padded to the longest of their batch, and the best
of several batch sizes. `--head words` does it for token classification, where fedra also makes the spans.
"""
import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LABELS = ["alpha", "beta", "gamma", "delta"]
TAGS = ["O", "B-alpha", "I-alpha", "B-beta", "I-beta"]


def make(base, folder, head):
    """The base with a random head, as a folder of its own."""
    import torch
    import transformers

    torch.manual_seed(1)
    names = LABELS if head == "text" else TAGS
    architecture = (transformers.AutoModelForSequenceClassification if head == "text"
                    else transformers.AutoModelForTokenClassification)
    model = architecture.from_pretrained(base, dtype=torch.float32, num_labels=len(names),
                                         id2label=dict(enumerate(names)),
                                         label2id={name: i for i, name in enumerate(names)})
    with torch.no_grad():
        model.classifier.weight.normal_(0.0, 0.3)
    model.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(base).save_pretrained(folder)


def peer(folder, texts, threads, batch, head):
    """One run of the peer, in a process of its own: prints one JSON object."""
    import torch
    import transformers

    torch.set_num_threads(threads)
    transformers.logging.set_verbosity_error()
    architecture = (transformers.AutoModelForSequenceClassification if head == "text"
                    else transformers.AutoModelForTokenClassification)
    model = architecture.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts = [json.loads(line)["text"] for line in Path(texts).read_text().splitlines()]
    answers = [None] * len(texts)
    with torch.inference_mode():
        model(**tokenizer(texts[:2], truncation=True, padding=True, return_tensors="pt"))  # warm
        start = time.perf_counter()
        ids = tokenizer(texts, truncation=True)["input_ids"]
        order = sorted(range(len(texts)), key=lambda place: len(ids[place]))
        for first in range(0, len(order), batch):
            chosen = order[first:first + batch]
            inputs = tokenizer.pad({"input_ids": [ids[place] for place in chosen]}, return_tensors="pt")
            found = torch.softmax(model(**inputs).logits, -1)
            if head == "text":
                for place, row in zip(chosen, found.tolist()):
                    answers[place] = row
            else:
                found.max(-1)
        seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "answers": answers if head == "text" else None}))


def fedra(binary, folder, texts, threads):
    command = [binary, "predict", "--model", folder, "--input", texts, "--threads", str(threads), "--top", "9",
               "--format", "jsonl"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds = float(re.search(r"rows? in ([0-9.]+) s", done.stderr).group(1))
    rate = float(re.search(r"([0-9]+) a second", done.stderr).group(1))
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {"seconds": len(rows) / rate if rate else seconds, "rows": rows}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fedra", default="target/release/fedra")
    parser.add_argument("--base", required=True, help="folder of a BERT encoder")
    parser.add_argument("--texts", required=True, help="JSON lines with a field `text`")
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batches", default="8,32,64")
    parser.add_argument("--head", choices=["text", "words"], default="text")
    parser.add_argument("--as-peer", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.as_peer:
        peer(given.base, given.texts, given.threads, int(given.as_peer), given.head)
        return
    with tempfile.TemporaryDirectory() as place:
        folder, texts = f"{place}/model", f"{place}/texts.jsonl"
        make(given.base, folder, given.head)
        rows = Path(given.texts).read_text().splitlines()[:given.rows]
        lines = [json.dumps({"text": json.loads(row)["text"]}) for row in rows]
        Path(texts).write_text("\n".join(lines) + "\n")
        batches = [int(batch) for batch in given.batches.split(",")]
        times = {batch: [] for batch in batches}
        ours, apart = [], 0.0
        for _ in range(given.repeats):
            for batch in batches:
                command = [sys.executable, __file__, "--base", folder, "--texts", texts, "--as-peer", str(batch),
                           "--threads", str(given.threads), "--head", given.head]
                told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
                times[batch].append(told["seconds"])
            mine = fedra(given.fedra, folder, texts, given.threads)
            ours.append(mine["seconds"])
            if told["answers"]:
                for row, answer in zip(mine["rows"], told["answers"]):
                    apart = max(apart, max(abs(row["probabilities"][name] - p) for name, p in zip(LABELS, answer)))
        count = len(lines)
        for batch, seconds in times.items():
            print(f"transformers, batches of {batch}: {count / statistics.median(seconds):.0f} texts/s, median of "
                  f"{given.repeats} (best {count / min(seconds):.0f})")
        print(f"fedra: {count / statistics.median(ours):.0f} texts/s, median of {given.repeats} "
              f"(best {count / min(ours):.0f})")
        best = min(statistics.median(seconds) for seconds in times.values())
        print(f"peer's best batch / fedra by medians: {best / statistics.median(ours):.2f}")
        if given.head == "text":
            print(f"largest difference of a probability: {apart:.1e}")


if __name__ == "__main__":
    main()
