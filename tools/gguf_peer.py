"""Makes GGUF files of every decoder family with llama.cpp's own converter, for our reader to be compared with.

    python tools/gguf_peer.py LLAMA_CPP ROOT

LLAMA_CPP is a checkout of llama.cpp. ROOT gets one folder per case: `hf` (a tiny random model by `transformers`),
`model.gguf` (what `convert_hf_to_gguf.py` makes of it, in F32 and without a vocabulary) and `answers.json` ({"ids":
sequences, "logits": packed numbers}, by `transformers` in f64). The test of the model crate reads both and compares
every tensor and the logits:

    FEDRA_GGUF_PEER=ROOT cargo test -p fedra-model --test models converter -- --ignored --nocapture
"""

import json
import sys
from pathlib import Path

import torch
import transformers

PLAIN = dict(vocab_size=64, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
             intermediate_size=48, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)
LLAMA3 = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192, "rope_theta": 500000.0}
SHORT = LLAMA3 | {"factor": 8.0, "original_max_position_embeddings": 16, "rope_theta": 100.0}
UNUSUAL = LLAMA3 | {"factor": 7.5, "low_freq_factor": 1.5, "high_freq_factor": 9.0,
                    "original_max_position_embeddings": 6000}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 1000.0}
LINEAR = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1000.0}
BOTH = {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 5e3}}

CASES = {
    "llama": ("LlamaForCausalLM", {}),
    "llama tied, own head width": ("LlamaForCausalLM", dict(tie_word_embeddings=True, head_dim=6)),
    "llama biases": ("LlamaForCausalLM", dict(attention_bias=True, mlp_bias=True)),
    "llama 3.2": ("LlamaForCausalLM", dict(head_dim=64, rope_parameters=LLAMA3, max_position_embeddings=131072)),
    "llama 3 in short": ("LlamaForCausalLM", dict(head_dim=6, rope_parameters=SHORT)),
    "llama 3 unusual": ("LlamaForCausalLM", dict(head_dim=128, rope_parameters=UNUSUAL)),
    "llama linear": ("LlamaForCausalLM", dict(rope_parameters=LINEAR)),
    "llama yarn": ("LlamaForCausalLM", dict(rope_parameters=YARN)),
    "llama yarn factors": ("LlamaForCausalLM", dict(
        rope_parameters=YARN | {"attention_factor": 1.3, "beta_fast": 8.0, "beta_slow": 2.0})),
    "mistral": ("MistralForCausalLM", dict(sliding_window=None)),
    "qwen2": ("Qwen2ForCausalLM", {}),
    "qwen2 yarn": ("Qwen2ForCausalLM", dict(rope_parameters=YARN)),
    "qwen3": ("Qwen3ForCausalLM", dict(head_dim=12, tie_word_embeddings=True)),
    "gemma": ("GemmaForCausalLM", dict(head_dim=12)),
    "gemma2": ("Gemma2ForCausalLM", dict(head_dim=12, sliding_window=4, query_pre_attn_scalar=12,
                                         attn_logit_softcapping=2.0, final_logit_softcapping=3.0)),
    "gemma2 27b": ("Gemma2ForCausalLM", dict(head_dim=12, num_hidden_layers=46, sliding_window=4,
                                             query_pre_attn_scalar=8)),
    "gemma3": ("Gemma3ForCausalLM", dict(head_dim=12, num_hidden_layers=7, sliding_window=4,
                                         query_pre_attn_scalar=12)),
    "gemma3 scaled": ("Gemma3ForCausalLM", dict(head_dim=12, num_hidden_layers=7, sliding_window=4,
                                                query_pre_attn_scalar=12, rope_parameters=BOTH)),
    "phi3": ("Phi3ForCausalLM", {}),
    "phi3 window": ("Phi3ForCausalLM", dict(sliding_window=4)),
    "olmo2": ("Olmo2ForCausalLM", {}),
    "smollm3": ("SmolLM3ForCausalLM", dict(num_hidden_layers=5)),
    "smollm3 scaled": ("SmolLM3ForCausalLM", dict(num_hidden_layers=5, rope_parameters=SHORT)),
    "gpt2": ("GPT2LMHeadModel", {}),
}
CONFIGS = {"Gemma3ForCausalLM": "Gemma3TextConfig", "GPT2LMHeadModel": "GPT2Config"}
GPT2 = {"hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
        "max_position_embeddings": "n_positions"}


def make(folder, architecture, settings, seed):
    settings = PLAIN | settings
    if architecture == "GPT2LMHeadModel":
        del settings["intermediate_size"], settings["num_key_value_heads"]
        settings = {GPT2.get(key, key): value for key, value in settings.items()}
        # A key of the old folders, which the converter asks for.
        settings["n_ctx"] = settings["n_positions"]
    config = getattr(transformers, CONFIGS.get(architecture, architecture.replace("ForCausalLM", "Config")))
    config = config(**settings, attn_implementation="eager")
    model = getattr(transformers, architecture)(config).eval()
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            around = 1.0 if "norm" in name and architecture[:5] != "Gemma" and name.endswith("weight") else 0.0
            weight.copy_(around + 0.2 * torch.randn_like(weight))
    model.save_pretrained(folder / "hf")
    # The converter counts the pieces of a Gemma 3.
    vocabulary = {f"piece {number}": number for number in range(settings["vocab_size"])}
    tokenizer = {"model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "piece 0"}, "added_tokens": []}
    (folder / "hf" / "tokenizer.json").write_text(json.dumps(tokenizer))
    ids = [torch.randint(3, settings["vocab_size"], (length,)).tolist() for length in (23, 1, 9)]
    with torch.no_grad():
        logits = [model.double()(input_ids=torch.tensor([row])).logits.flatten() for row in ids]
    (folder / "answers.json").write_text(json.dumps({"ids": ids, "logits": torch.cat(logits).tolist()}))


def convert(llama_cpp, folder):
    """Runs the converter in this process: it has no option to leave the vocabulary out."""
    sys.path[:0] = [str(llama_cpp), str(llama_cpp / "gguf-py")]
    import convert_hf_to_gguf as script
    from conversion.base import ModelBase, TextModel, gguf

    hparams = ModelBase.load_hparams(folder / "hf", False)
    from conversion import get_model_class

    made = get_model_class(hparams["architectures"][0])
    made.set_vocab = TextModel._set_vocab_none
    with torch.inference_mode():
        writer = made(folder / "hf", gguf.LlamaFileType.ALL_F32, folder / "model.gguf")
        writer.write()
    return script


def main():
    llama_cpp, root = Path(sys.argv[1]), Path(sys.argv[2])
    transformers.logging.set_verbosity_error()
    for seed, (name, (architecture, settings)) in enumerate(CASES.items()):
        folder = root / name
        folder.mkdir(parents=True, exist_ok=True)
        make(folder, architecture, settings, seed)
        convert(llama_cpp, folder)
        print(name)


if __name__ == "__main__":
    main()
