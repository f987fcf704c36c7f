#!/usr/bin/env python3
"""The federation of experiments/mtsamples-sections.toml in Apple's pfl, as a peer of `fedra run`.

    python -m venv VENV && VENV/bin/pip install "pfl[pytorch]==0.6.0" transformers    # Python 3.10 to 3.12
    VENV/bin/python tools/pfl_peer.py --model models/minilm-l6 \\
        --train mtsamples/sections16_train.jsonl.gz --test mtsamples/sections16_test.jsonl.gz

A user is a client of the experiment, and all of them take part in every round. Each starts from the shared weights
with a new AdamW and passes once over its rows in a new order; their differences are averaged by numbers of rows, and
the test set is scored after every round. As in fedra, nothing is dropped out. Rows are tokenised once and stay on the
device, a batch is padded to its longest row, and nothing waits for the GPU within a client's steps.

pfl has several users at work by several processes. They may share a GPU (`--processes`): NCCL, which pfl 0.6 asks for
on GPUs, refuses that, so they add up their updates by Gloo. Its `use_torch_compile` compiles `forward`, but pfl calls
`loss`, so that `--compile` compiles the network within.

Prints one JSON object a round and one of the whole run. A round is timed until its scores are known.
"""

import argparse
import collections
import dataclasses
import functools
import gzip
import importlib.metadata
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import transformers

if "PFL_WORKER_ADDRESSES" in os.environ:  # read by pfl while it is imported
    join = torch.distributed.init_process_group
    torch.distributed.init_process_group = lambda **given: join(**given | {"backend": "gloo"})

from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.callback.central_evaluation import CentralEvaluationCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import MinimizeReuseUserSampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.internal.ops.pytorch_ops import distributed
from pfl.metrics import Metrics, StringMetricName, Summed, Weighted
from pfl.model.pytorch import PyTorchModel

PADDING = 0  # [PAD] of BERT's vocabularies
COUNTS = ["clients", "rows", "steps", "tokens", "padded_tokens"]


class Rows(Dataset):
    """Tokenised rows on the device, shuffled anew in each pass where there is a generator."""

    def __init__(self, ids, targets, lengths, multiple, generator=None, user_id=None):
        super().__init__((ids, targets), user_id=user_id)
        self.lengths, self.multiple, self.generator = lengths, multiple, generator
        self.counts = None

    def iter(self, batch_size):
        ids, targets = self.raw_data
        order = self.generator.permutation(len(self)) if self.generator else np.arange(len(self))
        starts = np.arange(0, len(self), batch_size)
        longest = np.maximum.reduceat(self.lengths[order], starts)
        widths = np.minimum(-(-longest // self.multiple) * self.multiple, ids.shape[1])
        sizes = np.diff(starts, append=len(self))
        self.counts = dict(zip(COUNTS, [1, len(self), len(starts), self.lengths.sum(), widths @ sizes]))
        order = torch.from_numpy(order)
        if ids.is_cuda:
            order = order.pin_memory().to(ids.device, non_blocking=True)
        for start, width in zip(starts.tolist(), widths.tolist()):
            rows = order[start : start + batch_size]
            yield ids[:, :width][rows], targets[rows]

    def get_worker_partition(self):
        part = slice(distributed.global_rank, None, distributed.world_size)
        ids, targets = self.raw_data
        return Rows(ids[part], targets[part], self.lengths[part], self.multiple)


class Classifier(torch.nn.Module):
    """What pfl asks of a module, around a classifier of `transformers`."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, ids):
        # A mask of four axes is taken as it is; one of two would be read back in every step.
        return self.network(input_ids=ids, attention_mask=(ids != PADDING)[:, None, None, :]).logits

    def loss(self, ids, targets):
        if not self.training:
            self.train()
        return F.cross_entropy(self(ids), targets)

    @torch.inference_mode()
    def metrics(self, ids, targets):
        if self.training:
            self.eval()
        logits = self(ids)
        right = (logits.argmax(-1) == targets).sum()
        loss = F.cross_entropy(logits, targets, reduction="sum")
        right, loss = torch.stack([right, loss]).tolist()
        return {"accuracy": Weighted(right, len(targets)), "loss": Weighted(loss, len(targets))}


class Averaging(FederatedAveraging):
    """pfl would score each client's own rows in the first round; work is counted instead."""

    def simulate_one_user(self, model, user_dataset, central_context):
        central_context = dataclasses.replace(central_context, do_evaluation=False)
        statistics, metrics = super().simulate_one_user(model, user_dataset, central_context)
        counts = [(StringMetricName(name), Summed(int(count))) for name, count in user_dataset.counts.items()]
        return statistics, metrics | Metrics(counts)


class Scored(CentralEvaluationCallback):
    """pfl scores before the first round and not after it; here it is the other way round."""

    def on_train_begin(self, *, model):
        return Metrics()

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        return super().after_central_iteration(aggregate_metrics, model, central_iteration=central_iteration + 1)


class Report(TrainingProcessCallback):
    """Prints a line a round, and keeps them."""

    def __init__(self, settings):
        self.settings, self.rounds = settings, []

    def on_train_begin(self, *, model):
        self.begun = time.perf_counter()
        return Metrics()

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        now = time.perf_counter()
        metrics = aggregate_metrics.to_simple_dict(to_lowercase=True)
        line = {"round": central_iteration + 1, "seconds": round(now - self.begun, 4)}
        line |= {name: int(metrics[name]) for name in COUNTS}
        line |= {name: round(metrics[f"central val | {name}"], 5) for name in ["loss", "accuracy"]}
        self.rounds.append(line)
        if distributed.global_rank == 0:
            print(json.dumps(line), flush=True)
        self.begun = time.perf_counter()
        return False, Metrics()

    def on_train_end(self, *, model):
        peak = 0
        if torch.cuda.is_initialized():
            # Of all processes together; in MiB, because pfl adds up as f32.
            peak = torch.tensor([torch.cuda.max_memory_allocated() / 2**20], device="cuda")
            peak = round(distributed.all_reduce([peak])[0].item() * 2**20)
        if distributed.global_rank == 0:
            total = {name: sum(line[name] for line in self.rounds) for name in ["seconds", *COUNTS]}
            total |= {"seconds": round(total["seconds"], 4), "peak_bytes": peak or None}
            print(json.dumps(self.settings | {"rounds": len(self.rounds)} | total), flush=True)


def read(path):
    with (gzip.open if str(path).endswith(".gz") else open)(path, "rt") as file:
        return [json.loads(line) for line in file]


def made(options, labels):
    """The classifier, with random weights where the folder has none."""
    config = transformers.AutoConfig.from_pretrained(options.model, num_labels=len(labels))
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = options.dropout
    family = transformers.AutoModelForSequenceClassification
    choices = {"config": config, "attn_implementation": "sdpa", "dtype": torch.float32}
    if options.fresh or not (options.model / "model.safetensors").exists():
        return family.from_config(**choices)
    return family.from_pretrained(options.model, **choices)


def federation(options):
    """The clients' rows, small clients together, and the test set from the longest row to the shortest."""
    train, test = read(options.train), read(options.test)
    labels = {label: number for number, label in enumerate(sorted({row["label"] for row in train}))}
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)

    def tokenised(rows, **kind):
        encoded = tokenizer([row["text"] for row in rows], truncation=True, max_length=options.max_tokens)["input_ids"]
        lengths = np.array([len(tokens) for tokens in encoded])
        ids = np.full((len(rows), lengths.max()), PADDING)
        for line, tokens in zip(ids, encoded):
            line[: len(tokens)] = tokens
        targets = torch.tensor([labels[row["label"]] for row in rows], device=options.device)
        return Rows(torch.from_numpy(ids).to(options.device), targets, lengths, options.multiple, **kind)

    sizes = collections.Counter(row["client"] for row in train)
    clients = collections.defaultdict(list)
    for row in train:
        clients[row["client"] if sizes[row["client"]] >= options.min_examples else "others"].append(row)
    users = {
        name: tokenised(rows, user_id=name, generator=np.random.default_rng([options.seed, number]))
        for number, (name, rows) in enumerate(sorted(clients.items()))
    }
    test.sort(key=lambda row: -len(row["text"]))
    return users, tokenised(test), labels


def launch(processes):
    """This script in several processes, as pfl's documentation has it."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    known = os.environ | {"PFL_WORKER_ADDRESSES": ",".join([f"localhost:{port}"] * processes)}
    workers = [
        subprocess.Popen([sys.executable, *sys.argv], env=known | {"PFL_WORKER_RANK": str(rank)})
        for rank in range(processes)
    ]
    sys.exit(max(worker.wait() for worker in workers))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--test", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True, help="a folder of BERT's family, with or without weights")
    parser.add_argument("--fresh", action="store_true", help="random weights, even if the folder has some")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--test-batch", type=int, default=512)
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--min-examples", type=int, default=200, help="clients with fewer rows become one")
    parser.add_argument("--multiple", type=int, default=1, help="pad to a multiple of this many tokens")
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument("--weight-decay", type=float, default=0.01)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--device", default="cuda", help="cuda or cpu")
    parser.add_argument("--precision", choices=["bf16", "tf32", "f32"], default="bf16")
    parser.add_argument("--processes", type=int, default=1, help="users at work at a time, each in a process")
    parser.add_argument("--compile", nargs="?", const="default", metavar="MODE", help="torch.compile, in this mode")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, help="of each process on the CPU")
    options = parser.parse_args()
    if options.processes > 1 and "PFL_WORKER_RANK" not in os.environ:
        launch(options.processes)

    os.environ["PFL_PYTORCH_DEVICE"] = options.device
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.precision == "tf32":
        torch.set_float32_matmul_precision("high")
    np.random.seed(options.seed)
    torch.manual_seed(options.seed)
    on_gpu = options.device.startswith("cuda")

    begun = time.perf_counter()
    users, test, labels = federation(options)
    network = made(options, labels)
    if options.compile:
        network.compile(mode=options.compile, dynamic=True)
    classifier = Classifier(network).to(options.device)
    model = PyTorchModel(
        model=classifier,
        local_optimizer_create=functools.partial(torch.optim.AdamW, weight_decay=options.weight_decay, fused=on_gpu),
        central_optimizer=torch.optim.SGD(classifier.parameters(), lr=1.0),
        amp_dtype=torch.bfloat16 if options.precision == "bf16" else None,
    )
    settings = {
        "peer": f"pfl {importlib.metadata.version('pfl')}", "torch": torch.__version__,
        "transformers": transformers.__version__, "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "precision": options.precision, "processes": options.processes, "compile": options.compile,
        "batch": options.batch, "max_tokens": options.max_tokens, "multiple": options.multiple,
        "labels": len(labels), "test_rows": len(test), "parameters": sum(p.numel() for p in classifier.parameters()),
        "setup_seconds": round(time.perf_counter() - begun, 3),
    }
    everyone = FederatedDataset(
        users.__getitem__,
        MinimizeReuseUserSampler(list(users)),  # goes round, so that a cohort of all is everyone once
        user_id_to_weight={name: len(rows) for name, rows in users.items()},
    )
    Averaging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=options.rounds, evaluation_frequency=1,
            train_cohort_size=len(users), val_cohort_size=None,
        ),
        backend=SimulatedBackend(everyone, val_data=everyone, postprocessors=[WeightByDatapoints()]),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_batch_size=options.batch, local_num_epochs=1, local_learning_rate=options.rate,
        ),
        callbacks=[Scored(test, NNEvalHyperParams(local_batch_size=options.test_batch)), Report(settings)],
        send_metrics_to_platform=False,
    )


if __name__ == "__main__":
    main()
