"""Checks that folders saved by Fedra load in transformers unchanged and answer as ours do.

    python tools/check_transformers.py FOLDER [FOLDER ...]

Beside its model, each folder holds `answers.json`: {"ids": sequences, "logits": packed numbers},
the logits that our model gave for these sequences. Where it has "names" too, the logits of a row
stand in the order of these classes, which need not be the folder's: they are looked up in id2label.
A folder passes when the class named in its
config.json loads it with no weight missing, left over or of another shape, and its f32 logits are
ours. The test `transformers` of the model crate makes such folders and runs this script with the
Python that FEDRA_PYTHON names:

    FEDRA_PYTHON=python cargo test -p fedra-model --test models transformers -- --nocapture
"""

import argparse
import json
import sys
from pathlib import Path

import torch
import transformers

# Two f32 implementations of a few blocks, each within 1e-6 of the true answer.
TOLERANCE = 5e-6


def check(folder):
    """The largest error, relative to the largest logit; fails by assertion."""
    config = json.loads((folder / "config.json").read_text())
    answers = json.loads((folder / "answers.json").read_text())
    architecture = getattr(transformers, config["architectures"][0])
    model, report = architecture.from_pretrained(folder, output_loading_info=True)
    # A pooler belongs to every BertModel of the library; a bare encoder of ours has none.
    bare = architecture is transformers.BertModel
    missing = {key for key in report["missing_keys"] if not (bare and key.startswith("pooler."))}
    assert not missing, f"missing: {missing}"
    for kind in ("unexpected_keys", "mismatched_keys", "error_msgs"):
        assert not report.get(kind), f"{kind}: {report[kind]}"
    assert model.dtype == torch.float32, model.dtype
    model.eval()
    with torch.no_grad():
        outputs = [model(input_ids=torch.tensor([row])) for row in answers["ids"]]
    logits = [getattr(o, "logits", None) for o in outputs]
    found = [o.last_hidden_state if l is None else l for o, l in zip(outputs, logits)]
    if "names" in answers:
        places = {name: int(row) for row, name in model.config.id2label.items()}
        order = [places[name] for name in answers["names"]]
        found = [part[..., order] for part in found]
    found = torch.cat([part.flatten() for part in found])
    ours = torch.tensor(answers["logits"])
    assert found.shape == ours.shape, f"{len(ours)} numbers of ours, {len(found)} of theirs"
    error = ((found - ours).abs().max() / ours.abs().max()).item()
    assert error < TOLERANCE, f"logits differ by {error:.1e}"
    return architecture.__name__, error


def main():
    arguments = argparse.ArgumentParser(description="Load saved folders in transformers.")
    arguments.add_argument("folders", nargs="+", type=Path)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    failed = False
    for folder in arguments.parse_args().folders:
        try:
            name, error = check(folder)
            print(f"{folder.name}: {name} answers the same, largest error {error:.1e}")
        except Exception as error:  # one bad folder must not hide the others
            failed = True
            print(f"{folder.name}: {error}", file=sys.stderr)
    sys.exit(failed)


if __name__ == "__main__":
    main()
