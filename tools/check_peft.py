"""Checks adapter folders in both directions, by the PEFT library.

    python tools/check_peft.py ROOT

ROOT has one folder per case: `base` (a model), `ours` (an adapter of it) and `ours.json` ({"ids":
sequences, "logits": packed numbers}, or images in "pixels"), the logits that our model gave. The library has to
load the adapter with no key missing or left over and to give the same logits. Then it makes an adapter of its
own at random, saves it as `theirs` and its logits as `theirs.json`, for our side to compare. The test
`peft` of the model crate makes such folders and runs this script with the Python that FEDRA_PYTHON
names:

    FEDRA_PYTHON=python cargo test --workspace --test models peft -- --ignored --nocapture
"""

import json
import sys
import warnings
from pathlib import Path

import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model

from check_transformers import inputs

# Two f32 implementations of a few blocks, each within 1e-6 of the true answer.
TOLERANCE = 1e-5


def opened(base):
    config = json.loads((base / "config.json").read_text())
    return getattr(transformers, config["architectures"][0]).from_pretrained(base).eval()


def logits(model, answers):
    with torch.no_grad():
        rows = [model(**row).logits for row in inputs(answers)]
    return torch.cat([row.flatten() for row in rows])


def check(case):
    answers = json.loads((case / "ours.json").read_text())
    with warnings.catch_warnings():
        # The library warns of keys that are missing; that is a failure here.
        warnings.simplefilter("error", UserWarning)
        adapted = PeftModel.from_pretrained(opened(case / "base"), case / "ours").eval()
    ours = torch.tensor(answers["logits"])
    error = ((logits(adapted, answers) - ours).abs().max() / ours.abs().max()).item()
    name = type(adapted.base_model.model).__name__
    assert error < TOLERANCE, f"{case}: {name}: logits differ by {error:.1e}"
    without = logits(opened(case / "base"), answers)
    assert not torch.equal(without, ours), f"{case}: the adapter does nothing"
    print(f"{name}: ours read by PEFT {error:.1e}")

    settings = adapted.peft_config["default"]
    # An uneven case: rank-stabilised, gaussian, and the library's own names for what it adapts.
    own = LoraConfig(
        r=2,
        lora_alpha=3,
        target_modules=settings.target_modules,
        modules_to_save=settings.modules_to_save,
        task_type=settings.task_type,
        fan_in_fan_out=settings.fan_in_fan_out,
        use_rslora=int(case.name) % 2 == 0,
        init_lora_weights="gaussian",
    )
    theirs = get_peft_model(opened(case / "base"), own).eval()
    torch.manual_seed(int(case.name))
    with torch.no_grad():
        for key, weight in theirs.named_parameters():
            if weight.requires_grad:
                weight.add_(torch.randn_like(weight) * 0.2)
    theirs.save_pretrained(case / "theirs")
    made = logits(theirs, answers).tolist()
    (case / "theirs.json").write_text(json.dumps({"logits": made}))


if __name__ == "__main__":
    for case in sorted(Path(sys.argv[1]).iterdir()):
        check(case)
