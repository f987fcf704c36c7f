#!/usr/bin/env python3
"""Time `fedra bench step --dp` beside Opacus on the same work, interleaved.

    pip install torch opacus
    python tools/dp_step_peer.py --fedra target/dist/fedra --repeats 3 --threads 2

The peer trains an encoder of MiniLM's shape (6 blocks of width 384) on random tokens, as the command
does: one label of 16 for each sequence, flat clipping, noise on every weight, AdamW. It runs plain, with
GradSampleModule (`hooks`: a gradient for each example is made) and with ghost clipping (`ghost`: norms
first, then a second backward pass). Each repeat runs every side once, in a process of its own; the table
gives the median over repeats of each run's median step, the best step of all, the private step's speed
relative to the plain step of the same library, and peak memory.
"""
import argparse
import json
import statistics
import subprocess
import sys

SIDES = ["plain", "hooks", "ghost"]


def peer(mode, batch, seq, threads, steps):
    """One run of the peer; prints one JSON object."""
    import resource
    import time
    import warnings

    import opacus
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
    from opacus.grad_sample import GradSampleModule
    from opacus.grad_sample.grad_sample_module_fast_gradient_clipping import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizer
    from opacus.optimizers.optimizer_fast_gradient_clipping import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    words, classes = 30522, 16

    class Block(nn.Module):
        def __init__(self, width, heads, inner):
            super().__init__()
            self.heads = heads
            self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
            self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
            self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)

        def forward(self, x):
            b, t, d = x.shape
            split = lambda z: z.view(b, t, self.heads, d // self.heads).transpose(1, 2)
            y = F.scaled_dot_product_attention(split(self.q(x)), split(self.k(x)), split(self.v(x)))
            x = self.n1(x + self.o(y.transpose(1, 2).reshape(b, t, d)))
            return self.n2(x + self.down(F.gelu(self.up(x))))

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.token, self.position, self.norm = nn.Embedding(words, 384), nn.Embedding(512, 384), nn.LayerNorm(384)
            self.blocks = nn.Sequential(*(Block(384, 12, 1536) for _ in range(6)))
            self.head = nn.Linear(384, classes)

        def forward(self, x):
            places = torch.arange(x.shape[1]).expand_as(x).contiguous()
            return self.head(self.blocks(self.norm(self.token(x) + self.position(places)))[:, 0])

    model = Encoder()
    how = dict(noise_multiplier=1.0, max_grad_norm=0.1, expected_batch_size=batch)
    adamw = lambda parameters: torch.optim.AdamW(parameters, 1e-4, fused=mode == "plain")
    if mode == "plain":
        optimiser, loss_of = adamw(model.parameters()), nn.CrossEntropyLoss()
    elif mode == "hooks":
        model = GradSampleModule(model)
        optimiser, loss_of = DPOptimizer(adamw(model.parameters()), **how), nn.CrossEntropyLoss()
    else:
        model = GradSampleModuleFastGradientClipping(
            model, max_grad_norm=0.1, use_ghost_clipping=True, loss_reduction="mean"
        )
        optimiser = DPOptimizerFastGradientClipping(adamw(model.parameters()), **how)
        loss_of = DPLossFastGradientClipping(model, optimiser, nn.CrossEntropyLoss(reduction="mean"))
    draw = torch.Generator().manual_seed(1)

    def step():
        x = torch.randint(0, words, (batch, seq), generator=draw)
        y = torch.randint(0, classes, (batch,), generator=draw)
        start = time.perf_counter()
        optimiser.zero_grad(set_to_none=True)
        loss_of(model(x), y).backward()
        optimiser.step()
        return time.perf_counter() - start

    for _ in range(2):
        step()
    times = sorted(step() for _ in range(steps))
    print(json.dumps({
        "peer": f"opacus {opacus.__version__}, torch {torch.__version__}, {mode}",
        "median_ms": round(times[len(times) // 2] * 1e3, 2),
        "best_ms": round(times[0] * 1e3, 2),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }))


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fedra", default="target/dist/fedra")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seq", type=int, default=128)
    parser.add_argument("--side", choices=SIDES, help="run one side of the peer and print its JSON object")
    options = parser.parse_args()
    if options.side:
        return peer(options.side, options.batch, options.seq, options.threads, options.steps)
    shape = ["--batch", str(options.batch), "--seq", str(options.seq)]
    shape += ["--threads", str(options.threads), "--steps", str(options.steps)]
    peers, ours = {side: [] for side in SIDES}, []
    for _ in range(options.repeats):
        for side in SIDES:
            peers[side].append(run([sys.executable, __file__, "--side", side, *shape]))
        ours.append(run([options.fedra, "bench", "step", "--dp", "--json", *shape]))
    rows = {f"opacus {side}" if side != "plain" else "torch plain": runs for side, runs in peers.items()}
    rows["fedra plain"] = [{**run["plain"], "peak_bytes": run["plain"]["pool_bytes"]} for run in ours]
    rows["fedra private"] = [{**run["private"], "peak_bytes": run["private"]["pool_bytes"]} for run in ours]
    plain = {"opacus": "torch plain", "fedra": "fedra plain", "torch": "torch plain"}
    median = lambda name: statistics.median(run["median_ms"] for run in rows[name])
    best = lambda name: min(run["best_ms"] for run in rows[name])
    print("| side | ms a step, median (best) | speed against the same library's plain step (best) | peak memory |")
    print("| --- | --- | --- | --- |")
    for name in rows:
        base = plain[name.split()[0]]
        memory = max(run["peak_bytes"] for run in rows[name]) / 1e6
        print(
            f"| {name} | {median(name):.0f} ({best(name):.0f}) "
            f"| {median(base) / median(name):.2f} ({best(base) / best(name):.2f}) | {memory:.0f} MB |"
        )
    print(f"\nfedra, by neighbouring pairs of steps: {[run['speed'] for run in ours]}")
    print(f"fedra, high-water mark of tensors, private / plain: {[run['memory'] for run in ours]}")


if __name__ == "__main__":
    main()
