#!/usr/bin/env python3
"""Writes a hybrid of Qwen3.5's kind with random weights, for measuring speed: bench/peers/make_dummy.py FOLDER [--layers N]

The default has the sizes of a 0.8B model (width 1024, 24 layers of which every fourth attends, vocabulary 248,320; 1.5 GB in
bf16). The tokenizer is the embedded model's, padded. Needs the standard library only.
"""
import argparse
import array
import json
import math
import pathlib
import random
import shutil
import struct

POOL = 1 << 20  # random numbers that tensors repeat, from other places each time
TINY = pathlib.Path(__file__).resolve().parents[2] / "models/tiny-hybrid"


def bf16(values):
    """Little-endian bytes of the upper halves."""
    raw = array.array("f", values).tobytes()
    out = bytearray(len(raw) // 2)
    out[0::2], out[1::2] = raw[2::4], raw[3::4]
    return bytes(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--ffn", type=int, default=3584)
    parser.add_argument("--vocab", type=int, default=248320)
    a = parser.parse_args()
    heads, kv_heads, head_dim, key_heads, value_heads, dim = 8, 2, 256, 16, 16, 128
    kinds = ["full_attention" if i % 4 == 3 else "linear_attention" for i in range(a.layers)]
    config = {
        "architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "hidden_size": a.width, "intermediate_size": a.ffn,
        "num_hidden_layers": a.layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": head_dim,
        "linear_num_key_heads": key_heads, "linear_num_value_heads": value_heads, "linear_key_head_dim": dim,
        "linear_value_head_dim": dim, "linear_conv_kernel_dim": 4, "layer_types": kinds, "hidden_act": "silu", "rms_norm_eps": 1e-6,
        "max_position_embeddings": 32768, "vocab_size": a.vocab, "tie_word_embeddings": True, "dtype": "bfloat16",
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000000.0, "partial_rotary_factor": 0.25},
    }
    keys, values = key_heads * dim, value_heads * dim
    tensors = {"model.embed_tokens.weight": ([a.vocab, a.width], 1.0), "model.norm.weight": ([a.width], 0.1)}
    for i, kind in enumerate(kinds):
        at = f"model.layers.{i}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{at}{name}.weight"] = ([a.width], 0.1)
        for name, shape in (("gate_proj", [a.ffn, a.width]), ("up_proj", [a.ffn, a.width]), ("down_proj", [a.width, a.ffn])):
            tensors[f"{at}mlp.{name}.weight"] = (shape, None)
        if kind == "full_attention":
            q = heads * head_dim
            for name, shape in (("q_proj", [2 * q, a.width]), ("k_proj", [kv_heads * head_dim, a.width]),
                                ("v_proj", [kv_heads * head_dim, a.width]), ("o_proj", [a.width, q])):
                tensors[f"{at}self_attn.{name}.weight"] = (shape, None)
            for name in ("q_norm", "k_norm"):
                tensors[f"{at}self_attn.{name}.weight"] = ([head_dim], 0.1)
        else:
            for name, shape in (("in_proj_qkv", [2 * keys + values, a.width]), ("in_proj_z", [values, a.width]),
                                ("in_proj_b", [value_heads, a.width]), ("in_proj_a", [value_heads, a.width]), ("out_proj", [a.width, values])):
                tensors[f"{at}linear_attn.{name}.weight"] = (shape, None)
            tensors[f"{at}linear_attn.conv1d.weight"] = ([2 * keys + values, 1, 4], 0.5)
            tensors[f"{at}linear_attn.A_log"] = ([value_heads], 0.5)
            tensors[f"{at}linear_attn.dt_bias"] = ([value_heads], 0.5)
            tensors[f"{at}linear_attn.norm.weight"] = ([dim], 0.1)

    random.seed(1)
    unit = [random.gauss(0, 1) for _ in range(POOL)]
    pools, header, offset = {}, {}, 0
    for name, (shape, _) in tensors.items():
        size = 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    a.folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(a.folder / "model.safetensors", "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for shape, scale in tensors.values():
            scale = scale or 1 / math.sqrt(shape[-1])
            if scale not in pools:
                pools[scale] = bf16(x * scale for x in unit)
            pool = pools[scale]
            left = 2 * math.prod(shape)
            while left > 0:
                begin = 2 * random.randrange(POOL // 2)
                piece = pool[begin:begin + left]
                out.write(piece)
                left -= len(piece)
    (a.folder / "config.json").write_text(json.dumps(config, indent=1))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TINY / name, a.folder / name)
    print(f"{a.folder}: {len(tensors)} tensors, {offset / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
