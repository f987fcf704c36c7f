"""Writes crates/client/tests/fixtures/answers.json: likelihoods and greedy texts of transformers.

    python tools/likelihood_fixtures.py DIR     # DIR holds stories260k/ (see requirements.txt)

Prompts and answers are of our own making. An answer's log-likelihood is the sum over its tokens
behind those that prompt and prompt with answer have in common.
"""

import json
import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

CHOICES = [
    ("Lily saw a big dog.\nQuestion: Was the dog small? True or False?\nAnswer:", ["True", "False"]),
    ("Tom dropped the glass.\nQuestion: What was the effect?\nAnswer:",
     ["The glass broke into many pieces.", "He went to the park with mom.", "The end."]),
    ("Once upon a time, there was a little girl named", ["Lily", "Lily.", "Zebra", "Sue and Tom"]),
    ("The sun was hot. ", ["They went to swim.", "They made a snowman."]),
    ("x", ["y", "naïve café", "12 mg of aspirin"]),
]
PROMPTS = ["Once upon a time", "Tom had a red ball. He", "The doctor said:", "Lily was sad because"]
NEW_TOKENS = 48


def main():
    folder = pathlib.Path(sys.argv[1]) / "stories260k"
    torch.manual_seed(0)
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    choices = []
    for prompt, answers in CHOICES:
        rows = []
        alone = tokenizer(prompt).input_ids
        whole = [tokenizer(prompt + ("" if prompt.endswith(" ") else " ") + a).input_ids for a in answers]
        shared = len(alone)
        for ids in whole:
            same = 0
            while same < min(shared, len(ids)) and ids[same] == alone[same]:
                same += 1
            shared = same
        for answer, ids in zip(answers, whole):
            with torch.no_grad():
                logits = model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
            told = [logits[i - 1, ids[i]].item() for i in range(shared, len(ids))]
            rows.append({"answer": answer, "tokens": len(told), "log_likelihood": sum(told)})
        choices.append({"prompt": prompt, "answers": rows})
    texts = []
    for prompt in PROMPTS:
        ids = torch.tensor([tokenizer(prompt).input_ids])
        with torch.no_grad():
            out = model.generate(ids, max_new_tokens=NEW_TOKENS, do_sample=False)
        text = tokenizer.decode(out[0, ids.shape[1]:], skip_special_tokens=True)
        texts.append({"prompt": prompt, "text": text})
    out = pathlib.Path(__file__).parent.parent / "crates/client/tests/fixtures/answers.json"
    value = {"choices": choices, "new_tokens": NEW_TOKENS, "texts": texts}
    out.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")


main()
