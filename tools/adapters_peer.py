"""A federated round of adapters on one GPU with PyTorch, `transformers` and `peft`: what `fedra run` is compared with.

Each client in turn starts from the shared adapters (rank 8 on queries and values), takes its steps with a fused AdamW in
bf16 over frozen weights, and hands its adapters back as f32 on the host, where they are averaged. Tokens are random and
all of one length, so that nothing is padded; nothing is encoded, checked or written.

    python tools/adapters_peer.py --shape llama2-7b --clients 2 --steps 50            # bf16 weights
    python tools/adapters_peer.py --shape llama2-7b --clients 2 --steps 50 --four-bit # NF4, needs bitsandbytes

Prints one JSON object a round: seconds, tokens per second, peak memory.
"""

import argparse
import json
import time

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from transformers import BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM

SHAPES = {
    "tiny": dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
                 intermediate_size=128, vocab_size=512),
    "llama-1b": dict(hidden_size=2048, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8,
                     intermediate_size=8192, vocab_size=128256, tie_word_embeddings=True),
    "llama2-7b": dict(hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=32,
                      intermediate_size=11008, vocab_size=32000),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="llama-1b")
    parser.add_argument("--weights", help="a folder of the shape instead of random weights")
    parser.add_argument("--four-bit", action="store_true")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    if options.weights:
        four = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
        model = LlamaForCausalLM.from_pretrained(
            options.weights, dtype=torch.bfloat16, device_map={"": options.device},
            quantization_config=four if options.four_bit else None)
    else:
        if options.four_bit:
            parser.error("--four-bit needs --weights")
        torch.set_default_dtype(torch.bfloat16)
        with torch.device(options.device):
            model = LlamaForCausalLM(LlamaConfig(**SHAPES[options.shape]))
        torch.set_default_dtype(torch.float32)
    model.config.use_cache = False
    vocabulary = model.config.vocab_size
    model = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"]))
    trained = [p for p in model.parameters() if p.requires_grad]
    for parameter in trained:
        parameter.data = parameter.data.float()
    on_gpu = options.device.startswith("cuda")
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    run = torch.compile(model) if options.compile else model
    batches = [torch.randint(vocabulary, (options.batch, options.seq), device=options.device) for _ in range(8)]

    def step(batch, optimiser):
        with torch.autocast("cuda" if on_gpu else "cpu", torch.bfloat16):
            loss = run(input_ids=batch, labels=batch).loss
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    warm = torch.optim.AdamW(trained, lr=0.0, fused=on_gpu)
    for batch in batches[:3]:
        step(batch, warm)
    shared = {name: value.float().cpu() for name, value in get_peft_model_state_dict(model).items()}
    for number in range(options.rounds):
        wait()
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
        begun = time.perf_counter()
        sums = {name: torch.zeros_like(value) for name, value in shared.items()}
        for _ in range(options.clients):
            set_peft_model_state_dict(model, shared)
            optimiser = torch.optim.AdamW(trained, lr=1e-4, fused=on_gpu)
            for index in range(options.steps):
                step(batches[index % len(batches)], optimiser)
            for name, value in get_peft_model_state_dict(model).items():
                sums[name] += value.float().cpu() / options.clients
        shared = sums
        wait()
        seconds = time.perf_counter() - begun
        tokens = options.clients * options.steps * options.batch * options.seq
        print(json.dumps({
            "shape": options.shape, "four_bit": options.four_bit, "compile": options.compile, "round": number + 1,
            "clients": options.clients, "steps": options.steps, "seconds": round(seconds, 3),
            "tokens_per_second": round(tokens / seconds),
            "peak_bytes": torch.cuda.max_memory_allocated() if on_gpu else None,
        }), flush=True)


if __name__ == "__main__":
    main()
