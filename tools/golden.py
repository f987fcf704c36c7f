"""Makes the golden values that the Rust tests compare themselves with.

    python -m pip install -r tools/requirements.txt
    python tools/golden.py [--models DIR]

No input and no weight of a small case is stored: both sides make them by one formula, so a file
holds only what PyTorch and transformers answered. All arithmetic is u64 and wraps.

    splitmix64(z):  z += 0x9E3779B97F4A7C15
                    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
                    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
                    return z ^ (z >> 31)
    uniform(seed, i)   = (splitmix64(seed * 0x9E3779B97F4A7C15 + i) >> 40) / 2^24     in [0, 1)
    element i of a tensor = f32(offset + scale * (2 * uniform(seed, i) - 1))
    integer(seed, i, low, count) = low + floor(uniform(seed, i) * count)
    sign_j(i) = +1 if splitmix64(j * 2^32 + i) is even, else -1                       j = 0, 1, 2

`i` is the flat row-major index, a linear weight is [out, in], the formula is evaluated in f64 and
rounded once to f32. A "packed" array is [tokens, ...]: the sequences one after the other, unpadded.

The reference arithmetic is f64 on those f32 numbers. transformers casts to f32 in places (RMS norm,
softmax, rotary, losses); `Float64` turns these casts into f64 and leaves its code as it is. Every
model also runs once in plain f32, and `float32_gap` records how far that lies from the f64 values.
"""

import argparse
import hashlib
import json
import math
import os
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # before numpy and torch read it: one order of summation

import numpy as np
import tokenizers
import torch
import torch.nn.functional as F
import transformers
from torch.overrides import TorchFunctionMode

CRATES = Path(__file__).resolve().parent.parent / "crates"
COMPUTE = CRATES / "compute" / "tests" / "golden"
MODEL = CRATES / "model" / "tests" / "golden"
GOLDEN_RATIO = 0x9E3779B97F4A7C15
IGNORED = -100
PACKED = [5, 1, 7]
LONG = [17, 1, 67]
# Plain f32 must agree this well with f64, or the reference itself is in doubt.
FLOAT32_GAP = 1e-4
# Mathematically zero gradients (a key bias shifts every score of a softmax alike) come out as
# rounding noise of this size relative to the whole gradient; they are stored as zero.
NOISE = 1e-12


# --- the formula ---------------------------------------------------------------------------------


def splitmix64(z):
    z = np.asarray(z, dtype=np.uint64)
    with np.errstate(over="ignore"):
        z = z + np.uint64(GOLDEN_RATIO)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def uniform(seed, count):
    start = np.uint64(seed * GOLDEN_RATIO % 2**64)
    with np.errstate(over="ignore"):
        bits = splitmix64(start + np.arange(count, dtype=np.uint64))
    return (bits >> np.uint64(40)).astype(np.float64) / 2**24


def tensor(spec):
    """The f32 values that `spec` stands for, held as f64."""
    u = uniform(spec["seed"], math.prod(spec["shape"]))
    values = (spec["offset"] + spec["scale"] * (2 * u - 1)).astype(np.float32)
    return torch.from_numpy(values.astype(np.float64)).reshape(spec["shape"])


def spec(shape, seed, scale=1.0, offset=0.0):
    return {"shape": list(shape), "seed": seed, "scale": scale, "offset": offset}


def integers(seed, count, low, high):
    return [low + int(u * (high - low)) for u in uniform(seed, count)]


def signs(j, count):
    bits = splitmix64(np.uint64(j << 32) + np.arange(count, dtype=np.uint64))
    return 1.0 - 2.0 * (bits & np.uint64(1)).astype(np.float64)


# --- what is written -----------------------------------------------------------------------------


def digits(x):
    """Nine significant digits, enough to name any f32; never a negative zero."""
    assert math.isfinite(x), "a golden value is not finite"
    return float(f"{x:.9g}") + 0.0


def numbers(t):
    return [digits(x) for x in t.detach().double().flatten().tolist()]


def compact(t, first):
    """Norm, three sign projections and the first entries: enough to tell two big tensors apart."""
    flat = t.detach().double().flatten().numpy()
    projections = [digits(float(signs(j, flat.size) @ flat)) for j in range(3)]
    norm = digits(float(np.linalg.norm(flat)))
    return {"norm": norm, "projections": projections, "first": numbers(t.flatten()[:first])}


def about(note):
    versions = {m.__name__: m.__version__ for m in (np, tokenizers, torch, transformers)}
    seeds = "no library generator is used; every seed is an argument of uniform(seed, i)"
    formula = "element i = f32(offset + scale * (2 * uniform(seed, i) - 1)), see tools/golden.py"
    return {"made_by": "tools/golden.py", "versions": versions, "arithmetic": "float64",
            "formula": formula, "seeds": seeds, "note": note}


def write(path, make):
    """Makes the file twice and insists on the same bytes; `cases` get one line each."""
    texts = []
    for _ in range(2):
        content = make()
        cases = content.pop("cases")
        head = json.dumps(content, separators=(",", ":"))[:-1]
        lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
        texts.append(f'{head},\n"cases":[\n{lines}\n]}}\n')
    assert texts[0] == texts[1], f"{path.name} differs between two runs"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(texts[0])
    print(f"{path.relative_to(CRATES.parent)}: {len(cases)} cases, {len(texts[0])} bytes")


# --- operations ----------------------------------------------------------------------------------


def operation(name, inputs, forward, **settings):
    """One case: `forward(**inputs)`, and the gradients that `upstream` sends back."""
    leaves = {key: tensor(s).requires_grad_() for key, s in inputs.items()}
    output = forward(**leaves)
    upstream = spec(output.shape, 900, 1.0) if output.dim() else None
    output.backward(tensor(upstream) if upstream else None)
    return {"name": name, "settings": settings, "inputs": inputs, "upstream": upstream,
            "output": {"shape": list(output.shape), "values": numbers(output)},
            "gradients": {key: numbers(leaf.grad) for key, leaf in leaves.items()}}


def positions(lengths):
    return torch.cat([torch.arange(n) for n in lengths])


def rotary(x, at, theta):
    """Half-split rotary: entry k of the first half turns with entry k of the second half."""
    half = x.shape[-1] // 2
    frequency = theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = (at[:, None] * frequency)[:, None, :]
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def attention(q, k, v, lengths, causal):
    """Packed [tokens, heads, head_dim]; query head h reads kv head h / (heads / kv_heads)."""
    outputs = []
    for parts in zip(q.split(lengths), k.split(lengths), v.split(lengths)):
        q1, k1, v1 = (part.transpose(0, 1)[None] for part in parts)
        o = F.scaled_dot_product_attention(q1, k1, v1, is_causal=causal, enable_gqa=True)
        outputs.append(o[0].transpose(0, 1))
    return torch.cat(outputs)


def attention_case(name, lengths, heads, kv_heads, head_dim, causal, scale=1.0):
    n = sum(lengths)
    inputs = {"q": spec([n, heads, head_dim], 1, scale),
              "k": spec([n, kv_heads, head_dim], 2, scale), "v": spec([n, kv_heads, head_dim], 3)}
    return operation(name, inputs, lambda q, k, v: attention(q, k, v, lengths, causal),
                     lengths=lengths, heads=heads, kv_heads=kv_heads, head_dim=head_dim,
                     causal=causal)


def capped(x, cap):
    return x if cap is None else cap * torch.tanh(x / cap)


def shaped_attention(q, k, v, lengths, causal, distance, scale, cap):
    """Scores by hand: scaled, capped, hidden where a key is further than `distance`, then softmax."""
    outputs = []
    for q1, k1, v1 in zip(q.split(lengths), k.split(lengths), v.split(lengths)):
        group, n = q.shape[1] // k.shape[1], len(q1)
        k1, v1 = (part.repeat_interleave(group, dim=1) for part in (k1, v1))
        scores = capped(torch.einsum("ihd,jhd->hij", q1, k1) * scale, cap)
        apart = torch.arange(n)[:, None] - torch.arange(n)
        seen = (apart.abs() <= distance) & (apart >= (0 if causal else -n))
        weights = scores.masked_fill(~seen, -math.inf).softmax(-1)
        outputs.append(torch.einsum("hij,jhd->ihd", weights, v1))
    return torch.cat(outputs)


def shaped_attention_case(name, lengths, heads, kv_heads, head_dim, causal, distance, scale, cap):
    n = sum(lengths)
    inputs = {"q": spec([n, heads, head_dim], 1, 2.0), "k": spec([n, kv_heads, head_dim], 2, 2.0),
              "v": spec([n, kv_heads, head_dim], 3)}
    shape = lambda q, k, v: shaped_attention(q, k, v, lengths, causal, distance, scale, cap)
    return operation(name, inputs, shape, lengths=lengths, heads=heads, kv_heads=kv_heads,
                     head_dim=head_dim, causal=causal, window=distance, scale=scale, soft_cap=cap)


def norm_inputs(rows, width):
    return {"x": spec([rows, width], 1, 2.0), "weight": spec([width], 2, 0.5, 1.0)}


def gated(name, activation):
    return operation(name, {"gate": spec([5, 7], 1, 4.0), "up": spec([5, 7], 2)},
                     lambda gate, up: activation(gate) * up)


def rms(x, weight, epsilon, offset):
    """In groups as long as the weight."""
    groups = x.unflatten(-1, (-1, len(weight)))
    return F.rms_norm(groups, weight.shape, weight + offset, epsilon).flatten(-2)


def column_norm_case(name, heads, kv_heads, widths, offset):
    """Query and key normed, each by a weight of its own width, with the value behind them as it is."""
    inputs = {"x": spec([13, (heads + 2 * kv_heads) * 6], 1, 2.0),
              "query": spec([widths[0]], 2, 0.5, 1.0), "key": spec([widths[1]], 3, 0.5, 1.0)}

    def forward(x, query, key):
        q, k, v = x.split([heads * 6, kv_heads * 6, kv_heads * 6], dim=-1)
        return torch.cat([rms(q, query, 1e-5, offset), rms(k, key, 1e-5, offset), v], -1)

    return operation(name, inputs, forward, columns=[heads * 6, kv_heads * 6], eps=1e-5,
                     offset=offset)


def capped_loss_case():
    """The mean loss of a vocabulary's capped logits."""
    labels = integers(5, 13, 0, 11)
    inputs = {"x": spec([13, 5], 1), "weight": spec([11, 5], 2), "bias": spec([11], 3)}
    loss = lambda x, weight, bias: F.cross_entropy(capped(F.linear(x, weight, bias), 1.5),
                                                   torch.tensor(labels))
    return operation("vocabulary_capped", inputs, loss, labels=labels, soft_cap=1.5)


def embedding_case():
    tokens, width, vocab = sum(PACKED), 9, 11
    ids, segments = integers(5, tokens, 0, vocab), integers(6, tokens, 0, 2)
    inputs = {"token": spec([vocab, width], 1), "position": spec([8, width], 2),
              "segment": spec([2, width], 3), "weight": spec([width], 4, 0.5, 1.0),
              "bias": spec([width], 7, 0.5)}

    def forward(token, position, segment, weight, bias):
        total = token[ids] + position[positions(PACKED)] + segment[segments]
        return F.layer_norm(total, (width,), weight, bias, 1e-12)

    return operation("embedding", inputs, forward, lengths=PACKED, ids=ids, segments=segments,
                     eps=1e-12)


def loss_cases():
    """Each output is the mean loss itself, so there is no upstream gradient."""
    classes = integers(2, 5, 0, 7)
    yield operation("cross_entropy", {"logits": spec([5, 7], 1, 6.0)},
                    lambda logits: F.cross_entropy(logits, torch.tensor(classes)), labels=classes)
    some = [IGNORED if i % 4 == 1 else label for i, label in enumerate(integers(2, 13, 0, 5))]
    yield operation("token_cross_entropy", {"logits": spec([13, 5], 1, 3.0)},
                    lambda logits: F.cross_entropy(logits, torch.tensor(some)),
                    labels=some, ignored=IGNORED)
    wanted = [integers(10 + row, 6, 0, 2) for row in range(4)]
    target = torch.tensor(wanted, dtype=torch.float64)
    yield operation("multi_label", {"logits": spec([4, 6], 1, 4.0)},
                    lambda logits: F.binary_cross_entropy_with_logits(logits, target),
                    labels=wanted)


def optimiser_case(name, make, **settings):
    """Parameters after each of five steps; the gradient of step t (from 0) has seed 100 + t."""
    start = spec([7], 1)
    gradients = [spec([7], 100 + t) for t in range(5)]
    weights = torch.nn.Parameter(tensor(start))
    optimiser = make([weights], **settings)
    trajectory = []
    for gradient in gradients:
        weights.grad = tensor(gradient)
        optimiser.step()
        trajectory.append(numbers(weights))
    return {"name": name, "settings": settings, "start": start, "gradients": gradients,
            "trajectory": trajectory}


def ops():
    linear = {"x": spec([5, 7], 1), "weight": spec([9, 7], 2, 0.5), "bias": spec([9], 3, 0.5)}
    heads = spec([sum(PACKED), 3, 6], 1)
    pooled = {"x": spec([sum(PACKED), 7], 1), "weight": spec([7, 7], 2, 0.5),
              "bias": spec([7], 3, 0.5)}
    firsts = [sum(PACKED[:i]) for i in range(len(PACKED))]
    at = positions(PACKED)
    activations = {"gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "relu": lambda x: F.relu(x),
                   "silu": lambda x: F.silu(x)}
    cases = [
        operation("linear", linear, lambda x, weight, bias: F.linear(x, weight, bias)),
        operation("gelu", {"x": spec([5, 7], 1, 5.0)}, lambda x: F.gelu(x)),
        operation("linear_gelu", linear, lambda x, weight, bias: F.gelu(F.linear(x, weight, bias))),
        operation("layer_norm", norm_inputs(5, 11) | {"bias": spec([11], 3, 0.5)},
                  lambda x, weight, bias: F.layer_norm(x, (11,), weight, bias, 1e-12), eps=1e-12),
        operation("rms_norm", norm_inputs(5, 11),
                  lambda x, weight: F.rms_norm(x, (11,), weight, 1e-5), eps=1e-5),
        operation("rotary", {"x": heads}, lambda x: rotary(x, at, 1e4), lengths=PACKED, theta=1e4),
        operation("rotary_far", {"x": spec([40, 1, 10], 1)},
                  lambda x: rotary(x, torch.arange(40), 1e4), lengths=[40], theta=1e4),
        attention_case("attention_bidirectional", PACKED, 3, 3, 6, causal=False),
        attention_case("attention_causal", PACKED, 3, 3, 6, causal=True),
        attention_case("attention_grouped", PACKED, 4, 2, 6, causal=True),
        attention_case("attention_long_bidirectional", LONG, 2, 2, 5, causal=False, scale=2.0),
        attention_case("attention_long_grouped", LONG, 2, 1, 5, causal=True, scale=2.0),
        shaped_attention_case("attention_window_of_one", PACKED, 4, 2, 6, True, 0, 0.3, None),
        shaped_attention_case("attention_window_of_two", PACKED, 4, 2, 6, True, 1, 0.3, None),
        shaped_attention_case("attention_window_beyond_the_text", PACKED, 3, 3, 5, True, 50, 0.3, None),
        shaped_attention_case("attention_window_both_sides", LONG, 2, 1, 5, False, 3, 0.5, None),
        shaped_attention_case("attention_window_long_capped", LONG, 2, 1, 5, True, 9, 0.4, 1.5),
        shaped_attention_case("attention_capped", PACKED, 3, 3, 6, False, 50, 0.4, 0.7),
        gated("swiglu", F.silu),
        gated("geglu", F.gelu),
        gated("geglu_tanh", lambda x: F.gelu(x, approximate="tanh")),
        gated("reglu", F.relu),
        *(operation(name, {"x": spec([5, 7], 1, 5.0)}, of) for name, of in activations.items()),
        operation("layer_norm_without_bias", norm_inputs(5, 11),
                  lambda x, weight: F.layer_norm(x, (11,), weight, None, 1e-5), eps=1e-5),
        operation("rms_norm_offset", norm_inputs(5, 11),
                  lambda x, weight: F.rms_norm(x, (11,), 1 + weight, 1e-5), eps=1e-5, offset=1.0),
        column_norm_case("column_norm_by_head", 4, 2, (6, 6), 0.0),
        column_norm_case("column_norm_by_head_offset", 4, 2, (6, 6), 1.0),
        column_norm_case("column_norm_of_all_heads", 4, 2, (24, 12), 0.0),
        operation("soft_capped", {"x": spec([5, 7], 1, 5.0)}, lambda x: capped(x, 2.0), soft_cap=2.0),
        operation("scaled", {"x": spec([5, 7], 1)}, lambda x: 2.5 * x, factor=2.5),
        operation("sum", {"x": spec([5, 7], 1), "y": spec([5, 7], 2)}, lambda x, y: x + y),
        operation("sequence_means", {"x": spec([sum(PACKED), 7], 1)},
                  lambda x: torch.stack([part.mean(0) for part in x.split(PACKED)]), lengths=PACKED),
        operation("scale_columns", norm_inputs(5, 11), lambda x, weight: x * weight),
        capped_loss_case(),
        embedding_case(),
        operation("tanh_pooler", pooled,
                  lambda x, weight, bias: F.linear(x[firsts], weight, bias).tanh(), lengths=PACKED),
        *loss_cases(),
    ]
    adamw = {"lr": 1e-2, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.1}
    optimisers = [
        optimiser_case("adamw", torch.optim.AdamW, **adamw),
        optimiser_case("sgd", torch.optim.SGD, lr=1e-2),
        optimiser_case("sgd_momentum", torch.optim.SGD, lr=1e-2, momentum=0.9),
    ]
    generator = {
        "splitmix64": [[str(z), str(splitmix64(z))] for z in (0, 1, GOLDEN_RATIO, 2**64 - 1)],
        "uniform": [[seed, uniform(seed, 4).tolist()] for seed in (0, 1, 900)],
        "tensor": [spec([4], 3, 0.2, 1.0) | {"values": tensor(spec([4], 3, 0.2, 1.0)).tolist()}],
        "signs": [[int(s) for s in signs(j, 16)] for j in range(3)],
    }
    note = "operations and optimisers; splitmix64 pairs are decimal strings, generator values exact"
    return {"about": about(note), "generator": generator, "optimisers": optimisers, "cases": cases}


# --- models --------------------------------------------------------------------------------------


class Float64(TorchFunctionMode):
    """Makes every cast to f32 that transformers asks for a cast to f64."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        def widen(x):
            return torch.float64 if x is torch.float32 else x

        func = torch.Tensor.double if func is torch.Tensor.float else func
        return func(*map(widen, args), **{k: widen(v) for k, v in (kwargs or {}).items()})


def blocks_of(base):
    return base.encoder.layer if hasattr(base, "encoder") else base.layers


def embedding_of(base):
    return base.embeddings if hasattr(base, "embeddings") else base.embed_tokens


def pad(rows, value):
    longest = max(map(len, rows))
    return torch.tensor([row + [value] * (longest - len(row)) for row in rows])


def label_tensor(labels, config):
    """Token labels are padded with the ignored one; class labels and label sets just stack."""
    if config.problem_type == "multi_label_classification":
        return torch.tensor(labels, dtype=torch.float32)
    return pad(labels, IGNORED) if isinstance(labels[0], list) else torch.tensor(labels)


def run(model, ids, labels):
    """Forward and backward over one right-padded batch; everything comes back packed."""
    lengths = [len(row) for row in ids]
    base, hidden = model.base_model, []

    def keep(_module, _inputs, output):
        hidden.append(output if isinstance(output, torch.Tensor) else output[0])

    watched = [embedding_of(base), *blocks_of(base), base]
    hooks = [module.register_forward_hook(keep) for module in watched]
    batch = {"input_ids": pad(ids, model.config.pad_token_id or 0),
             "attention_mask": pad([[1] * n for n in lengths], 0)}
    if labels is not None:
        batch["labels"] = label_tensor(labels, model.config)
    model.zero_grad(set_to_none=False)
    output = model(**batch, output_attentions=True)
    for hook in hooks:
        hook.remove()
    seen = {"hidden": [pack(h, lengths) for h in hidden], "attentions": output.attentions}
    if labels is not None:
        output.loss.backward()
        logits = output.logits
        seen |= {"loss": output.loss.item(),
                 "logits": (pack(logits, lengths) if logits.dim() == 3 else logits).detach()}
        parameters = sorted(model.named_parameters())
        seen["gradients"] = {name: p.grad.double().clone() for name, p in parameters}
    return seen


def pack(padded, lengths):
    return torch.cat([padded[b, :n] for b, n in enumerate(lengths)]).detach()


def reference(model, ids, labels):
    """The f64 answer, and how far plain f32 transformers is from it."""
    plain = run(model, ids, labels)
    model.double()
    with Float64():
        if hasattr(model.base_model, "rotary_emb"):
            turning = model.base_model.rotary_emb
            turning.inv_freq = turning.compute_default_rope_parameters(model.config)[0]
        exact = run(model, ids, labels)
    gap = {"hidden": distance(plain["hidden"], exact["hidden"])}
    if labels is not None:
        both = plain["gradients"].values(), exact["gradients"].values()
        gap |= {"loss": abs(plain["loss"] / exact["loss"] - 1),
                "logits": distance([plain["logits"]], [exact["logits"]]),
                "gradients": distance(*both)}
    assert max(gap.values()) < FLOAT32_GAP, gap
    assert exact["hidden"][-1].dtype == torch.float64
    return exact | {"gap": {key: float(f"{value:.1e}") for key, value in gap.items()}}


def distance(found, expected):
    """||found - expected|| / ||expected|| over all the tensors together."""
    off = sum((f.double() - e).square().sum().item() for f, e in zip(found, expected))
    return math.sqrt(off / sum(e.square().sum().item() for e in expected))


def probes(attentions, ids, causal):
    """Per block, per example: attention on the relevant keys, per head and valid query."""
    found = {"first_token": [], "odd_positions": []} | ({"last_query": []} if causal else {})
    for block in attentions:
        alphas = [block[b, :, :len(row), :len(row)] for b, row in enumerate(ids)]
        found["first_token"].append([digits(a[:, :, 0].mean().item()) for a in alphas])
        found["odd_positions"].append([digits(a[:, :, 1::2].sum(-1).mean().item()) for a in alphas])
        if causal:
            found["last_query"].append([digits(a[:, -1, 1:].sum(-1).mean().item()) for a in alphas])
    return found


def gradients(found):
    total = math.sqrt(sum(g.square().sum().item() for g in found.values()))
    entries = []
    for name, g in found.items():
        g = torch.zeros_like(g) if g.norm().item() < NOISE * total else g
        entries.append({"name": name, "shape": list(g.shape)} | compact(g, 4))
    return {"gradient_norm": digits(total), "gradients": entries}


def fill(model):
    """Weights by formula: the seed is the index in sorted name order, norm weights lie around 1."""
    for seed, (name, parameter) in enumerate(sorted(model.named_parameters())):
        is_norm = "norm" in name.lower() and name.endswith(".weight")
        scale, offset = (0.1, 1.0) if is_norm else (0.2, 0.0)
        parameter.data = tensor(spec(parameter.shape, seed, scale, offset)).float()
    model.tie_weights()
    return model.eval()


# --- tiny models ---------------------------------------------------------------------------------

TINY_LENGTHS = [7, 1, 12, 3]
BERT = dict(vocab_size=53, hidden_size=24, num_hidden_layers=3, num_attention_heads=3,
            intermediate_size=40, max_position_embeddings=32, type_vocab_size=2,
            attn_implementation="eager")
LLAMA = dict(vocab_size=47, hidden_size=24, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=6, intermediate_size=44, max_position_embeddings=32,
             rms_norm_eps=1e-5, pad_token_id=0, attn_implementation="eager")


def tiny_ids(vocab):
    """Id 0 is left out: transformers takes it for padding and drops its gradient."""
    return [integers(500 + row, n, 1, vocab) for row, n in enumerate(TINY_LENGTHS)]


def tags(ids, classes):
    """Token labels, two in three of them counted."""
    rows = [integers(600 + row, len(line), 0, classes) for row, line in enumerate(ids)]
    return [[IGNORED if t % 3 == 2 else label for t, label in enumerate(row)] for row in rows]


def tiny_case(task, architecture, config, ids, labels, every_block=False):
    model = fill(architecture(config))
    seen = reference(model, ids, labels)
    stored = json.loads(config.to_json_string()) | {"architectures": [architecture.__name__]}
    case = {"task": task, "config": stored, "ids": ids, "labels": labels,
            "loss": digits(seen["loss"]), "logits_shape": list(seen["logits"].shape),
            "logits": numbers(seen["logits"]), "last_hidden_state": numbers(seen["hidden"][-1])}
    if every_block:
        case["hidden"] = [numbers(h) for h in seen["hidden"][:-1]]
    causal = config.model_type == "llama"
    case |= {"attention": probes(seen["attentions"], ids, causal), "float32_gap": seen["gap"]}
    return case | gradients(seen["gradients"])


def tiny_bert():
    ids = tiny_ids(BERT["vocab_size"])
    config = lambda **more: transformers.BertConfig(**BERT, **more)
    masked = [[IGNORED if (row + t) % 3 else token for t, token in enumerate(line)]
              for row, line in enumerate(ids)]
    blanked = [[token if label == IGNORED else 3 for token, label in zip(*pair)]
                   for pair in zip(ids, masked)]
    wanted = [integers(800 + row, 5, 0, 2) for row in range(len(ids))]
    multi = dict(num_labels=5, problem_type="multi_label_classification")
    cases = [
        tiny_case("sequence_classification", transformers.BertForSequenceClassification,
                  config(num_labels=5), ids, integers(700, len(ids), 0, 5), every_block=True),
        tiny_case("multi_label", transformers.BertForSequenceClassification, config(**multi),
                  ids, wanted),
        tiny_case("token_classification", transformers.BertForTokenClassification,
                  config(num_labels=5), ids, tags(ids, 5)),
        tiny_case("masked_lm", transformers.BertForMaskedLM, config(), blanked, masked),
    ]
    return {"about": about("weights: seed = index in sorted name order, scale 0.2; norm weights "
                           "scale 0.1, offset 1; all segments 0; masked_lm hides tokens as id 3"),
            "cases": cases}


def tiny_llama():
    ids = tiny_ids(LLAMA["vocab_size"])
    config = lambda **more: transformers.LlamaConfig(**LLAMA, **more)
    cases = [
        tiny_case("causal_lm", transformers.LlamaForCausalLM, config(tie_word_embeddings=False),
                  ids, ids, every_block=True),
        tiny_case("causal_lm_tied", transformers.LlamaForCausalLM, config(tie_word_embeddings=True),
                  ids, ids),
        tiny_case("sequence_classification", transformers.LlamaForSequenceClassification,
                  config(num_labels=5), ids, integers(700, len(ids), 0, 5)),
        tiny_case("token_classification", transformers.LlamaForTokenClassification,
                  config(num_labels=5), ids, tags(ids, 5)),
    ]
    return {"about": about("weights: seed = index in sorted name order, scale 0.2; norm weights "
                           "scale 0.1, offset 1; causal labels are the ids, shifted by the loss"),
            "cases": cases}


# --- real checkpoints ----------------------------------------------------------------------------

SENTENCES = [
    "Hello",
    "The nurse checked the patient's blood pressure twice before lunch.",
    "A federated round begins when the server sends the blocks that are allowed to change; each "
    "hospital trains them on its own records, clips what it learned, adds noise where it promised "
    "to, and returns only that difference, so that no sentence ever leaves the ward where it was "
    "written down.",
]
STORIES = [
    "",
    "Lily ran.",
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. "
    "One day, she saw a big, red ball. She wanted to play with it, but it was too high.",
]
LONGEST = 512


def checkpoint(folder):
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    return {"name": folder.name, "sha256": digest}


def load(architecture, folder, head=None, **config):
    """The checkpoint in f32; what it lacks is exactly `head`, filled by formula."""
    config |= {"dtype": torch.float32, "attn_implementation": "eager"}
    model, report = architecture.from_pretrained(folder, output_loading_info=True, **config)
    head = head or {}
    assert set(report["missing_keys"]) == set(head), report["missing_keys"]
    for name, s in head.items():
        model.get_parameter(name).data = tensor(s).float()
    return model.eval()


def compact_hidden(hidden, lengths):
    """Per stage: the packed array, and the first 8 values of each sequence's first token."""
    starts = [sum(lengths[:b]) for b in range(len(lengths))]
    return [{k: v for k, v in compact(h, 0).items() if k != "first"}
            | {"first_tokens": [numbers(h[at, :8]) for at in starts]} for h in hidden]


def checkpoint_case(task, model, ids, labels, head=None):
    seen = reference(model, ids, labels)
    lengths = [len(row) for row in ids]
    last = seen["hidden"][-1]
    case = {"task": task, "ids": ids, "labels": labels,
            "hidden": compact_hidden(seen["hidden"], lengths)}
    if len(ids) == 1:
        case["positions"] = {str(t): numbers(last[t, :8]) for t in (0, 1, 100, 255, 510, 511)}
        case["row_norms"] = numbers(last.norm(dim=-1)[::64])
    causal = model.config.model_type == "llama"
    case |= {"attention": probes(seen["attentions"], ids, causal), "float32_gap": seen["gap"]}
    if labels is None:
        return case
    logits = seen["logits"]
    case |= {"head": head or {}, "loss": digits(seen["loss"]), "logits_shape": list(logits.shape)}
    if logits.numel() < 1000:
        case["logits"] = numbers(logits)
    else:
        case["logits_compact"] = compact(logits, 0) | {
            "first": [numbers(row[:8]) for row in logits[:128]],
            "argmax": logits.argmax(-1).tolist(), "max": numbers(logits.max(-1).values)}
    return case | gradients(seen["gradients"])


def head_specs(labels, width):
    return {"classifier.weight": spec([labels, width], 1000, 0.1),
            "classifier.bias": spec([labels], 1001, 0.1)}


def minilm(folder):
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    ids = [tokenizer.encode(text).ids for text in SENTENCES]
    sequence, token = head_specs(16, 384), head_specs(7, 384)
    as_sequence = load(transformers.BertForSequenceClassification, folder, sequence, num_labels=16)
    cases = [checkpoint_case("sequence_classification", as_sequence, ids, integers(700, 3, 0, 16),
                             head=sequence)]
    as_token = load(transformers.BertForTokenClassification, folder, token, num_labels=7)
    cases.append(checkpoint_case("token_classification", as_token, ids, tags(ids, 7), head=token))
    longest = [integers(550, LONGEST, 1000, 29000)]
    cases.append(checkpoint_case("longest", load(transformers.BertModel, folder), longest, None))
    return {"about": about("weights rounded to f16 in the checkpoint, read as f32; names carry "
                           "the `bert.` that the checkpoint's own names lack"),
            "checkpoint": checkpoint(folder), "texts": SENTENCES, "cases": cases}


def stories260k(folder):
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = [tokenizer.encode(text).ids for text in STORIES]
    causal = lambda: load(transformers.LlamaForCausalLM, folder)
    longest = [integers(550, LONGEST, 3, 512)]
    cases = [checkpoint_case("causal_lm", causal(), ids, ids),
             checkpoint_case("longest", causal(), longest, longest)]
    return {"about": about("lm_head is tied to model.embed_tokens.weight and has no entry"),
            "checkpoint": checkpoint(folder), "texts": STORIES, "cases": cases}


def main():
    arguments = argparse.ArgumentParser(description="Write the golden values of the Rust tests.")
    default = CRATES.parent.parent / "shared" / "models"
    arguments.add_argument("--models", type=Path, default=default,
                           help="folder with minilm-l6 and stories260k (default ../shared/models)")
    models = arguments.parse_args().models
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    write(COMPUTE / "ops.json", ops)
    write(MODEL / "tiny_bert.json", tiny_bert)
    write(MODEL / "tiny_llama.json", tiny_llama)
    write(MODEL / "minilm.json", lambda: minilm(models / "minilm-l6"))
    write(MODEL / "stories260k.json", lambda: stories260k(models / "stories260k"))


if __name__ == "__main__":
    main()
