#!/usr/bin/env python3
"""Writes crates/data/tests/fixtures/bpe.json: what Hugging Face's tokenizers library makes of odd texts.

    python tools/tokenizer_fixtures.py [--models DIR] [--cases N]     (needs tokenizers; see requirements.txt)

One small byte-level vocabulary is trained on the sentences below; the variants share it and differ in how they cut
text, so each one's file is the base with a few keys replaced. With --models, stories260k's tokenizer is asked too.
"""
import argparse
import json
import pathlib
import random

import tokenizers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

OUT = pathlib.Path(__file__).resolve().parent.parent / "crates/data/tests/fixtures/bpe.json"
CORPUS = [
    "The patient denies chest pain, fever or cough. He's stable; they'll follow up in 12 days.",
    "Blood pressure 120/80 mmHg, pulse 72. No known allergies. The patient's pain is better.",
    "  indented\n\n\nlines and\ttabs  and   runs of blanks \r\n and the rest of the patient's notes",
] * 3
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEXTS = [
    "",
    " ",
    "a",
    "The patient's CXR: no acute process; they'LL see. I'Ve, 'tis 'S 'ſ '",
    "  two  blanks\n\n three   \t tabs\r\n\r\nend  \n",
    "12345 1 22 333 4444a5 ½ ² Ⅷ ٣٤",
    "naïve café 你好 🙂👩‍⚕️ a\u0301 \u00a0x\u3000y\u200bz \u0085w",
    "<s> [SEP] <|endoftext|> ▁under_score",
    "x<|tool|>y  <|tool|> z",
]
ALPHABET = list("abcdelst 12  '\n\t\r.,!(é你½🙂") + ["'ll", "'RE", " the", "\u00a0", "<|tool|>", "patient"]


def trained():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=330, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<|endoftext|>"], show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([tokenizers.AddedToken("<|tool|>", normalized=False)])
    return json.loads(tokenizer.to_str())


def variants(base):
    start = {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]}}
    single = [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    template = {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": start}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": LLAMA3}, "behavior": "Isolated", "invert": False}
    qwen = {**split, "pattern": {"Regex": LLAMA3.replace("{1,3}", "")}}
    digits = {"type": "Digits", "individual_digits": True}
    sequence = lambda *parts: {"type": "Sequence", "pretokenizers": list(parts)}
    old_merges = [" ".join(pair) for pair in base["model"]["merges"]]
    model = lambda **keys: {"model": keys}
    yield "gpt2", {}
    yield "gpt2 with a blank first", {"pre_tokenizer": {**level, "add_prefix_space": True, "use_regex": True}}
    yield "llama3", {
        "pre_tokenizer": sequence(split, level),
        "post_processor": {"type": "Sequence", "processors": [level, template]},
        **model(ignore_merges=True, merges=old_merges),
    }
    yield "qwen2", {"pre_tokenizer": sequence({**qwen, "behavior": "Removed", "invert": True}, level)}
    yield "smollm2", {"pre_tokenizer": sequence(digits, {**level, "use_regex": True})}
    yield "digits in runs", {"pre_tokenizer": sequence({**digits, "individual_digits": False}, {**level, "use_regex": True})}
    mark = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    yield "metaspace", {"pre_tokenizer": mark, **model(unk_token="a", fuse_unk=True)}
    yield "metaspace split", {"pre_tokenizer": {**mark, "prepend_scheme": "always", "split": True}, **model(unk_token="a")}
    # LLaMA's own conversion, here with few byte tokens: what has none becomes unknown.
    steps = [{"type": "Prepend", "prepend": "_"}, {"type": "Replace", "pattern": {"String": " "}, "content": "_"}]
    yield "prepend and replace", {"pre_tokenizer": None, "normalizer": {"type": "Sequence", "normalizers": steps}}


def merged(base, changes):
    model = {**base["model"], **changes.get("model", {})}
    return {**base, **changes, "model": model}


def cases(tokenizer, count, seed):
    draw = random.Random(seed)
    texts = TEXTS + ["".join(draw.choices(ALPHABET, k=draw.randint(1, 24))) for _ in range(count)]
    tokenizer.encode_special_tokens = True
    encode = lambda text: tokenizer.encode(text, add_special_tokens=False).ids
    return [[text, encode(text)] for text in texts]


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--models", type=pathlib.Path)
    arguments.add_argument("--cases", type=int, default=2)
    chosen = arguments.parse_args()
    base = trained()
    whole = {"about": {"made_by": "tools/tokenizer_fixtures.py", "tokenizers": tokenizers.__version__}, "base": base, "variants": []}
    for seed, (name, changes) in enumerate(variants(base)):
        tokenizer = Tokenizer.from_str(json.dumps(merged(base, changes)))
        whole["variants"].append({"name": name, "changes": changes, "cases": cases(tokenizer, chosen.cases, seed)})
    if chosen.models:
        tokenizer = Tokenizer.from_file(str(chosen.models / "stories260k/tokenizer.json"))
        whole["stories260k"] = cases(tokenizer, 4 * chosen.cases, 99)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(whole, ensure_ascii=False, separators=(",", ":")) + "\n")
    print(OUT.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
