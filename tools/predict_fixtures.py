"""Makes small model folders, one for each head, and what transformers says on them.

    python tools/predict_fixtures.py

Writes crates/cli/tests/fixtures/predict/HEAD: a folder of a few kilobytes with random weights, and
`answers.json` with texts of our own and the answers of transformers on CPU in f32. The test `predict` of
the command line holds `fedra predict` against them and needs no Python.

    sequence_one      BertForSequenceClassification, one label, also pairs of texts
    sequence_several  the same with several labels
    words_bert        BertForTokenClassification with B- and I- tags: spans of the pipeline
                      (aggregation_strategy="first")
    sequence_llama    LlamaForSequenceClassification over a byte-level tokenizer
    words_llama       LlamaForTokenClassification with tags that mark no spans: one answer a word
"""

import json
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

FOLDER = Path(__file__).resolve().parent.parent / "crates" / "cli" / "tests" / "fixtures" / "predict"
LONGEST = 40
TEXTS = [
    "No chest pain since the stent was placed.",
    "The patient (68, smoker) was given ASPIRIN, 100 mg daily; troponin 0.4 ng/ml.",
    "Été à Zürich — fever, cough",
    "x",
    "",
    "   blanks\taround\nlines   ",
    "unknownword qqqqq 12/03 stable.",
    "chest pain and fever and cough and no aspirin " * 12,
]
PAIRS = [
    ["Is there chest pain?", "No chest pain since the stent was placed."],
    ["Which drug was given to the patient?", "aspirin " * 50],
]


def wordpiece():
    """BERT's rules over the words of the texts, and all letters."""
    words = sorted({w for t in TEXTS[:3] for w in pieces_of(t)})
    letters = sorted({c for t in TEXTS for c in t.lower() if not c.isspace()} | set("etaz"))
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary += letters + ["##" + c for c in letters] + [w for w in words if len(w) > 1 and w[-1] != "n"]
    tokenizer = Tokenizer(models.WordPiece({w: i for i, w in enumerate(dict.fromkeys(vocabulary))}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_max_length=LONGEST,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


def pieces_of(text):
    pieces = pre_tokenizers.BertPreTokenizer().pre_tokenize_str(normalizers.BertNormalizer().normalize_str(text))
    return [word for word, _ in pieces]


def byte_level():
    """A byte-level BPE of a few merges, as decoders have it, with a token in front."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=["<s>", "</s>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", model_max_length=LONGEST,
        model_input_names=["input_ids", "attention_mask"],
    )


def bert(tokenizer, labels, **more):
    return transformers.BertConfig(
        vocab_size=len(tokenizer), hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=LONGEST, id2label=dict(enumerate(labels)),
        label2id={name: i for i, name in enumerate(labels)}, **more,
    )


def llama(tokenizer, labels):
    return transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=8, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        intermediate_size=16, max_position_embeddings=LONGEST, id2label=dict(enumerate(labels)),
        label2id={name: i for i, name in enumerate(labels)}, pad_token_id=None, bos_token_id=0, eos_token_id=1,
    )


def drawn(architecture, config, seed):
    """A model whose weights are large enough for answers that differ."""
    torch.manual_seed(seed)
    model = architecture(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name.lower():
                # Words of a text are much alike behind two blocks; a large head tells them apart.
                parameter.normal_(0.0, 2.0 if name.startswith(("classifier.w", "score.w")) else 0.6)
    return model


@torch.no_grad()
def of_texts(model, tokenizer, texts, several):
    """By text: the probability of every label."""
    rows = []
    for text in texts:
        given = (text[0], text[1]) if isinstance(text, list) else (text,)
        inputs = tokenizer(*given, truncation=True, return_tensors="pt")
        logits = model(**inputs).logits[0]
        found = torch.sigmoid(logits) if several else torch.softmax(logits, -1)
        names = [model.config.id2label[i] for i in range(len(found))]
        rows.append({"text": text, "probabilities": dict(zip(names, found.tolist()))})
    return rows


@torch.no_grad()
def of_words(model, tokenizer, texts):
    """By word as the tokenizer tells words apart: the answer at its first piece."""
    rows = []
    for text in texts:
        encoded = tokenizer(text, return_tensors="pt", return_offsets_mapping=True)
        offsets, words = encoded.pop("offset_mapping")[0].tolist(), encoded.word_ids(0)
        found = torch.softmax(model(**encoded).logits[0], -1)
        spans, seen = [], {}
        for place, word in enumerate(words):
            if word is None:
                continue
            if word in seen:
                spans[seen[word]]["end"] = offsets[place][1]
                continue
            seen[word] = len(spans)
            best = int(found[place].argmax())
            spans.append({"start": offsets[place][0], "end": offsets[place][1],
                          "label": model.config.id2label[best], "probability": found[place, best].item()})
        for span in spans:  # the blank before a word is no part of it
            part = text[span["start"]:span["end"]]
            span["start"] += len(part) - len(part.lstrip())
            span["end"] = max(span["start"], span["end"] - (len(part) - len(part.rstrip())))
        spans = [span for span in spans if span["start"] < span["end"]]  # blanks are no word
        rows.append({"text": text, "spans": spans})
    return rows


def of_pipeline(model, tokenizer, texts):
    pipeline = transformers.TokenClassificationPipeline(
        model=model, tokenizer=tokenizer, aggregation_strategy="first", device="cpu")
    rows = []
    for text in texts:
        spans = [{"start": s["start"], "end": s["end"], "label": s["entity_group"], "probability": float(s["score"])}
                 for s in (pipeline(text) if text.strip() else [])]
        rows.append({"text": text, "spans": spans})
    return rows


def write(name, model, tokenizer, rows):
    folder = FOLDER / name
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for extra in ["special_tokens_map.json", "generation_config.json"]:
        (folder / extra).unlink(missing_ok=True)
    lines = ",\n ".join(json.dumps(row, ensure_ascii=True) for row in rows)
    (folder / "answers.json").write_text(f"[{lines}]\n")
    print(name, sum(file.stat().st_size for file in folder.iterdir()), "bytes")


def main():
    transformers.logging.set_verbosity_error()
    words, bytes_ = wordpiece(), byte_level()
    short = [text for text in TEXTS if len(words(text)["input_ids"]) <= LONGEST]
    labels = ["stable", "worse", "better"]
    one = drawn(transformers.BertForSequenceClassification, bert(words, labels), 1)
    write("sequence_one", one, words, of_texts(one, words, TEXTS + PAIRS, False))
    several = bert(words, ["I20", "I21", "J18", "R50"], problem_type="multi_label_classification")
    several = drawn(transformers.BertForSequenceClassification, several, 2)
    write("sequence_several", several, words, of_texts(several, words, TEXTS, True))
    tags = ["O", "B-problem", "I-problem", "B-drug", "I-drug"]
    spans = drawn(transformers.BertForTokenClassification, bert(words, tags), 111)
    write("words_bert", spans, words, of_pipeline(spans, words, short))
    decoder = drawn(transformers.LlamaForSequenceClassification, llama(bytes_, labels), 4)
    write("sequence_llama", decoder, bytes_, of_texts(decoder, bytes_, TEXTS, False))
    kinds = drawn(transformers.LlamaForTokenClassification, llama(bytes_, ["NOUN", "VERB", "OTHER"]), 5)
    short = [text for text in TEXTS if len(bytes_(text)["input_ids"]) <= LONGEST]
    write("words_llama", kinds, bytes_, of_words(kinds, bytes_, short))


if __name__ == "__main__":
    main()
