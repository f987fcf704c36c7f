"""Writes crates/client/tests/fixtures/preference: a tiny decoder with adapters, pairs of answers, and what TRL makes of them.

    pip download --no-deps trl==0.19.1 -d DIR
    python tools/preference_fixtures.py DIR/trl-0.19.1-*.whl     (needs torch, transformers and peft; see requirements.txt)

Losses are those of the function dpo_loss of TRL's trainer, which is taken out of its file because the package brings much
that is not needed. 0.19.1 is the last line of versions whose sigmoid loss has label smoothing; without smoothing the
formulas of 1.16 are the same. Gradients are PyTorch's, of the mean loss over the pairs, in f64.
"""
import argparse
import ast
import json
import pathlib
import types
import zipfile

import peft
import torch
import torch.nn.functional as F
import transformers

OUT = pathlib.Path(__file__).resolve().parent.parent / "crates/client/tests/fixtures/preference"
WORDS = 24
# Prompt, chosen and rejected.
PAIRS = [([1, 5, 9, 4], [7, 8, 2], [11, 2]), ([1, 6], [3, 12, 13, 2], [3, 14, 2]), ([1, 20, 21, 22, 4], [2], [17, 18, 19, 2])]
RULES = [("dpo", 0.1, 0.0), ("dpo", 0.5, 0.1), ("dpo", 2.0, 0.0), ("ipo", 0.1, 0.0), ("ipo", 0.7, 0.0)]


def trl_loss(wheel):
    """The method dpo_loss of TRL's trainer as a function."""
    source = zipfile.ZipFile(wheel).read("trl/trainer/dpo_trainer.py").decode()
    trainer = next(one for one in ast.parse(source).body if getattr(one, "name", "") == "DPOTrainer")
    method = next(one for one in trainer.body if getattr(one, "name", "") == "dpo_loss")
    kinds = types.SimpleNamespace(
        ALPHA_DIVERGENCE=types.SimpleNamespace(value="alpha"), JS_DIVERGENCE=types.SimpleNamespace(value="js")
    )
    known = {"torch": torch, "F": F, "FDivergenceType": kinds}
    exec(compile(ast.Module([method], []), "dpo_trainer.py", "exec"), known)
    return known["dpo_loss"]


def likelihoods(model, means):
    """Of both answers of each pair: sums over tokens, or means."""
    found = []
    for prompt, *answers in PAIRS:
        for answer in answers:
            ids = torch.tensor([prompt + answer])
            logits = model(input_ids=ids).logits[0, :-1].log_softmax(-1)
            told = logits.gather(1, ids[0, 1:, None])[len(prompt) - 1 :]
            found.append(told.mean() if means else told.sum())
    return torch.stack(found).view(-1, 2).T


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel")
    loss_of = trl_loss(parser.parse_args().wheel)
    torch.manual_seed(7)
    config = transformers.LlamaConfig(
        vocab_size=WORDS, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=32, bos_token_id=1, eos_token_id=2, tie_word_embeddings=False,
        initializer_range=0.3, attn_implementation="eager",
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    OUT.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(OUT)
    wanted = peft.LoraConfig(r=2, lora_alpha=6, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM")
    model = peft.get_peft_model(model, wanted)
    for name, weight in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(weight, std=0.2)
    model.save_pretrained(OUT / "adapter")
    (OUT / "adapter/README.md").unlink(missing_ok=True)
    (OUT / "generation_config.json").unlink(missing_ok=True)
    model = model.double().eval()
    cases = []
    for kind, beta, smoothing in RULES:
        model.zero_grad()
        chosen, rejected = likelihoods(model, kind == "ipo")
        with torch.no_grad(), model.disable_adapter():
            ref_chosen, ref_rejected = likelihoods(model, kind == "ipo")
        trainer = types.SimpleNamespace(
            accelerator=types.SimpleNamespace(device="cpu"), reference_free=False, f_divergence_type="reverse_kl",
            loss_type={"dpo": "sigmoid", "ipo": "ipo"}[kind], beta=beta, label_smoothing=smoothing,
        )  # fmt: skip
        losses, *_ = loss_of(trainer, chosen, rejected, ref_chosen, ref_rejected)
        losses.mean().backward()
        trained = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
        short = lambda name: name.removeprefix("base_model.model.").replace(".default", "")
        cases.append({
            "loss": kind, "beta": beta, "label_smoothing": smoothing, "losses": losses.tolist(),
            "margins": (chosen - ref_chosen - rejected + ref_rejected).tolist(),
            "gradients": {short(name): [float(f"{one:.9g}") for one in grad.flatten().tolist()] for name, grad in trained.items()},
        })  # fmt: skip
    made_by = f"tools/preference_fixtures.py, trl 0.19.1, torch {torch.__version__}, transformers {transformers.__version__}, peft {peft.__version__}"
    golden = {"made_by": made_by, "pairs": PAIRS, "cases": cases}
    (OUT / "golden.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    for path in sorted(OUT.rglob("*")):
        print(path, path.stat().st_size)


if __name__ == "__main__":
    main()
