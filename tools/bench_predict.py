#!/usr/bin/env python3
"""Time `fedra predict` against the same in `transformers` on CPU, interleaved, and compare the answers.

    pip install torch transformers
    python tools/bench_predict.py --fedra target/dist/fedra --base models/minilm-l6 --texts notes.jsonl

A head with random weights is put on the base and saved to a temporary folder, which both sides load. Each
repeat runs the peer, in this process, and then fedra, in one of its own, with the same number of threads. Both
times run from the texts in memory or in the file to the last probability, tokens included, loading the model
not. The peer is given its best batch policy: texts sorted by length, padded to the longest of their batch, and
the best of several batch sizes. On a machine that others use too, `--clock cpu --threads 1` counts processor
time instead; that of fedra is then the difference to a run on one text. `--head words` does it for token classification, where fedra also makes the spans.
"""
import argparse
import json
import re
import resource
import statistics
import subprocess
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


class Peer:
    """transformers with the model loaded."""

    def __init__(self, folder, threads, head):
        import torch
        import transformers

        torch.set_num_threads(threads)
        architecture = (transformers.AutoModelForSequenceClassification if head == "text"
                        else transformers.AutoModelForTokenClassification)
        self.torch, self.head = torch, head
        self.model = architecture.from_pretrained(folder, dtype=torch.float32).eval()
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    def run(self, texts, batch, clock):
        """Seconds, and by text the probabilities of a head for texts."""
        answers = [None] * len(texts)
        with self.torch.inference_mode():
            start = clock()
            ids = self.tokenizer(texts, truncation=True)["input_ids"]
            order = sorted(range(len(texts)), key=lambda place: len(ids[place]))
            for first in range(0, len(order), batch):
                chosen = order[first:first + batch]
                inputs = self.tokenizer.pad({"input_ids": [ids[place] for place in chosen]}, return_tensors="pt")
                found = self.torch.softmax(self.model(**inputs).logits, -1)
                if self.head == "text":
                    for place, row in zip(chosen, found.tolist()):
                        answers[place] = row
                else:
                    found.max(-1)
            return clock() - start, answers


def children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def fedra(binary, folder, texts, threads):
    before = children()
    command = [binary, "predict", "--model", folder, "--input", texts, "--threads", str(threads), "--top", "9",
               "--format", "jsonl"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds = float(re.search(r"rows? in ([0-9.]+) s", done.stderr).group(1))
    rate = float(re.search(r"([0-9]+) a second", done.stderr).group(1))
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    wall = len(rows) / rate if rate else seconds
    return {"wall": wall, "cpu": children() - before, "rows": rows}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fedra", default="target/dist/fedra")
    parser.add_argument("--base", required=True, help="folder of a BERT encoder")
    parser.add_argument("--texts", required=True, help="JSON lines with a field `text`")
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batches", default="8,32,64")
    parser.add_argument("--head", choices=["text", "words"], default="text")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    given = parser.parse_args()
    import transformers

    clock = time.perf_counter if given.clock == "wall" else time.process_time

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as place:
        folder, texts = f"{place}/model", f"{place}/texts.jsonl"
        make(given.base, folder, given.head)
        rows = Path(given.texts).read_text().splitlines()[:given.rows]
        lines = [json.dumps({"text": json.loads(row)["text"]}) for row in rows]
        Path(texts).write_text("\n".join(lines) + "\n")
        batches = [int(batch) for batch in given.batches.split(",")]
        times = {batch: [] for batch in batches}
        ours, apart = [], 0.0
        peer, plain = Peer(folder, given.threads, given.head), [json.loads(line)["text"] for line in lines]
        peer.run(plain[:8], 8, clock)  # warm
        Path(f"{place}/one.jsonl").write_text(lines[0] + "\n")
        for _ in range(given.repeats):
            for batch in batches:
                seconds, answers = peer.run(plain, batch, clock)
                times[batch].append(seconds)
            mine = fedra(given.fedra, folder, texts, given.threads)
            loading = 0.0
            if given.clock == "cpu":
                loading = fedra(given.fedra, folder, f"{place}/one.jsonl", given.threads)["cpu"]
            ours.append(mine[given.clock] - loading)
            if given.head == "text":
                for row, answer in zip(mine["rows"], answers):
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
