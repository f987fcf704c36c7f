"""Makes crates/model/tests/golden/greedy.json: the most likely continuations of every decoder by transformers.

    python tools/golden_greedy.py

The models are those of tools/golden_families.py. `generate` with its cache and reading the whole text again for
every token have to agree. Prompts whose two most likely tokens are ever too close are passed over.
"""

import torch
import transformers

import golden
from golden import MODEL, fill, integers
from golden_families import CLASSES, FAMILIES, RENAMED

NEW = 8
LENGTHS = [4, 9]
MARGIN = 1e-3


def decoders():
    """Name and model of every family that continues texts."""
    for family, (name, tasks, settings) in FAMILIES.items():
        task = next((task for task in tasks if task in ("CausalLM", "LMHeadModel")), None)
        if task is None:
            continue
        rename = RENAMED.get(family, {})
        config = {rename.get(key, key): value for key, value in settings.items()}
        config = getattr(transformers, f"{name}Config")(**config)
        kind = task if task == "LMHeadModel" else f"For{task}"
        model = fill(getattr(transformers, f"{CLASSES.get(name, name)}{kind}")(config)).float().eval()
        model.generation_config.eos_token_id = None
        yield family, model


def continued(model, prompt):
    """The tokens, and the least distance between the two most likely."""
    text, margin = list(prompt), float("inf")
    for _ in range(NEW):
        logits = model(input_ids=torch.tensor([text]), use_cache=False).logits[0, -1]
        best, second = logits.topk(2).values.tolist()
        margin = min(margin, best - second)
        text.append(int(logits.argmax()))
    ids = torch.tensor([prompt])
    made = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, do_sample=False,
                          use_cache=True)
    assert made[0].tolist() == text or margin < MARGIN, (prompt, made, text)
    return text[len(prompt):], margin


def greedy():
    cases = []
    for family, model in decoders():
        for length in LENGTHS:
            found = []
            for seed in range(40):
                prompt = integers(9000 + 100 * length + seed, length, 3, FAMILIES[family][2]["vocab_size"])
                with torch.no_grad():
                    tokens, margin = continued(model, prompt)
                if margin > MARGIN:
                    found.append((len(set(tokens)), -seed, prompt, tokens, margin))
                if found and max(found)[0] > 2:
                    break
            # The one with the most different tokens.
            _, _, prompt, tokens, margin = max(found)
            cases.append({"family": family, "prompt": prompt, "tokens": tokens, "margin": round(margin, 6)})
    return {"about": golden.about("greedy continuations; models of golden_families.py in f32"), "cases": cases}


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    golden.write(MODEL / "greedy.json", greedy)


if __name__ == "__main__":
    main()
