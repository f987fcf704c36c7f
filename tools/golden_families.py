"""Makes the golden values of all model families: crates/model/tests/golden/families.json.

    python -m pip install -r tools/requirements.txt
    python tools/golden_families.py [NAME ...]

Tiny models with weights by the formula of tools/golden.py, one case for each family and task: configuration,
logits, loss, the last hidden state and every gradient, in f64.
"""

import json
import sys

import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

import golden
from golden import IGNORED, MODEL, compact, digits, fill, gradients, integers, numbers, tags

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
    elif kind != "default":
        turning.compute_default_rope_parameters = lambda config: ROPE_INIT_FUNCTIONS[kind](config, None)


def case(family, task):
    name, _, settings = FAMILIES[family]
    config = getattr(transformers, f"{name}Config")
    ids = [integers(500 + row, n, 3, settings["vocab_size"]) for row, n in enumerate(LENGTHS)]
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


def families(names):
    cases = [case(family, task) for family in names for task in FAMILIES[family][1]]
    note = ("weights: seed = index in sorted name order, scale 0.2; norm weights scale 0.1, "
            "offset 1; causal labels are the ids, shifted by the loss")
    return {"about": golden.about(note), "cases": cases}


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()
    names = sys.argv[1:] or list(FAMILIES)
    golden.write(MODEL / "families.json", lambda: families(names))


if __name__ == "__main__":
    main()
