"""Writes a very small Llama with random weights, in the folder format that vLLM loads.

usage: tiny_llama.py GGUF_FILE OUT

It takes its tokenizer from the GGUF file of a real model, so that text, token counts and streams are as those of a real
model; the answers mean nothing. A step of it takes milliseconds on a CPU, which leaves the engine's own scheduling to
be seen.
"""
import os
import pathlib
import sys

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

gguf, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
torch.manual_seed(7)
config = LlamaConfig(
    vocab_size=len(tokenizer),
    hidden_size=128,
    intermediate_size=384,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=8192,
    tie_word_embeddings=True,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=2,
)
model = LlamaForCausalLM(config).to(torch.float32)
model.save_pretrained(out)
tokenizer.save_pretrained(out)
print(f"{out}: {sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters, {len(tokenizer)} tokens")
