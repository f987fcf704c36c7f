"""Makes crates/model/tests/golden/gguf_blocks.json: blocks of every type, and their values by `gguf`.

    python tools/gguf_fixtures.py
"""

import json
from pathlib import Path

import gguf
import numpy as np

OUT = Path(__file__).parent.parent / "crates/model/tests/golden/gguf_blocks.json"
TYPES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"]
# Where the f16 scales of a block stand; bytes drawn at random would make some of them infinite.
SCALES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
}


def main():
    random = np.random.default_rng(13)
    cases = []
    for name in TYPES:
        kind = gguf.GGMLQuantizationType[name]
        elements, width = gguf.GGML_QUANT_SIZES[kind]
        blocks = 8 if elements == 1 else max(1, 64 // elements)
        if elements == 1:
            values = random.normal(size=blocks).astype(np.float32)
            raw = gguf.quants.quantize(values, kind).view(np.uint8).reshape(1, -1)
        else:
            raw = random.integers(0, 256, size=(blocks, width), dtype=np.uint8)
            for at in SCALES[name]:
                scale = random.normal(size=blocks).astype(np.float16)
                raw[:, at : at + 2] = scale.view(np.uint8).reshape(blocks, 2)
            raw = raw.reshape(1, -1)
        typed = {"F32": np.float32, "F16": np.float16}.get(name)
        values = gguf.quants.dequantize(raw if typed is None else raw.view(typed), kind)
        values = np.asarray(values, dtype=np.float32).reshape(-1)
        cases.append({
            "type": name,
            "bytes": raw.tobytes().hex(),
            "bits": values.view(np.uint32).tolist(),
        })
    OUT.write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


if __name__ == "__main__":
    main()
