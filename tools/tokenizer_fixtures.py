#!/usr/bin/env python3
"""Writes crates/data/tests/fixtures/bpe.json and kinds.json: what Hugging Face's libraries make of odd texts.

    python tools/tokenizer_fixtures.py [--models DIR] [--cases N]     (needs tokenizers; see requirements.txt)

One small byte-level vocabulary is trained on the sentences below; the variants share it and differ in how they cut
text, so each one's file is the base with a few keys replaced. With --models, stories260k's tokenizer is asked too.
kinds.json has a small tokenizer of every other kind of model, with normalizers, added tokens and post-processors, and
pairs of texts cut to a length as transformers does it (longest_first).
"""
import argparse
import json
import pathlib
import random

import tokenizers
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "crates/data/tests/fixtures"
OUT, KINDS = FIXTURES / "bpe.json", FIXTURES / "kinds.json"
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


PAIRS = [
    ("Is the pain better?", "The patient's pain is better after 12 days; no fever."),
    ("The patient's pain is better after 12 days; no fever.", "Pain?"),
    ("[SEP] </s> <s>", "naïve Café ﬁne <TOOL> x"),
    ("", "cough"),
]
LENGTHS = [64, 12, 7]
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
MARKS = ["<pad>", "<unk>", "<s>", "</s>"]


def kinds():
    """Name, tokenizer: every model but byte-level BPE, and every sort of post-processor."""
    bert = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    bert.normalizer = normalizers.BertNormalizer()
    bert.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    bert.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=120, special_tokens=SPECIALS, show_progress=False))
    ids = {name: bert.token_to_id(name) for name in SPECIALS}
    bert.post_processor = processors.BertProcessing(("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"]))
    bert.add_tokens([AddedToken("<TOOL>", normalized=False, lstrip=True), AddedToken("mmHg", single_word=True)])
    yield "BERT with added tokens", bert

    words = Tokenizer(models.WordLevel(unk_token="<unk>"))
    words.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip()])
    words.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()])
    words.train_from_iterator(CORPUS, trainers.WordLevelTrainer(vocab_size=60, special_tokens=MARKS, show_progress=False))
    single, pair = "<s> $A </s>", "<s> $A </s> $B:1 </s>:1"
    words.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=[("<s>", 2), ("</s>", 3)])
    yield "words under NFKC", words

    unigram = Tokenizer(models.Unigram())
    unigram.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Replace(Regex(" {2,}"), " ")])
    unigram.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    trainer = trainers.UnigramTrainer(vocab_size=90, special_tokens=["<s>", "<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False)
    unigram.train_from_iterator(CORPUS, trainer)
    unigram.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 2)])
    yield "Unigram", unigram

    roberta = Tokenizer.from_str(json.dumps(trained()))
    roberta.normalizer = normalizers.NFC()
    roberta.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    roberta.add_special_tokens(["<s>", "</s>"])
    start, end = roberta.token_to_id("<s>"), roberta.token_to_id("</s>")
    roberta.post_processor = processors.RobertaProcessing(("</s>", end), ("<s>", start))
    yield "RoBERTa", roberta

    scripts = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    scripts.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.UnicodeScripts(), pre_tokenizers.Whitespace()])
    scripts.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=120, special_tokens=MARKS, end_of_word_suffix="</w>", show_progress=False))
    yield "BPE with suffixes and no post-processor", scripts


def kind_cases(name, tokenizer):
    """What the library gives for texts and pairs; transformers must agree where no special token is spelt."""
    file = json.loads(tokenizer.to_str())
    texts = [text for text in TEXTS if "<s>" not in text] + [text for pair in PAIRS for text in pair if "<s>" not in text]
    tokenizer.encode_special_tokens = True
    cases = [[text, tokenizer.encode(text, add_special_tokens=False).ids] for text in texts]
    wrapped = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(file)))
    pairs = []
    for first, second in PAIRS:
        for length in LENGTHS:
            tokenizer.enable_truncation(length)
            made = tokenizer.encode(first, second)
            if "<s>" not in first:
                theirs = wrapped(first, second, truncation="longest_first", max_length=length, return_token_type_ids=True)
                assert (theirs["input_ids"], theirs["token_type_ids"]) == (made.ids, made.type_ids), (name, first, second)
                pairs.append([first, second, length, made.ids, made.type_ids])
    return {"name": name, "file": file, "cases": cases, "pairs": pairs}


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
    about = {**whole["about"], "transformers": transformers.__version__}
    all_kinds = {"about": about, "kinds": [kind_cases(*kind) for kind in kinds()]}
    KINDS.write_text(json.dumps(all_kinds, ensure_ascii=False, separators=(",", ":")) + "\n")
    print(OUT.stat().st_size, "and", KINDS.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
