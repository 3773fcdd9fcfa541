# SPDX-License-Identifier: Apache-2.0
"""datasets/wordnet/convert.py on four synsets, and on lines that are wrong: wordnet.py CONVERT"""
import os
import struct
import subprocess
import sys
import tempfile
import zlib

import stand_ins

CONVERT = os.path.abspath(sys.argv[1])
LICENCE = "  1 This software and database is being provided to you, the LICENSEE, by  \n"
FILES = {
    "noun": LICENCE + "00001740 03 n 01 entity 0 002 ~ 00001930 n 0000 ~ 00001930 n 0000 | that which exists; \"that | it\"  \n"
            "00001930 44 n 02 physical_entity 0 body b 003 @ 00001740 n 0000 + 00000007 a 0201 ! 00001930 n 0101 | That.  \n",
    "verb": LICENCE + "00000005 29 v 0a a 0 b 0 c 0 d 0 e 0 f 0 g 0 h 0 i 0 j 0 000 01 + 02 00 | breathe\n",
    "adj": LICENCE + "00000007 00 s 01 bodily(a) 0 001 \\ 00001930 n 0102 | physical  \n",
    "adv": LICENCE}
TRIPLES = [("n00001740", "hyponym", "n00001930"), ("n00001930", "hypernym", "n00001740"),
           ("n00001930", "derivationally_related", "a00000007"), ("n00001930", "antonym", "n00001930"),
           ("a00000007", "pertainym", "n00001930"), ("v00000005", "similar_to", "v00000005")]
# In the order of the names in TRIPLES.
WORDS = [["that", "which", "exists", "that", "it"], ["that"], ["physical"], ["breathe"]]
CLASSES = [3, 44, 0, 29]


def check(is_right, *what):
    if not is_right:
        sys.exit(" ".join(map(str, what)))


def convert(files, expect=0):
    """What the script prints, of which errors are one line."""
    os.makedirs("wordnet", exist_ok=True)
    for suffix, text in files.items():
        with open(f"wordnet/data.{suffix}", "w", encoding="utf-8") as file:
            file.write(text)
    done = subprocess.run([sys.executable, CONVERT, "wordnet", "graph"], capture_output=True, text=True, timeout=60)
    check(done.returncode == expect, files, done.stdout, done.stderr)
    check(done.stderr.count("\n") == expect, "is not one line:", done.stderr)
    return done.stderr if expect else done.stdout


def read(name):
    with open(f"graph/{name}", "rb") as file:
        return file.read()


def check_graph():
    text = convert(FILES)
    check(text == "4 synsets (1 without pointers), 5 triples of 5 relations\n", text)
    text = read("triples.tsv").decode()
    check([tuple(line.split("\t")) for line in text.splitlines()] == TRIPLES, text)
    counts = bytearray(4 * 256)
    for row, words in enumerate(WORDS):
        for word in words:
            counts[256 * row + zlib.crc32(word.encode()) % 256] += 1
    check(zlib.crc32(b"123456789") == 0xcbf43926, "another CRC-32")
    check(read("x.npy").startswith(b"\x93NUMPY") and read("x.npy")[128:] == counts, "x.npy")
    check(b"(4, 256)" in read("x.npy") and read("y.npy")[128:] == bytes(CLASSES), "y.npy")
    check([read(f"{part}_mask.npy")[-4:] for part in ("train", "val", "test")] == [bytes(4), bytes(4), b"\1" * 4], "masks")


def check_split():
    """Twenty synsets: the SHA-256 of their names, as sha256sum prints it, sorts them."""
    lines = "".join(stand_ins.wordnet_line(v, "n", 3, [("~", v + 1, "n")] if v < 19 else [], "word") for v in range(20))
    convert({"noun": lines, "verb": "", "adj": "", "adv": ""})
    drawn = sorted(range(20), key=lambda v: subprocess.run(["sha256sum"], input=f"n{v:08d}", capture_output=True, text=True,
                                                           check=True).stdout)
    for part, chosen in (("train", drawn[:2]), ("val", drawn[2:4]), ("test", drawn[4:])):
        check(list(read(f"{part}_mask.npy")[-20:]) == [v in chosen for v in range(20)], part)


def check_mistakes():
    for line, says in (("00000009 03 n 01 word 0 002 ~ 00001740 n 0000 | gloss\n", "002 pointers are too many"),
                       ("00000009 03 n 01 word 0 001 ?? 00001740 n 0000 | gloss\n", "'??'"),
                       ("00000009 03 n 01 word 0 000\n", "data.adv:2: "), ("\n", "data.adv:2: "),
                       ("00000009 03 n 01 word 0 001 ~ 99999999 n 0000 | gloss\n", "synset n99999999")):
        text = convert(FILES | {"adv": LICENCE + line}, expect=1)
        check(text.startswith("convert: error: wordnet") and says in text, text, "does not say", says)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="orthant-wordnet-") as folder:
        os.chdir(folder)
        check_graph()
        check_split()
        check_mistakes()
        os.chdir("/")
