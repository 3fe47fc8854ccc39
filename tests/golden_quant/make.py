"""Writes the golden blocks: random blocks of every GGUF type and their values by the `gguf` Python package (an independent
implementation). Run: pip install gguf numpy; python make.py"""
import pathlib

import gguf
import numpy as np

HERE = pathlib.Path(__file__).parent
HALVES = {  # byte offsets of the f16 fields of a block
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2],
    "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [],
}

random = np.random.default_rng(7)
for name, halves in HALVES.items():
    kind = gguf.GGMLQuantizationType[name]
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    count = 1024 // elements
    blocks = random.integers(0, 256, (count, size), dtype=np.uint8)
    for at in halves:
        blocks[:, at:at + 2] = random.normal(0, 0.05, count).astype(np.float16).view(np.uint8).reshape(count, 2)
    if name == "MXFP4":
        blocks[:, 0] = random.integers(110, 135, count)
    values = gguf.dequantize(blocks.reshape(1, -1), kind).astype(np.float32)
    (HERE / f"{name.lower()}.blocks").write_bytes(blocks.tobytes())
    (HERE / f"{name.lower()}.f32").write_bytes(values.tobytes())
