#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes WordNet's files (wndb(5WN)) as a graph with relations that `orthant partition` reads.

convert.py WORDNET FOLDER, where WORDNET has data.noun, data.verb, data.adj and data.adv. FOLDER receives triples.tsv
and arrays with a row per synset, in the order in which the synsets appear in triples.tsv:
  x.npy         counts of the gloss's words, hashed to 256 columns: the words are the runs of a-z in lower case, and the
                column is the CRC-32 of a word (ISO 3309, as zlib.crc32) modulo 256
  y.npy         number of the lexicographer file, 0 to 44
  *_mask.npy    the split: the synsets are sorted by the SHA-256 of their names; the first tenth is train, the next one
                val, and all others are test
A synset without pointers has no triple of its own. It receives "similar_to" itself, so that it is a vertex;
`orthant partition --self-loops drop` removes these edges and keeps the vertices.
"""
import hashlib
import os
import re
import struct
import sys
import zlib

NUM_WORDS = 256
PARTS = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}
RELATIONS = {
    "!": "antonym", "@": "hypernym", "@i": "instance_hypernym", "~": "hyponym", "~i": "instance_hyponym",
    "#m": "member_holonym", "#s": "substance_holonym", "#p": "part_holonym", "%m": "member_meronym",
    "%s": "substance_meronym", "%p": "part_meronym", "=": "attribute", "+": "derivationally_related",
    ";c": "topic", "-c": "member_of_topic", ";r": "region", "-r": "member_of_region", ";u": "usage",
    "-u": "member_of_usage", "*": "entailment", ">": "cause", "^": "also_see", "$": "verb_group", "&": "similar_to",
    "<": "participle_of", "\\": "pertainym"}


def read_line(part, line):
    """Name, class, gloss and pointers (relation, name) of a synset. Pointers between words count for the synsets."""
    fields, gloss = line.split(" | ", 1)
    fields = fields.split()
    begin = 5 + 2 * int(fields[3], 16)  # after the words and the number of pointers
    end = begin + 4 * int(fields[begin - 1])
    if end > len(fields):
        raise ValueError(f"{fields[begin - 1]} pointers are too many")
    pointers = [(RELATIONS[fields[i]], fields[i + 2] + fields[i + 1]) for i in range(begin, end, 4)]
    return part + fields[0], int(fields[1]), gloss, pointers


def read(folder):
    """The synsets by name, and the distinct triples in the order of the files."""
    synsets, triples = {}, {}
    for part, suffix in PARTS.items():
        path = os.path.join(folder, "data." + suffix)
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.startswith("  "):  # the licence
                    continue
                try:
                    name, lexicographer_file, gloss, pointers = read_line(part, line)
                except (ValueError, IndexError, KeyError) as error:
                    sys.exit(f"convert: error: {path}:{number}: not a line of WordNet's data files ({error})")
                synsets[name] = lexicographer_file, gloss
                triples.update(dict.fromkeys((name, relation, target) for relation, target in pointers))
    for _, _, target in triples:
        if target not in synsets:
            sys.exit(f"convert: error: {folder}: a pointer to the synset {target}, which is in none of the files")
    return synsets, list(triples)


def hashed_words(gloss):
    counts = bytearray(NUM_WORDS)
    for word in re.findall("[a-z]+", gloss.lower()):
        column = zlib.crc32(word.encode()) % NUM_WORDS
        counts[column] = min(counts[column] + 1, 255)
    return counts


def write_npy(folder, name, kind, shape, content):
    """An array of bytes in NumPy's format; kind is |u1 (numbers) or |b1 (true or false)."""
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    with open(os.path.join(folder, name + ".npy"), "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + content)


def main(source, folder):
    synsets, triples = read(source)
    linked = dict.fromkeys(name for head, _, tail in triples for name in (head, tail))
    alone = [name for name in synsets if name not in linked]
    names = [*linked, *alone]
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "triples.tsv"), "w", encoding="utf-8") as file:
        file.writelines("\t".join(triple) + "\n" for triple in [*triples, *((v, "similar_to", v) for v in alone)])
    write_npy(folder, "x", "|u1", (len(names), NUM_WORDS), b"".join(hashed_words(synsets[v][1]) for v in names))
    write_npy(folder, "y", "|u1", (len(names),), bytes(synsets[v][0] for v in names))
    tenth = len(names) // 10
    drawn = sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())
    for part, chosen in (("train", drawn[:tenth]), ("val", drawn[tenth:2 * tenth]), ("test", drawn[2 * tenth:])):
        chosen = set(chosen)
        write_npy(folder, part + "_mask", "|b1", (len(names),), bytes(v in chosen for v in names))
    print(f"{len(names)} synsets ({len(alone)} without pointers), {len(triples)} triples of "
          f"{len({relation for _, relation, _ in triples})} relations")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
