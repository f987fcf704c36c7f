#!/usr/bin/env python3
"""Time `fedra bench split --whole-only` against `transformers` generate with a cache, interleaved.

    pip install torch transformers
    python tools/generate_peer.py --fedra target/dist/fedra --threads 2 --contexts 100,4000 --repeats 5

Both write with fresh f32 weights of the SmolLM2-135M shape, greedily, behind a random context. Each
context runs peer, fedra, peer, fedra, ... in processes of their own, so that a noisy machine is noisy for
both. The table gives tokens per second by the median over the repeats of each run's median token, and by
the best token of all.
"""
import argparse
import json
import statistics
import subprocess
import sys
import time


def peer(context, tokens, threads):
    """One run of the peer, in a process of its own: prints one JSON object."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=49152, hidden_size=576, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3,
        intermediate_size=1536, max_position_embeddings=8192, tie_word_embeddings=True, bos_token_id=None,
        eos_token_id=None, pad_token_id=0,
    )
    model = LlamaForCausalLM(config).eval()

    class Clock:
        """Takes the time at which each token comes."""

        def __init__(self):
            self.times = []

        def put(self, _):
            self.times.append(time.perf_counter())

        def end(self):
            pass

    ids, clock = torch.randint(0, 49152, (1, context)), Clock()
    with torch.inference_mode():
        model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens + 1, do_sample=False, streamer=clock
        )
    # The first call hands over the prompt, the second the token that came with it.
    times = clock.times[1:]
    steps = [after - before for before, after in zip(times, times[1:])]
    print(json.dumps({"median": 1 / statistics.median(steps), "best": 1 / min(steps)}))


def output(command):
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fedra", default="target/dist/fedra")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--contexts", default="100,4000")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--peer-run", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer_run:
        return peer(options.peer_run, options.tokens, options.threads)
    both = ["--threads", str(options.threads), "--tokens", str(options.tokens)]
    print("| context | peer tokens/s, median (best) | fedra tokens/s, median (best) | fedra / peer |")
    print("| --- | --- | --- | --- |")
    for context in options.contexts.split(","):
        runs = []
        for _ in range(options.repeats):
            theirs = output([sys.executable, __file__, "--peer-run", context, *both])
            flags = ["--context", context, "--whole-only", "--repeats", "1", "--json"]
            ours = output([options.fedra, "bench", "split", *flags, *both])
            runs.append((theirs, {"median": ours["whole_tokens_per_s"], "best": ours["whole_best_tokens_per_s"]}))
        median = [statistics.median(run[side]["median"] for run in runs) for side in (0, 1)]
        best = [max(run[side]["best"] for run in runs) for side in (0, 1)]
        print(
            f"| {context} | {median[0]:.1f} ({best[0]:.1f}) | {median[1]:.1f} ({best[1]:.1f}) "
            f"| {median[1] / median[0]:.2f} ({best[1] / best[0]:.2f}) |",
            flush=True,
        )


if __name__ == "__main__":
    main()
