"""Makes the golden values of all model families: crates/model/tests/golden/families.json, and positions.json.

    python -m pip install -r tools/requirements.txt
    python tools/golden_families.py [NAME ...]

Tiny models with weights by the formula of tools/golden.py, one case for each family and task: configuration,
logits, loss, the last hidden state and every gradient, in f64. Models of images are filled and read under the names
of their files, which the library turns into its modules' names and back; their pixels are by formula too.
positions.json holds position tables that the library interpolated for images of another size.
"""

import json
import sys
import tempfile
from pathlib import Path

import safetensors.torch
import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

import golden
from golden import (IGNORED, MODEL, Float64, digits, distance, fill, gradients, integers, numbers, spec, tags,
                    tensor)

LENGTHS = [6, 1, 11]
COMMON = dict(vocab_size=37, hidden_size=16, num_hidden_layers=2, num_attention_heads=4,
              intermediate_size=24, max_position_embeddings=32, attn_implementation="eager")
DECODER = COMMON | dict(num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2)
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16, "rope_theta": 100.0}
YARN = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 16,
        "rope_theta": 100.0}
LINEAR = {"rope_type": "linear", "factor": 2.0, "rope_theta": 100.0}
DYNAMIC = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 100.0}
LONGROPE = {"rope_type": "longrope", "short_factor": [1.0, 1.5], "long_factor": [2.0, 5.5], "rope_theta": 100.0}
# The library takes one set of factors for a whole padded batch, by its longest text: short ones, or long ones.
LENGTHS_OF = {"phi3 longrope": [6, 1, 8], "phi3 longrope long": [9, 12, 10]}


def decoder(name, tasks=("CausalLM", "SequenceClassification", "TokenClassification"), **more):
    return name, tasks, DECODER | more


def encoder(name, tasks=("MaskedLM", "SequenceClassification", "TokenClassification"), **more):
    return name, tasks, COMMON | more


FAMILIES = {
    "bert": encoder("Bert", pad_token_id=0),
    "roberta": encoder("Roberta", pad_token_id=1, type_vocab_size=1),
    "xlm-roberta": encoder("XLMRoberta", ("SequenceClassification",), pad_token_id=1,
                           type_vocab_size=1),
    "camembert": encoder("Camembert", ("TokenClassification",), pad_token_id=1, type_vocab_size=1),
    "distilbert": encoder("DistilBert", pad_token_id=0),
    "electra": encoder("Electra", pad_token_id=0, embedding_size=10),
    "electra same width": encoder("Electra", ("SequenceClassification",), pad_token_id=0,
                                  embedding_size=16),
    "llama": decoder("Llama", rope_parameters=LLAMA3, head_dim=6),
    "llama biases": decoder("Llama", ("CausalLM",), attention_bias=True, mlp_bias=True),
    "llama linear": decoder("Llama", ("CausalLM",), rope_parameters=LINEAR),
    "llama dynamic": decoder("Llama", ("CausalLM",), rope_parameters=DYNAMIC),
    "llama yarn": decoder("Llama", ("CausalLM",), rope_parameters=YARN),
    "mistral": decoder("Mistral", sliding_window=None),
    "qwen2": decoder("Qwen2"),
    "qwen3": decoder("Qwen3", head_dim=6),
    "phi3": decoder("Phi3"),
    "phi3 longrope": decoder("Phi3", ("CausalLM",), rope_parameters=LONGROPE, original_max_position_embeddings=8),
    "phi3 longrope long": decoder("Phi3", ("CausalLM", "SequenceClassification"), rope_parameters=LONGROPE,
                                  original_max_position_embeddings=8),
    "olmo2": decoder("Olmo2", ("CausalLM", "SequenceClassification")),
    "smollm3": decoder("SmolLM3", num_hidden_layers=4),
    "mistral window": decoder("Mistral", ("CausalLM",), sliding_window=3),
    "gemma": decoder("Gemma", head_dim=6),
    "gemma2": decoder("Gemma2", head_dim=6, num_hidden_layers=3, sliding_window=3,
                      query_pre_attn_scalar=9, attn_logit_softcapping=1.5,
                      final_logit_softcapping=2.0),
    "gemma3": decoder("Gemma3Text", ("CausalLM", "SequenceClassification"), head_dim=6,
                      num_hidden_layers=3, sliding_window=3, sliding_window_pattern=3,
                      query_pre_attn_scalar=9),
    "gpt2": decoder("GPT2", ("LMHeadModel", "SequenceClassification", "TokenClassification")),
    "modernbert": encoder("ModernBert", num_hidden_layers=4, local_attention=4, pad_token_id=0,
                          cls_token_id=1, sep_token_id=2, bos_token_id=1, eos_token_id=2,
                          classifier_pooling="mean", reference_compile=False),
    "modernbert first": encoder("ModernBert", ("SequenceClassification",), num_hidden_layers=4,
                                local_attention=4, pad_token_id=0, cls_token_id=1, sep_token_id=2,
                                bos_token_id=1, eos_token_id=2, classifier_pooling="cls",
                                reference_compile=False),
}

IMAGES = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_labels=5, patch_size=4,
              attn_implementation="eager")
VIT = IMAGES | dict(intermediate_size=24)
# Those that write a square image_size only run on squares: the library takes the root of the number of patches.
PICTURES = {
    "vit": ("ViT", VIT | dict(image_size=[8, 12], num_channels=3)),
    "vit without biases": ("ViT", VIT | dict(image_size=8, num_channels=1, qkv_bias=False)),
    "deit": ("DeiT", VIT | dict(image_size=8, num_channels=2)),
    "dinov2": ("Dinov2", IMAGES | dict(image_size=12, num_channels=3, mlp_ratio=2)),
    "dinov2 swiglu": ("Dinov2", IMAGES | dict(image_size=8, num_channels=1, use_swiglu_ffn=True)),
    "dinov2 registers": ("Dinov2WithRegisters", IMAGES | dict(image_size=8, num_channels=1, mlp_ratio=2,
                                                              num_register_tokens=3)),
}
# Never read where images are classified.
MASK = "embeddings.mask_token"


RENAMED = {
    "distilbert": {"hidden_size": "dim", "num_hidden_layers": "n_layers",
                   "num_attention_heads": "n_heads", "intermediate_size": "hidden_dim"},
    "gpt2": {"hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
             "intermediate_size": "n_inner", "max_position_embeddings": "n_positions"},
}
# What the classes are called that do not begin as their configuration does.
CLASSES = {"Gemma3Text": "Gemma3"}


def blocks_of(base):
    found = getattr(base, "encoder", None) or getattr(base, "transformer", None) or base
    return next(getattr(found, name) for name in ("layer", "layers", "h") if hasattr(found, name))


def embedding_of(base):
    return next(getattr(base, name) for name in ("embeddings", "embed_tokens", "wte")
                if hasattr(base, name))


golden.blocks_of = blocks_of
golden.embedding_of = embedding_of


def exact_positions(model):
    """golden.reference asks a rotary module for its plain frequencies; these are the scaled ones."""
    turning = getattr(model.base_model, "rotary_emb", None)
    if turning is None:
        return
    kind = getattr(turning, "rope_type", "default")
    if isinstance(kind, dict):
        plain = turning.compute_default_rope_parameters

        def both(config):
            for layer, kind in turning.rope_type.items():
                make = plain if kind == "default" else ROPE_INIT_FUNCTIONS[kind]
                setattr(turning, f"{layer}_inv_freq", make(config, None, layer_type=layer)[0])
            return None, 1.0

        turning.compute_default_rope_parameters = both
    elif kind == "longrope":
        turning.compute_default_rope_parameters = lambda config: both_lengths(turning, config)
    elif kind != "default":
        turning.compute_default_rope_parameters = lambda config: ROPE_INIT_FUNCTIONS[kind](config, None)


def both_lengths(turning, config):
    """The frequencies of short texts; those of long ones are put where the module looks for them."""
    make, short = ROPE_INIT_FUNCTIONS["longrope"], config.rope_parameters["original_max_position_embeddings"]
    turning.original_inv_freq, scale = make(config, None)
    turning.long_inv_freq, _ = make(config, None, seq_len=short + 1)
    return turning.original_inv_freq, scale


def case(family, task):
    name, _, settings = FAMILIES[family]
    config = getattr(transformers, f"{name}Config")
    ids = [integers(500 + row, n, 3, settings["vocab_size"]) for row, n in enumerate(LENGTHS_OF.get(family, LENGTHS))]
    more, labels = {}, None
    if task == "SequenceClassification":
        more, labels = {"num_labels": 5}, integers(700, len(ids), 0, 5)
    elif task == "TokenClassification":
        more, labels = {"num_labels": 5}, tags(ids, 5)
    elif task == "MaskedLM":
        labels = [[IGNORED if (row + t) % 3 else token for t, token in enumerate(line)]
                  for row, line in enumerate(ids)]
    else:
        labels = ids
    rename = RENAMED.get(family, {})
    settings = {rename.get(key, key): value for key, value in settings.items()}
    config = config(**settings, **more)
    begin = CLASSES.get(name, name)
    kind = task if task == "LMHeadModel" else f"For{task}"
    architecture = getattr(transformers, f"{begin}{kind}")
    model = fill(architecture(config))
    exact_positions(model)
    seen = golden.reference(model, ids, labels)
    stored = json.loads(config.to_json_string()) | {"architectures": [architecture.__name__]}
    tasks = {"SequenceClassification": "sequence_classification", "MaskedLM": "masked_lm",
             "TokenClassification": "token_classification", "CausalLM": "causal_lm",
             "LMHeadModel": "causal_lm"}
    return {"family": family, "task": tasks[task], "config": stored, "ids": ids, "labels": labels,
            "loss": digits(seen["loss"]), "logits_shape": list(seen["logits"].shape),
            "logits": numbers(seen["logits"]), "last_hidden_state": numbers(seen["hidden"][-1]),
            "attention": golden.probes(seen["attentions"], ids, task == "CausalLM"),
            "float32_gap": seen["gap"]} | gradients(seen["gradients"])


def stored(model):
    """The tensors of the file that the library writes for a model."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tensors = safetensors.torch.load_file(Path(folder) / "model.safetensors")
    return {name: tensors[name] for name in sorted(tensors) if not name.endswith(MASK)}


def filled(architecture, config):
    """A model whose file has weights by formula, as golden.fill has them."""
    tensors = stored(architecture(config))
    for seed, name in enumerate(tensors):
        is_norm = "norm" in name.lower() and name.endswith(".weight")
        scale, offset = (0.1, 1.0) if is_norm else (0.2, 0.0)
        tensors[name] = tensor(spec(tensors[name].shape, seed, scale, offset)).float()
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        safetensors.torch.save_file(tensors, Path(folder) / "model.safetensors", {"format": "pt"})
        model, report = architecture.from_pretrained(folder, output_loading_info=True,
                                                     attn_implementation="eager")
    assert all(name.endswith(MASK) for name in report["missing_keys"]), report
    assert not report["unexpected_keys"] and not report["mismatched_keys"], report
    return model.eval()


def seen_by(model, pixels, labels):
    """Forward and backward over images; gradients under the names of the file."""
    base, hidden = model.base_model, []
    keep = lambda _module, _inputs, output: hidden.append(
        output if isinstance(output, torch.Tensor) else output[0])
    hooks = [module.register_forward_hook(keep)
             for module in [embedding_of(base), *blocks_of(base), base]]
    model.zero_grad()
    output = model(pixel_values=pixels, labels=torch.tensor(labels), output_attentions=True)
    output.loss.backward()
    for hook in hooks:
        hook.remove()
    numbers_of = [parameter.data for parameter in model.parameters()]
    for parameter in model.parameters():
        parameter.data = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    found = {name: gradient.double() for name, gradient in stored(model).items()}
    for parameter, data in zip(model.parameters(), numbers_of):
        parameter.data = data
    return {"hidden": [h.detach().flatten(0, 1) for h in hidden], "attentions": output.attentions,
            "loss": output.loss.item(), "logits": output.logits.detach(), "gradients": found}


def picture_case(family):
    name, settings = PICTURES[family]
    config = getattr(transformers, f"{name}Config")(**settings)
    architecture = getattr(transformers, f"{name}ForImageClassification")
    model = filled(architecture, config)
    size = config.image_size if isinstance(config.image_size, list) else [config.image_size] * 2
    pixels = spec([3, config.num_channels, *size], 900)
    labels = integers(700, 3, 0, 5)
    plain = seen_by(model, tensor(pixels).float(), labels)
    model.double()
    with Float64():
        exact = seen_by(model, tensor(pixels), labels)
    gap = {key: distance(plain[key], exact[key]) for key in ("hidden", "logits")}
    gap["loss"] = abs(plain["loss"] / exact["loss"] - 1)
    gap["gradients"] = distance(plain["gradients"].values(), exact["gradients"].values())
    assert max(gap.values()) < golden.FLOAT32_GAP, gap
    assert exact["hidden"][-1].dtype == torch.float64
    tokens = len(exact["hidden"][0]) // 3
    ids = [[0] * tokens] * 3
    written = json.loads(config.to_json_string()) | {"architectures": [architecture.__name__]}
    return {"family": family, "task": "image_classification", "config": written, "ids": ids,
            "pixels": pixels, "labels": labels, "loss": digits(exact["loss"]),
            "logits_shape": list(exact["logits"].shape), "logits": numbers(exact["logits"]),
            "last_hidden_state": numbers(exact["hidden"][-1]),
            "hidden": [numbers(h) for h in exact["hidden"][:-1]] if "registers" in family else None,
            "attention": golden.probes(exact["attentions"], ids, False),
            "float32_gap": {key: float(f"{value:.1e}") for key, value in gap.items()},
            } | gradients(exact["gradients"])


def positions():
    """Position tables for other images: from a square, the only form that the library interpolates."""
    cases = []
    for family, size, other in [("vit", 12, (20, 8)), ("deit", 8, (12, 16)), ("dinov2", 20, (8, 12)),
                                ("dinov2 registers", 20, (8, 12)), ("dinov2 registers", 8, (20, 12))]:
        name, settings = PICTURES[family]
        settings = settings | dict(image_size=size, num_channels=1, hidden_size=3, num_attention_heads=1)
        config = getattr(transformers, f"{name}Config")(**settings)
        architecture = getattr(transformers, f"{name}ForImageClassification")
        model = architecture(config).double()
        table = model.base_model.embeddings.position_embeddings
        table.data = tensor(spec(table.shape, 5)).double()
        tokens = table.shape[1] - (size // 4) ** 2 + (other[0] // 4) * (other[1] // 4)
        with Float64():
            found = model.base_model.embeddings.interpolate_pos_encoding(torch.zeros(1, tokens, 3), *other)
        written = json.loads(config.to_json_string()) | {"architectures": [architecture.__name__]}
        cases.append({"config": written, "size": list(other), "positions": numbers(found)})
    return {"about": golden.about("position tables: seed 5, scale 1"), "cases": cases}


def families(names):
    text = [name for name in names if name in FAMILIES]
    cases = [case(family, task) for family in text for task in FAMILIES[family][1]]
    cases += [picture_case(family) for family in names if family in PICTURES]
    note = ("weights: seed = index in sorted name order, scale 0.2; norm weights scale 0.1, "
            "offset 1; causal labels are the ids, shifted by the loss")
    return {"about": golden.about(note), "cases": cases}


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    names = sys.argv[1:] or [*FAMILIES, *PICTURES]
    golden.write(MODEL / "families.json", lambda: families(names))
    golden.write(MODEL / "positions.json", positions)


if __name__ == "__main__":
    main()
