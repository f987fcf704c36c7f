"""Makes GGUF files of every decoder family with llama.cpp's own converter, for our reader to be compared with.

    python tools/gguf_peer.py LLAMA_CPP ROOT
    python tools/gguf_peer.py --check ROOT TEXT ..

LLAMA_CPP is a checkout of llama.cpp. ROOT gets one folder per case: `hf` (a tiny random model by `transformers`),
`model.gguf` (what `convert_hf_to_gguf.py` makes of it, in F32 and without a vocabulary) and `answers.json` ({"ids":
sequences, "logits": packed numbers}, by `transformers` in f64). The test of the model crate reads both and compares
every tensor and the logits:

    FEDRA_GGUF_PEER=ROOT cargo test -p fedra-model --test models converter -- --ignored --nocapture

Some cases have a tokenizer, trained here on this repository's documents and cut as the family's is. The test writes
every file as a folder, `ours`; then --check compares its logits in `transformers` with those of `hf`, and the ids of
every line of the texts (needs sentencepiece).
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
LONGROPE = {"rope_type": "longrope", "rope_theta": 1000.0, "short_factor": [1.0, 1.1, 1.25, 1.7],
            "long_factor": [1.3, 2.1, 5.5, 9.0]}
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
    "phi3 longrope": ("Phi3ForCausalLM", dict(rope_parameters=LONGROPE, original_max_position_embeddings=8)),
    "phi3 longrope, short texts": ("Phi3ForCausalLM", dict(rope_parameters=LONGROPE,
                                                           original_max_position_embeddings=32)),
    "olmo2": ("Olmo2ForCausalLM", {}),
    "smollm3": ("SmolLM3ForCausalLM", dict(num_hidden_layers=5)),
    "smollm3 scaled": ("SmolLM3ForCausalLM", dict(num_hidden_layers=5, rope_parameters=SHORT)),
    "gpt2": ("GPT2LMHeadModel", {}),
}
CONFIGS = {"Gemma3ForCausalLM": "Gemma3TextConfig", "GPT2LMHeadModel": "GPT2Config"}
GPT2 = {"hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
        "max_position_embeddings": "n_positions"}


WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TEKKEN = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*|\p{{N}}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# What a file's tokenizer is called, its architecture, and how its words are cut.
TOKENIZERS = {
    "gpt-2": ("GPT2LMHeadModel", None),
    "smollm": ("LlamaForCausalLM", "digits"),
    "llama-bpe": ("LlamaForCausalLM", WORDS.replace("DIGITS", r"\p{N}{1,3}")),
    "dbrx": ("Olmo2ForCausalLM", WORDS.replace("DIGITS", r"\p{N}{1,3}")),
    "qwen2": ("Qwen2ForCausalLM", WORDS.replace("DIGITS", r"\p{N}")),
    "tekken": ("MistralForCausalLM", TEKKEN),
    "gemma": ("Gemma2ForCausalLM", "sentencepiece"),
    "llama": ("LlamaForCausalLM", "sentencepiece"),
}
PIECES = 600


def corpus():
    documents = sorted((Path(__file__).parent.parent / "docs").glob("*.md"))
    return "\n".join(document.read_text() for document in documents).split("\n")


def train(folder, pre, cut):
    """A small tokenizer of the kind in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    if cut == "sentencepiece":
        import sentencepiece

        own = ["  ".replace(" ", "\u2581"), "<table>"] if pre == "gemma" else []
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(corpus()), model_prefix=str(folder / "tokenizer"), vocab_size=PIECES,
            model_type="bpe", byte_fallback=True, normalization_rule_name="identity", pad_id=0, eos_id=1, bos_id=2,
            unk_id=3, add_dummy_prefix=pre == "llama", remove_extra_whitespaces=False, user_defined_symbols=own,
            split_digits=True, minloglevel=2)
        processor = sentencepiece.SentencePieceProcessor(str(folder / "tokenizer.model"))
        added = {processor.piece_to_id(piece): {"content": piece, "special": False} for piece in own}
        (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added}))
        return
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=cut in (None, "digits"))
    if cut is None:
        made.pre_tokenizer = level
    else:
        before = pre_tokenizers.Digits(True) if cut == "digits" else pre_tokenizers.Split(Regex(cut), "isolated")
        made.pre_tokenizer = pre_tokenizers.Sequence([before, level])
    if pre == "qwen2":
        made.normalizer = normalizers.NFC()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=PIECES, initial_alphabet=alphabet, special_tokens=["<a>", "<b>", "<c>"], show_progress=False))
    whole = json.loads(made.to_str())
    whole["model"]["ignore_merges"] = pre in ("llama-bpe", "tekken")
    made = Tokenizer.from_str(json.dumps(whole))
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<b>", eos_token="<c>", pad_token="<a>")
    wrapped.save_pretrained(folder)


def tokens(root, texts):
    """Compares the ids of the folder and of ours."""
    from tokenizers import Tokenizer

    lines = [line for text in texts for line in Path(text).read_text().split("\n")]
    lines += ["  two  blanks\n\n three   \t tabs\r\n", "12345 1 22 333 a\u0301 caf\u00e9 \u4f60\u597d \U0001f642", "I'LL HTMLParser/x <table> end "]
    for pre, (_, cut) in TOKENIZERS.items():
        case = root / f"tokens {pre}"
        ours = Tokenizer.from_file(str(case / "ours" / "tokenizer.json"))
        if cut == "sentencepiece":
            import sentencepiece

            processor = sentencepiece.SentencePieceProcessor(str(case / "hf" / "tokenizer.model"))
            encode = processor.encode
        else:
            theirs = Tokenizer.from_file(str(case / "hf" / "tokenizer.json"))
            encode = lambda line: theirs.encode(line, add_special_tokens=False).ids
        other = [line for line in lines if ours.encode(line, add_special_tokens=False).ids != encode(line)]
        count = sum(len(encode(line)) for line in lines)
        print(f"{pre}: {len(lines)} lines, {count} tokens, {len(other)} lines differ", other[:2])


def folders(root):
    """Reads our folders and compares their logits with those of the originals."""
    for case in sorted(root.iterdir()):
        name = json.loads((case / "ours" / "config.json").read_text())["architectures"][0]
        made, report = getattr(transformers, name).from_pretrained(
            case / "ours", attn_implementation="eager", output_loading_info=True)
        assert not any(report.values()), (case.name, report)
        answers = json.loads((case / "answers.json").read_text())
        with torch.no_grad():
            found = [made.eval().double()(input_ids=torch.tensor([row])).logits.flatten() for row in answers["ids"]]
        expected = torch.tensor(answers["logits"], dtype=torch.float64)
        error = ((torch.cat(found) - expected).abs().max() / expected.abs().max()).item()
        print(f"{case.name}: {name}, logits {error:.1e}")


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
    has_own = any((folder / "hf").glob("tokenizer*"))
    vocabulary = {f"piece {number}": number for number in range(settings["vocab_size"])}
    tokenizer = {"model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "piece 0"}, "added_tokens": []}
    if not has_own:
        (folder / "hf" / "tokenizer.json").write_text(json.dumps(tokenizer))
    ids = [torch.randint(3, settings["vocab_size"], (length,)).tolist() for length in (23, 1, 9)]
    with torch.no_grad():
        logits = [model.double()(input_ids=torch.tensor([row])).logits.flatten() for row in ids]
    (folder / "answers.json").write_text(json.dumps({"ids": ids, "logits": torch.cat(logits).tolist()}))


def convert(llama_cpp, folder, pre=None):
    """Runs the converter in this process: it has no option to leave the vocabulary out, nor to name its rules."""
    sys.path[:0] = [str(llama_cpp), str(llama_cpp / "gguf-py")]
    from conversion.base import ModelBase, TextModel, gguf

    hparams = ModelBase.load_hparams(folder / "hf", False)
    from conversion import get_model_class

    made = get_model_class(hparams["architectures"][0])
    own = made.set_vocab
    made.set_vocab = own if pre else TextModel._set_vocab_none
    TextModel.get_vocab_base_pre = lambda self, tokenizer: pre
    with torch.inference_mode():
        writer = made(folder / "hf", gguf.LlamaFileType.ALL_F32, folder / "model.gguf")
        writer.write()
    made.set_vocab = own


def main():
    if sys.argv[1] == "--check":
        folders(Path(sys.argv[2]))
        return tokens(Path(sys.argv[2]), sys.argv[3:])
    llama_cpp, root = Path(sys.argv[1]), Path(sys.argv[2])
    transformers.logging.set_verbosity_error()
    for seed, (name, (architecture, settings)) in enumerate(CASES.items()):
        folder = root / name
        if (folder / "model.gguf").exists():
            continue
        folder.mkdir(parents=True, exist_ok=True)
        make(folder, architecture, settings, seed)
        convert(llama_cpp, folder)
        print(name)
    for seed, (pre, (architecture, cut)) in enumerate(TOKENIZERS.items()):
        folder = root / f"tokens {pre}"
        train(folder / "hf", pre, cut)
        # The converter does not write the window of a Mistral.
        whole = dict(sliding_window=None) if architecture[:7] == "Mistral" else {}
        make(folder, architecture, dict(vocab_size=PIECES + 8) | whole, seed)
        convert(llama_cpp, folder, pre)
        print(folder.name)


if __name__ == "__main__":
    main()
