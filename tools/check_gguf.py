"""Compares a GGUF file with the folder that `fedra convert` made of it, by other libraries.

    fedra convert MODEL.gguf DIR
    python tools/check_gguf.py MODEL.gguf DIR [TEXT ...]

`gguf` dequantises each tensor of the file: those of the folder must be equal to the bit (query and
key with their rows in the other rotary order). `transformers` reads both: tokens of every line of
the texts must be the same, and so must the logits of the folder and of the file.
"""

import sys

import gguf
import numpy as np
import torch
from safetensors import safe_open
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer

NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def folder_name(name):
    module = name.removesuffix(".weight")
    if module in OUTER:
        return f"{OUTER[module]}.weight"
    _, block, part = module.split(".")
    return f"model.layers.{block}.{NAMES[part]}.weight"


def check_tensors(path, folder):
    reader = gguf.GGUFReader(path)
    count = {
        key: int(reader.fields[f"llama.attention.{key}"].contents())
        for key in ("head_count", "head_count_kv")
        if f"llama.attention.{key}" in reader.fields
    }
    heads = count["head_count"]
    kinds = {}
    with safe_open(f"{folder}/model.safetensors", "np") as ours:
        for tensor in reader.tensors:
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            values = np.asarray(values, dtype=np.float32)
            of = {"attn_q": heads, "attn_k": count.get("head_count_kv", heads)}
            for part, number in of.items():
                if f".{part}." in tensor.name:
                    rows, width = values.shape
                    split = values.reshape(number, rows // number // 2, 2, width)
                    values = split.swapaxes(1, 2).reshape(rows, width)
            if not np.array_equal(values, ours.get_tensor(folder_name(tensor.name))):
                sys.exit(f"{tensor.name} ({tensor.tensor_type.name}) differs")
            kinds[tensor.tensor_type.name] = kinds.get(tensor.tensor_type.name, 0) + 1
    print(f"tensors equal to the bit: {kinds}")


def check_tokens(path, folder, texts):
    place, name = path.rsplit("/", 1)
    theirs = AutoTokenizer.from_pretrained(place, gguf_file=name)
    ours = AutoTokenizer.from_pretrained(folder)
    lines = [line for text in texts for line in open(text, encoding="utf-8", errors="replace")]
    encode = lambda tokenizer, line: tokenizer(line, add_special_tokens=False)["input_ids"]
    found = [encode(ours, line) for line in lines]
    as_read = sum(encode(theirs, line) != tokens for line, tokens in zip(lines, found))
    pre = gguf.GGUFReader(path).fields.get("tokenizer.ggml.pre")
    if pre is not None and pre.contents() == "smollm":
        # transformers does not look at this key: it leaves digits together with a blank before them.
        cut = [pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        theirs.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(cut)
    for line, tokens in zip(lines, found):
        if encode(theirs, line) != tokens:
            sys.exit(f"{line!r}\n  ours   {tokens}\n  theirs {encode(theirs, line)}")
    print(f"tokens equal: {len(lines)} lines, {sum(map(len, found))} tokens")
    print(f"  (without the file's rule for digits transformers cuts {as_read} lines otherwise)")
    return ours


def check_logits(path, folder, tokenizer):
    place, name = path.rsplit("/", 1)
    theirs = AutoModelForCausalLM.from_pretrained(place, gguf_file=name, dtype=torch.float32)
    ours = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    text = "The patient was admitted with chest pain and a history of 12 years of diabetes."
    ids = torch.tensor([tokenizer(text)["input_ids"]])
    with torch.no_grad():
        a, b = ours(ids).logits, theirs(ids).logits
    worst = (a - b).abs().max().item()
    print(f"logits of the folder and of the file: {worst:.2e} apart, {b.abs().max().item():.1f} large")
    if worst > 1e-4:
        sys.exit("the logits differ")


if __name__ == "__main__":
    path, folder, *texts = sys.argv[1:]
    check_tensors(path, folder)
    tokenizer = check_tokens(path, folder, texts)
    check_logits(path, folder, tokenizer)
