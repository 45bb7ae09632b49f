"""A small tokenizer folder for clients that want one, trained on given texts; needs `tokenizers` and `transformers`.

usage: tokenizer.py OUT TEXT...
"""
import sys
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
out, *texts = sys.argv[1:]
bpe = Tokenizer(models.BPE())
bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
bpe.decoder = decoders.ByteLevel()
special = ["<|end|>", "<|from|>", "<|to|>"]
alphabet = pre_tokenizers.ByteLevel.alphabet()
bpe.train(texts, trainers.BpeTrainer(vocab_size=2048, special_tokens=special, initial_alphabet=alphabet))
fast = PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token="<|from|>", eos_token="<|to|>", pad_token="<|end|>",
                               unk_token="<|end|>", model_max_length=8192)
fast.chat_template = "{% for m in messages %}<|from|>{{ m['role'] }} {{ m['content'] }}<|to|>{% endfor %}"
fast.save_pretrained(out)
