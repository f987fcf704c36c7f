"""Checks adapter folders in both directions, by the PEFT library.

    python tools/check_peft.py ROOT

ROOT has one folder per case: `base` (a model), `ours` (an adapter of it) and `ours.json` ({"ids":
sequences, "logits": packed numbers}, or images in "pixels"), the logits that our model gave. The library has to
load the adapter with no key missing or left over, to give the same logits, and the same gradients of the adapter, which lie in
`gradients` in place of its numbers. Then it makes an adapter of its
own at random, saves it as `theirs` and its logits as `theirs.json`, for our side to compare. The test
`peft` of the model crate makes such folders and runs this script with the Python that FEDRA_PYTHON
names:

    FEDRA_PYTHON=python cargo test --workspace --test models peft -- --ignored --nocapture
"""

import json
import re
import sys
import warnings
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.tuners_utils import _maybe_include_all_linear_layers, check_target_module_exists

from check_transformers import inputs

# Two f32 implementations of a few blocks, each within 1e-6 of the true answer.
TOLERANCE = 1e-5
# A backward pass more.
GRADIENTS = 1e-4


def opened(base):
    config = json.loads((base / "config.json").read_text())
    return getattr(transformers, config["architectures"][0]).from_pretrained(base).eval()


def logits(model, answers):
    with torch.no_grad():
        return recorded(model, answers)


def recorded(model, answers):
    rows = [model(**row).logits for row in inputs(answers)]
    return torch.cat([row.flatten() for row in rows])


def gradients_apart(adapted, case, answers):
    """The largest difference of an adapter's gradients, relative to the largest number of each."""
    for key, weight in adapted.named_parameters():
        weight.requires_grad_("lora_" in key)
    numbers = recorded(adapted, answers)
    factors = (torch.arange(len(numbers)) * 37 % 11).float() / 5 - 1
    (numbers * factors).sum().backward()
    ours = load_file(case / "gradients" / "adapter_model.safetensors")
    worst, compared = 0.0, 0
    for key, weight in adapted.named_parameters():
        if "lora_" not in key:
            continue
        name = key.replace(".default.weight", "" if "magnitude" in key else ".weight")
        found, own = weight.grad, ours[name]
        # A module of several projections has an adapter of blocks, of which only ours learn with us.
        found = torch.where(own == 0, 0.0, found)
        scale = found.abs().max().item()
        # The bias of a key shifts all scores of a query alike, and its gradient is nothing but rounding.
        if scale > 1e-4:
            worst, compared = max(worst, ((found - own).abs().max() / scale).item()), compared + 1
    assert compared > 0, f"{case}: no gradient to compare"
    adapted.zero_grad()
    return worst


def check_targets(case, task):
    """Whether names in `target_modules` mean the same modules inside the blocks."""
    for name, ours in json.loads((case / "targets.json").read_text()).items():
        target = name if name == "all-linear" else [name]
        model = opened(case / "base")
        config = LoraConfig(target_modules=target, task_type=task)
        config = _maybe_include_all_linear_layers(config, model)
        linear = (torch.nn.Linear, transformers.pytorch_utils.Conv1D)
        modules = [key for key, module in model.named_modules() if isinstance(module, linear)]
        found = {key for key in modules if check_target_module_exists(config, key)}
        found = {key for key in found if re.search(r"\.\d+\.", key)}
        assert found == set(ours), f"{case}: {name}: {sorted(found ^ set(ours))}"


def check(case):
    answers = json.loads((case / "ours.json").read_text())
    with warnings.catch_warnings():
        # The library warns of keys that are missing; that is a failure here.
        warnings.simplefilter("error", UserWarning)
        # It also warns of adapters on a head that is the token embedding; here they are the head's alone.
        warnings.filterwarnings("ignore", message=".*tie_word_embeddings=True")
        adapted = PeftModel.from_pretrained(opened(case / "base"), case / "ours").eval()
    ours = torch.tensor(answers["logits"])
    error = ((logits(adapted, answers) - ours).abs().max() / ours.abs().max()).item()
    name = type(adapted.base_model.model).__name__
    assert error < TOLERANCE, f"{case}: {name}: logits differ by {error:.1e}"
    without = logits(opened(case / "base"), answers)
    assert not torch.equal(without, ours), f"{case}: the adapter does nothing"
    settings = adapted.peft_config["default"]
    of_gradients = gradients_apart(adapted, case, answers)
    assert of_gradients < GRADIENTS, f"{case}: {name}: gradients differ by {of_gradients:.1e}"
    # Of images the older names of modules are understood too.
    if not answers.get("pixels"):
        check_targets(case, settings.task_type)
    kind = "DoRA" if settings.use_dora else "LoRA"
    print(f"{name}, {kind}: ours read by PEFT {error:.1e}, gradients {of_gradients:.1e}")

    # An uneven case: rank-stabilised, gaussian, and the library's own names for what it adapts.
    own = LoraConfig(
        r=2,
        lora_alpha=3,
        target_modules=settings.target_modules,
        modules_to_save=settings.modules_to_save,
        task_type=settings.task_type,
        fan_in_fan_out=settings.fan_in_fan_out,
        use_rslora=int(case.name) // 2 % 2 == 0,
        use_dora=settings.use_dora,
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
