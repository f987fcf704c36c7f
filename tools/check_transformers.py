"""Checks that folders saved by Fedra load in transformers unchanged and answer as ours do.

    python tools/check_transformers.py FOLDER [FOLDER ...]

Beside its model, each folder holds `answers.json`: {"ids": sequences, "logits": packed numbers},
the logits that our model gave for these sequences, or for the images in "pixels". Where it has "names" too, the logits of a row
stand in the order of these classes, which need not be the folder's: they are looked up in id2label.
A folder passes when the class named in its
config.json loads it with no weight missing, left over or of another shape, and its f32 logits are
ours. The test `transformers` of the model crate makes such folders and runs this script with the
Python that FEDRA_PYTHON names:

    FEDRA_PYTHON=python cargo test --workspace --test models transformers_loads -- --ignored --nocapture

In a deep model the roundings of f32 add up. With --double ours is compared with the library's answer
in f64, within a bound for thirty blocks, and the error of its own f32 answer is printed beside ours.
"""

import argparse
import json
import sys
from pathlib import Path

import torch
import transformers

# Two f32 implementations of a few blocks, each within 1e-6 of the true answer.
TOLERANCE = 5e-6
# Thirty blocks. Each of our products is one chain of f32 additions over up to 1,536 terms; the same
# chains in an otherwise exact model are 2e-5 from it. Sums in several lanes, as the library has them,
# round less: it is within 2e-6.
DEEP_TOLERANCE = 5e-5


def inputs(answers, dtype=torch.float32):
    """One input after the other: images where there are some, sequences of ids otherwise."""
    if not answers.get("pixels"):
        return [{"input_ids": torch.tensor([row])} for row in answers["ids"]]
    images = torch.tensor(answers["pixels"]["values"], dtype=dtype).reshape(answers["pixels"]["shape"])
    return [{"pixel_values": image[None]} for image in images]


def answered(model, rows):
    with torch.no_grad():
        outputs = [model(**row) for row in rows]
    logits = [getattr(o, "logits", None) for o in outputs]
    return [o.last_hidden_state if l is None else l for o, l in zip(outputs, logits)]


def apart(found, expected):
    return ((found - expected).abs().max() / expected.abs().max()).item()


def check(folder, double):
    """The largest error, relative to the largest logit; fails by assertion."""
    config = json.loads((folder / "config.json").read_text())
    answers = json.loads((folder / "answers.json").read_text())
    architecture = getattr(transformers, config["architectures"][0])
    model, report = architecture.from_pretrained(folder, output_loading_info=True)
    # A pooler belongs to these bare models of the library; ours have none.
    bare = architecture in (transformers.BertModel, transformers.ViTModel, transformers.DeiTModel)
    missing = {key for key in report["missing_keys"] if not (bare and key.startswith("pooler."))}
    assert not missing, f"missing: {missing}"
    for kind in ("unexpected_keys", "mismatched_keys", "error_msgs"):
        assert not report.get(kind), f"{kind}: {report[kind]}"
    assert model.dtype == torch.float32, model.dtype
    model.eval()
    found = answered(model, inputs(answers))
    if "names" in answers:
        places = {name: int(row) for row, name in model.config.id2label.items()}
        order = [places[name] for name in answers["names"]]
        found = [part[..., order] for part in found]
    found = torch.cat([part.flatten() for part in found])
    ours = torch.tensor(answers["logits"])
    assert found.shape == ours.shape, f"{len(ours)} numbers of ours, {len(found)} of theirs"
    if double:
        truth = answered(model.double(), inputs(answers, torch.float64))
        truth = torch.cat([part.flatten() for part in truth])
        error, own, both = apart(ours, truth), apart(found, truth), apart(found, ours)
        print(f"from f64: ours {error:.1e}, the library's f32 {own:.1e}; from each other {both:.1e}")
        assert error < DEEP_TOLERANCE, f"logits are {error:.1e} from f64"
        return architecture.__name__, error
    error = apart(found, ours)
    assert error < TOLERANCE, f"logits differ by {error:.1e}"
    return architecture.__name__, error


def main():
    arguments = argparse.ArgumentParser(description="Load saved folders in transformers.")
    arguments.add_argument("folders", nargs="+", type=Path)
    arguments.add_argument("--double", action="store_true", help="compare with answers in f64")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    failed = False
    given = arguments.parse_args()
    for folder in given.folders:
        try:
            name, error = check(folder, given.double)
            print(f"{folder.name}: {name} answers the same, largest error {error:.1e}")
        except Exception as error:  # one bad folder must not hide the others
            failed = True
            print(f"{folder.name}: {error}", file=sys.stderr)
    sys.exit(failed)


if __name__ == "__main__":
    main()
