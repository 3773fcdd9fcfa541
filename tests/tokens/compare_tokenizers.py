#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares orthant tokenize with tiktoken and Hugging Face's tokenizers on random Unicode strings.

    python3 -m venv compare && compare/bin/pip install tokenizers tiktoken h5py
    compare/bin/python tests/tokens/compare_tokenizers.py build/bin/orthant [NUMBER OF STRINGS] [GPT2.tiktoken]

Each tokenizer is trained here on the strings' words, saved in the formats of its package, and read by orthant. Prints a
line per tokenizer, and fails if any string has other tokens. The strings are the documents of one JSONL file.
"""

import base64
import json
import os
import random
import subprocess
import sys
import tempfile

import h5py
import tiktoken
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

END = "<|end_of_document|>"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
          r"|\s+(?!\S)|\s")
PIECES = ["'s", "'S", "'t", "'re", "'RE", "'ve", "'m", "'ll", "'LL", "'d", "'\u017f", "''", "'", " ", "  ", "   ", "\n", "\r\n",
          "\n\n", "\t", "\u00a0", "\u2003", "\u3000", "\u0085", "\u180e", "\x1c", "\u200b", "\u2028", "1", "12", "1234567", "\u0663\u0664",
          "\u00bd", "\u2167", "\u00b2", "a", "the", " the", "Hello", "\u00e9", "e\u0301", "stra\u00dfe", "\u01c5", "\u65e5\u672c\u8a9e", "\u4e2d",
          "\u0928\u092e\u0938\u094d\u0924\u0947", "\u0e20\u0e32\u0e29\u0e32", "\u05e9\u05dc\u05d5\u05dd", "\U0001f600", "\U0001f469\u200d\U0001f467", "\ufe0f", "\ufeff", "\x00", "\x7f",
          "!", "!!", "(", ")", ".", "...", "-", "--", "_", "\"", "<", "<|", "|>", "<|special|>", "<|left|>", "<|right|>", "<|plain|>",
          "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "http://example.org/a?b=c", "\U00010ffff", "\ue000"]


def code_points():
    """All code points but those that \\p{N} and the pre-tokenizer Digits class differently: Digits has a newer Unicode."""
    number = pre_tokenizers.Split(Regex(r"\p{N}"), "removed")
    digit = pre_tokenizers.Digits(True)
    codes = [code for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000]
    differing = {code for code in codes
                 if (not number.pre_tokenize_str(chr(code))) != (len(digit.pre_tokenize_str("a" + chr(code))) == 2)}
    print(f"{len(differing)} code points left out that are digits for Digits and not for \\p{{N}}, or the reverse")
    return [code for code in codes if code < 0x300], [code for code in codes if code >= 0x300 and code not in differing]


def random_string(draw, codes):
    parts = []
    for _ in range(draw.randint(1, 24)):
        kind = draw.random()
        if kind < 0.75:
            parts.append(draw.choice(PIECES))
        elif kind < 0.9:
            parts.append(chr(draw.choice(draw.choice(codes))))
        else:
            parts.append("".join(draw.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(draw.randint(1, 12))))
    return "".join(parts)


def byte_characters():
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


def train(pre_tokenizer, strings, size=4000):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=sorted(byte_characters()), show_progress=False)
    tokenizer.train_from_iterator(strings, trainer)
    tokenizer.add_special_tokens([END])
    return tokenizer


def byte_level(prefix=False, regex=True):
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=regex)


def split_by(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), byte_level(regex=False)])


def hugging_face(strings):
    """(name, tokenizer) of the kinds of tokenizer.json."""
    digits = pre_tokenizers.Digits
    kinds = [("gpt2", byte_level()), ("gpt2 with a prefix space", byte_level(prefix=True)), ("llama3", split_by(LLAMA3)),
             ("qwen2", split_by(QWEN2)), ("gpt2 as Split", split_by(GPT2)),
             ("smollm", pre_tokenizers.Sequence([digits(True), byte_level()])),
             ("runs of digits", pre_tokenizers.Sequence([digits(False), byte_level(prefix=True)]))]
    for name, pre_tokenizer in kinds:
        yield name, train(pre_tokenizer, strings)
    tokenizer = train(split_by(QWEN2), strings)
    tokenizer.normalizer = normalizers.NFC()
    yield "qwen2 with NFC", tokenizer
    tokenizer = train(byte_level(), strings)
    tokenizer.add_special_tokens([AddedToken("<|left|>", lstrip=True), AddedToken("<|right|>", rstrip=True), "<|special|>"])
    tokenizer.add_tokens([AddedToken("<|plain|>", normalized=True), AddedToken("  ", normalized=True), "..."])
    yield "added tokens", tokenizer
    tokenizer = Tokenizer.from_str(tokenizer.to_str().replace('"ignore_merges":false', '"ignore_merges":true'))
    yield "whole pieces", tokenizer


class Orthant:
    def __init__(self, program, strings):
        self.program, self.strings = program, strings
        self.folder = tempfile.TemporaryDirectory()
        with open(self.file("strings.jsonl"), "w", encoding="utf-8") as file:
            for string in strings:
                file.write(json.dumps({"text": string}, ensure_ascii=False) + "\n")

    def file(self, name):
        return os.path.join(self.folder.name, name)

    def tokens(self, tokenizer, end, *options):
        """The ids of each string."""
        subprocess.run([self.program, "tokenize", "--input", self.file("strings.jsonl"), "--tokenizer", tokenizer, "--train-fraction", "1",
                        "-o", self.file("tokens.h5"), "--force", *options], check=True, stdout=subprocess.DEVNULL)
        with h5py.File(self.file("tokens.h5")) as file:
            ids = file["/tokens/train"][:].tolist()
        found = [[]]
        for number in ids:
            if number == end:
                found.append([])
            else:
                found[-1].append(number)
        return found


def report(package, name, strings, expected, found):
    wrong = [i for i, (a, b) in enumerate(zip(expected, found)) if a != b]
    print(f"{package:<11}{name:<26}{len(strings):>8} strings {sum(map(len, expected)):>9} tokens {len(wrong):>6} differ", flush=True)
    for i in wrong[:3]:
        print(f"  {strings[i]!r}\n  expected {expected[i]}\n  found    {found[i]}")
    return len(wrong) + (len(expected) != len(found))


def write_ranks(path, ranks):
    with open(path, "w", encoding="ascii") as file:
        for token, rank in ranks.items():
            file.write(f"{base64.b64encode(token).decode()} {rank}\n")


def compare_training(orthant):
    """The merges that tokenizers and orthant learn from the strings."""
    expected = json.loads(train(byte_level(), orthant.strings).to_str())["model"]
    subprocess.run([orthant.program, "tokenize", "--input", orthant.file("strings.jsonl"), "--train-bpe", str(4000 - 256), "-o", orthant.file("tokens.h5"),
                    "--save-tokenizer", orthant.file("own.json"), "--force"], check=True, stdout=subprocess.DEVNULL)
    with open(orthant.file("own.json"), encoding="utf-8") as file:
        found = json.load(file)["model"]
    num_wrong = sum(a != b for a, b in zip(expected["merges"], found["merges"])) + abs(len(expected["merges"]) - len(found["merges"]))
    print(f"tokenizers training: {len(expected['merges'])} merges, {num_wrong} differ", flush=True)
    return num_wrong + (expected["vocab"] != found["vocab"])


def compare_ranks(orthant, name, pattern, ranks):
    """tiktoken and orthant with the same ranks."""
    write_ranks(orthant.file("x.tiktoken"), ranks)
    encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": len(ranks)})
    expected = encoding.encode_ordinary_batch(orthant.strings)
    found = orthant.tokens(orthant.file("x.tiktoken"), len(ranks), "--pattern", name)
    return report("tiktoken", name, orthant.strings, expected, found)


def main():
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 100_000
    draw = random.Random(1)
    codes = code_points()
    strings = [random_string(draw, codes) for _ in range(count)]
    orthant = Orthant(sys.argv[1], strings)
    num_wrong = 0
    for name, tokenizer in hugging_face(strings[:20_000]):
        tokenizer.save(orthant.file("tokenizer.json"))
        expected = [encoding.ids for encoding in tokenizer.encode_batch(strings)]
        found = orthant.tokens(orthant.file("tokenizer.json"), tokenizer.token_to_id(END), "--end-token", END)
        num_wrong += report("tokenizers", name, strings, expected, found)
    num_wrong += compare_training(orthant)
    byte_of = byte_characters()
    for name, pattern in (("gpt2", GPT2), ("llama3", LLAMA3), ("qwen2", QWEN2), ("cl100k", CL100K)):
        # tokenizers' regular expressions have no possessive {1,3}+.
        vocabulary = train(split_by(pattern.replace("{1,3}+", "{1,3}")), strings[:20_000]).get_vocab()
        del vocabulary[END]
        ranks = {bytes(byte_of[c] for c in token): rank for token, rank in vocabulary.items()}
        num_wrong += compare_ranks(orthant, name, pattern, ranks)
    if len(sys.argv) > 3:
        with open(sys.argv[3], encoding="ascii") as file:
            ranks = {base64.b64decode(token): int(rank) for token, rank in map(str.split, file)}
        num_wrong += compare_ranks(orthant, "gpt2", GPT2, ranks)
    sys.exit(1 if num_wrong else 0)


if __name__ == "__main__":
    main()
