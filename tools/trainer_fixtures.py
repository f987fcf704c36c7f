"""Makes `crates/compute/tests/golden/trainer.json`: what PyTorch and transformers make of the settings in `[work]`.

    python -m pip install -r tools/requirements.txt
    python tools/trainer_fixtures.py

Losses with weights of classes and label smoothing (`torch.nn.CrossEntropyLoss`), the factors of learning-rate
schedules with warm-up (`transformers.get_*_schedule_with_warmup`), and parameters after steps of AdamW and SGD with
momentum under such a schedule. All arithmetic is f64; inputs are rounded to f32 first, so both sides have the same.
"""

import json
from pathlib import Path

import torch
import transformers

OUT = Path(__file__).resolve().parent.parent / "crates/compute/tests/golden/trainer.json"
STEPS, WARMUP = 12, 3


def draw(generator, *shape):
    return torch.randn(*shape, generator=generator).to(torch.float64)


def loss_case(name, rows, classes, weights=None, smoothing=0.0, ignored=()):
    generator = torch.Generator().manual_seed(len(name) + rows)
    logits = draw(generator, rows, classes).mul(2).float().double().requires_grad_()
    targets = torch.randint(classes, (rows,), generator=generator)
    for row in ignored:
        targets[row] = -100
    weight = None if weights is None else torch.tensor(weights).double()
    criterion = torch.nn.CrossEntropyLoss(weight=weight, label_smoothing=smoothing)
    loss = criterion(logits, targets)
    loss.backward()
    return {
        "name": name,
        "shape": [rows, classes],
        "logits": logits.detach().flatten().tolist(),
        "targets": [None if t < 0 else t for t in targets.tolist()],
        "class_weights": weights,
        "label_smoothing": smoothing,
        "loss": loss.item(),
        "gradient": logits.grad.flatten().tolist(),
    }


def schedules():
    def factors(schedule):
        parameter = torch.nn.Parameter(torch.zeros(1))
        optimiser = torch.optim.SGD([parameter], lr=1.0)
        scheduler = schedule(optimiser)
        found = []
        for _ in range(STEPS):
            found.append(scheduler.get_last_lr()[0])
            optimiser.step()
            scheduler.step()
        return found

    t = transformers
    return {
        "constant": factors(lambda o: t.get_constant_schedule_with_warmup(o, WARMUP)),
        "linear": factors(lambda o: t.get_linear_schedule_with_warmup(o, WARMUP, STEPS)),
        "cosine": factors(lambda o: t.get_cosine_schedule_with_warmup(o, WARMUP, STEPS)),
        "linear_without_warmup": factors(lambda o: t.get_linear_schedule_with_warmup(o, 0, STEPS)),
    }


def trajectory(name, make):
    generator = torch.Generator().manual_seed(7)
    start = draw(generator, 2, 3).float().double()
    gradients = [draw(generator, 2, 3).float().double() for _ in range(STEPS)]
    parameter = torch.nn.Parameter(start.clone())
    optimiser = make([parameter])
    scheduler = transformers.get_cosine_schedule_with_warmup(optimiser, WARMUP, STEPS)
    ends = []
    for gradient in gradients:
        parameter.grad = gradient.clone()
        optimiser.step()
        scheduler.step()
        ends.append(parameter.detach().flatten().tolist())
    return {
        "name": name,
        "start": start.flatten().tolist(),
        "gradients": [gradient.flatten().tolist() for gradient in gradients],
        "trajectory": ends,
    }


def main():
    weights = [0.5, 2.0, 1.0, 4.0, 0.25]
    losses = [
        loss_case("plain", 6, 5, ignored=[2]),
        loss_case("weights", 6, 5, weights=weights, ignored=[0, 4]),
        loss_case("smoothing", 6, 5, smoothing=0.1, ignored=[1]),
        loss_case("both", 6, 5, weights=weights, smoothing=0.2, ignored=[3]),
        loss_case("wide", 3, 40, smoothing=0.1),
    ]
    adamw = lambda p: torch.optim.AdamW(p, lr=1e-2, weight_decay=0.1)
    momentum = lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, weight_decay=0.1)
    default = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))]).defaults["weight_decay"]
    golden = {
        "about": f"torch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}",
        "losses": losses,
        "schedules": schedules(),
        "trajectories": [trajectory("adamw", adamw), trajectory("momentum", momentum)],
        "adamw_weight_decay": default,
    }
    OUT.write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
