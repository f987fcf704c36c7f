#!/usr/bin/env python3
"""One training step of a model of `transformers`, as a peer of `fedra bench step`: forward, backward, fused AdamW.

    python tools/transformers_step.py --shape vit-s --batch 16 --threads 2
    python tools/transformers_step.py --shape modernbert-base --batch 8 --seq 128 --threads 2

Fresh weights, f32, scaled_dot_product_attention, sequences of equal length without padding, 16 classes. Prints one
JSON object with the fields of `fedra bench step --json`.
"""
import argparse
import json
import resource
import statistics
import time

import torch
import transformers

CLASSES = 16


def made(shape):
    """The model, and how a random batch of it is drawn."""
    if shape == "vit-s":
        config = transformers.ViTConfig(hidden_size=384, num_attention_heads=6, intermediate_size=1536,
                                        num_labels=CLASSES, attn_implementation="sdpa")
        draw = lambda batch, _seq: {"pixel_values": torch.randn(batch, 3, 224, 224)}
        return transformers.ViTForImageClassification(config), draw
    config = transformers.ModernBertConfig(num_labels=CLASSES, attn_implementation="sdpa",
                                           reference_compile=False)
    draw = lambda batch, seq: {"input_ids": torch.randint(0, config.vocab_size, (batch, seq))}
    return transformers.ModernBertForSequenceClassification(config), draw


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=["vit-s", "modernbert-base"], required=True)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seq", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=12)
    given = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(given.threads)
    transformers.logging.set_verbosity_error()
    model, draw = made(given.shape)
    model.train()
    optimiser = torch.optim.AdamW(model.parameters(), 1e-4, weight_decay=0.01, fused=True)

    def step():
        batch = draw(given.batch, given.seq) | {"labels": torch.randint(0, CLASSES, (given.batch,))}
        start = time.perf_counter()
        loss = model(**batch).loss
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        return time.perf_counter() - start

    for _ in range(3):
        step()
    times = [1e3 * step() for _ in range(given.steps)]
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"shape": given.shape, "batch": given.batch, "median_ms": statistics.median(times),
                      "best_ms": min(times), "peak_bytes": peak}))


if __name__ == "__main__":
    main()
