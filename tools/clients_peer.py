"""Training steps per second of several clients on one GPU, in PyTorch: what `fedra bench clients` is compared with.

Each client trains its own copy of a Vision Transformer of 6 blocks of width 192 (images of 28 x 28, patches of 4) with
AdamW in bf16, in a process of its own, which is how people run clients side by side on one GPU.

    python tools/clients_peer.py --processes 12            # --compile for torch.compile
"""

import argparse
import json
import time

import torch
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, tokens, width = x.shape
        qkv = self.qkv(self.norms[0](x)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2])
        x = x + self.out(attended.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Vit(nn.Module):
    def __init__(self, blocks=6, width=192, heads=3, side=28, patch=4, classes=10):
        super().__init__()
        self.patches = nn.Conv2d(1, width, patch, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, (side // patch) ** 2 + 1, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, images, labels):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1) + self.positions
        return F.cross_entropy(self.head(self.norm(self.blocks(x))[:, 0]).float(), labels)


def client(number, options, ready, rates):
    torch.set_num_threads(1)
    torch.manual_seed(number)
    with torch.device("cuda"):
        model = Vit()
        batches = [(torch.randn(options.batch, 1, 28, 28), torch.randint(10, (options.batch,))) for _ in range(4)]
    run = torch.compile(model, mode="reduce-overhead") if options.compile else model
    optimiser = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)

    def steps(count):
        for step in range(count):
            with torch.autocast("cuda", torch.bfloat16):
                loss = run(*batches[step % len(batches)])
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
        torch.cuda.synchronize()

    steps(10)
    ready.wait()
    start = time.perf_counter()
    steps(options.steps)
    rates.put((start, time.perf_counter()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    context = mp.get_context("spawn")
    ready, rates = context.Barrier(options.processes), context.Queue()
    clients = [context.Process(target=client, args=(number, options, ready, rates)) for number in range(options.processes)]
    for process in clients:
        process.start()
    times = [rates.get() for _ in clients]
    for process in clients:
        process.join()
    seconds = max(end for _, end in times) - min(start for start, _ in times)
    print(json.dumps({
        "peer": f"torch {torch.__version__}", "processes": options.processes, "batch": options.batch,
        "compile": options.compile, "steps_per_s": round(options.processes * options.steps / seconds, 1),
    }))


if __name__ == "__main__":
    main()
