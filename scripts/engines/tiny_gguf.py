"""Writes a very small Llama with random weights as a GGUF file, with the tokenizer of a real model.

usage: tiny_gguf.py SOURCE.gguf OUT.gguf

Needs `gguf` and `numpy`. The counterpart of tiny_llama.py for llama.cpp.
"""
import sys

import gguf
import numpy

HIDDEN, LAYERS, HEADS, KV_HEADS, CONTEXT = 128, 2, 4, 2, 8192

source = gguf.GGUFReader(sys.argv[1])
out = gguf.GGUFWriter(sys.argv[2], "llama")
out.add_name("tiny")
out.add_context_length(CONTEXT)
out.add_embedding_length(HIDDEN)
out.add_block_count(LAYERS)
out.add_feed_forward_length(3 * HIDDEN)
out.add_head_count(HEADS)
out.add_head_count_kv(KV_HEADS)
out.add_layer_norm_rms_eps(1e-5)
out.add_rope_freq_base(10_000.0)
out.add_rope_dimension_count(HIDDEN // HEADS)
out.add_file_type(gguf.LlamaFileType.MOSTLY_F16)

writers = {
    gguf.GGUFValueType.ARRAY: out.add_array,
    gguf.GGUFValueType.STRING: out.add_string,
    gguf.GGUFValueType.BOOL: lambda key, value: out.add_bool(key, bool(value)),
}
for key, field in source.fields.items():
    if key.startswith("tokenizer."):
        writers.get(field.types[0], lambda key, value: out.add_uint32(key, int(value)))(key, field.contents())
vocabulary = len(source.fields["tokenizer.ggml.tokens"].contents())
out.add_vocab_size(vocabulary)

random = numpy.random.default_rng(7)


def weights(name, *shape):
    out.add_tensor(f"{name}.weight", (random.standard_normal(shape) * 0.02).astype(numpy.float16))


def norm(name):
    out.add_tensor(f"{name}.weight", numpy.ones(HIDDEN, numpy.float32))


kv = HIDDEN // HEADS * KV_HEADS
weights("token_embd", vocabulary, HIDDEN)
norm("output_norm")
for layer in range(LAYERS):
    block = f"blk.{layer}"
    norm(f"{block}.attn_norm")
    norm(f"{block}.ffn_norm")
    for name, rows in (("attn_q", HIDDEN), ("attn_k", kv), ("attn_v", kv), ("attn_output", HIDDEN)):
        weights(f"{block}.{name}", rows, HIDDEN)
    for name, rows, columns in (("gate", 3, 1), ("up", 3, 1), ("down", 1, 3)):
        weights(f"{block}.ffn_{name}", rows * HIDDEN, columns * HIDDEN)
out.write_header_to_file()
out.write_kv_data_to_file()
out.write_tensors_to_file()
out.close()
print(f"{sys.argv[2]}: {vocabulary} tokens")
