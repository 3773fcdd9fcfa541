# SPDX-License-Identifier: Apache-2.0
"""Small archives in the layouts of the data sets that datasets/fetch.sh fetches, under the same file names.

Each function writes the archives of one data set to a folder and returns the counts that their store must have.
"""
import gzip
import io
import os
import random
import struct
import tarfile
import zipfile

NUM_VERTICES = 60


def random_edges(seed, num_edges=240):
    """Edges with repeats, reverses and self loops among them; every vertex has one."""
    draw = random.Random(seed)
    edges = [(v, (v + 1) % NUM_VERTICES) for v in range(NUM_VERTICES)]
    edges += [(draw.randrange(NUM_VERTICES), draw.randrange(NUM_VERTICES)) for _ in range(num_edges)]
    return edges + [(3, 3), edges[0], (edges[1][1], edges[1][0])]


def nonzeros_of(edges, is_directed=False):
    """Entries of A + I."""
    pairs = {(u, v) for u, v in edges if u != v}
    if not is_directed:
        pairs |= {(v, u) for u, v in pairs}
    return len(pairs) + NUM_VERTICES


def split_of(seed):
    vertices = list(range(NUM_VERTICES))
    random.Random(seed).shuffle(vertices)
    return sorted(vertices[:20]), sorted(vertices[20:30]), sorted(vertices[30:])


def counts(edges, features, classes, split=None, is_directed=False):
    found = {"vertices": NUM_VERTICES, "nonzeros": nonzeros_of(edges, is_directed), "features": features, "classes": classes}
    if split:
        found.update(zip(("train", "valid", "test"), map(len, split)))
    return found


def lines(rows):
    return "".join(",".join(map(str, row)) + "\n" for row in rows)


def npy(kind, shape, values):
    """An array in NumPy's format: kind is '<i8', '<i4', '<f4', '<f8' or '|S3'."""
    code = {"<i8": "q", "<i4": "i", "<f4": "f", "<f8": "d"}.get(kind)
    data = values if code is None else struct.pack(f"<{len(values)}{code}", *values)
    shape = "(" + "".join(f"{extent}, " for extent in shape).strip() + ")"
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data


def npz(arrays, method=zipfile.ZIP_DEFLATED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in arrays.items():
            archive.writestr(name + ".npy", content)
    return buffer.getvalue()


def write_zip(path, members):
    """Members by name; text in .gz members is compressed."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            if isinstance(content, str):
                content = gzip.compress(content.encode(), 1) if name.endswith(".gz") else content.encode()
            archive.writestr(name, content)


def ogb(folder, top, edges, split_name, split, raw):
    members = {f"{top}/RELEASE_v1.txt": "", f"{top}/mapping/README.md": "", f"{top}/processed/": "",
               f"{top}/raw/edge.csv.gz": lines(edges), f"{top}/raw/num-node-list.csv.gz": f"{NUM_VERTICES}\n",
               f"{top}/raw/num-edge-list.csv.gz": f"{len(edges)}\n"}
    members.update({f"{top}/raw/{name}.csv.gz": lines(rows) for name, rows in raw.items()})
    for part, vertices in zip(("train", "valid", "test"), split):
        members[f"{top}/split/{split_name}/{part}.csv.gz"] = lines([v] for v in vertices)
    write_zip(os.path.join(folder, f"{top}.zip"), members)


def single_label_ogb(folder, top, split_name, features, classes, seed, **more):
    draw = random.Random(seed)
    edges, split = random_edges(seed), split_of(seed)
    raw = {"node-feat": [[f"{draw.gauss(0, 0.1):.6e}" for _ in range(features)] for _ in range(NUM_VERTICES)],
           "node-label": [[v % classes] for v in range(NUM_VERTICES)]}
    ogb(folder, top, edges, split_name, split, raw | more)
    return counts(edges, features, classes, split)


def ogbn_arxiv(folder):
    return single_label_ogb(folder, "arxiv", "time", 128, 40, 1, node_year=[[2013]] * NUM_VERTICES)


def ogbn_products(folder):
    return single_label_ogb(folder, "products", "sales_ranking", 100, 47, 2)


def ogbn_proteins(folder):
    """No features of vertices; 8 of each edge, and 112 tasks."""
    draw = random.Random(3)
    edges, split = random_edges(3), split_of(3)
    raw = {"edge-feat": [[round(draw.random(), 3) for _ in range(8)] for _ in edges],
           "node_species": [[3702]] * NUM_VERTICES,
           "node-label": [[draw.randrange(2) for _ in range(112)] for _ in range(NUM_VERTICES)]}
    ogb(folder, "proteins", edges, "species", split, raw)
    return counts(edges, 8, 112, split)


def ogbn_papers100M(folder):
    """The binary layout: arrays in raw/data.npz, labels as floats, most of them nan."""
    edges, split = random_edges(4), split_of(4)
    labelled = set(split[0] + split[1] + split[2][:5])
    split = split[0], split[1], split[2][:5]
    labels = [float(v % 50) if v in labelled else float("nan") for v in range(NUM_VERTICES)]
    labels[split[0][0]] = 49.0
    top = "papers100M-bin"
    members = {
        f"{top}/RELEASE_v1.txt": "",
        f"{top}/raw/data.npz": npz({
            "edge_index": npy("<i8", (2, len(edges)), [e[0] for e in edges] + [e[1] for e in edges]),
            "node_feat": npy("<f4", (NUM_VERTICES, 128), [0.5] * (128 * NUM_VERTICES)),
            "node_year": npy("<i8", (NUM_VERTICES, 1), [2013] * NUM_VERTICES),
            "num_nodes_list": npy("<i8", (1,), [NUM_VERTICES]), "num_edges_list": npy("<i8", (1,), [len(edges)])}),
        f"{top}/raw/node-label.npz": npz({"node_label": npy("<f4", (NUM_VERTICES, 1), labels)})}
    for part, vertices in zip(("train", "valid", "test"), split):
        members[f"{top}/split/time/{part}.csv.gz"] = lines([v] for v in vertices)
    write_zip(os.path.join(folder, f"{top}.zip"), members)
    return counts(edges, 128, 50, split, is_directed=True)


TYPES = {"author": 25, "field_of_study": 8, "institution": 5, "paper": NUM_VERTICES}
RELATIONS = (("author", "affiliated_with", "institution"), ("author", "writes", "paper"), ("paper", "cites", "paper"),
             ("paper", "has_topic", "field_of_study"))


def typed_edges(seed):
    """Edges of each relation, with repeats and self loops, and the entries of A + I with all inverses."""
    draw, entries, edges = random.Random(seed), 0, {}
    for source, name, target in RELATIONS:
        ends = [(draw.randrange(TYPES[source]), draw.randrange(TYPES[target])) for _ in range(90)]
        edges[source, name, target] = [(TYPES[source] - 1, TYPES[target] - 1), *ends, ends[0]]
        pairs = set(edges[source, name, target])
        entries += len({pair for u, v in pairs if u != v for pair in ((u, v), (v, u))} if source == target else pairs) * (1 if source == target else 2)
    return edges, entries + sum(TYPES.values())


def ogbn_mag(folder):
    edges, nonzeros = typed_edges(31)
    split = split_of(31)
    members = {"mag/RELEASE_v1.txt": "", "mag/raw/nodetype-has-feat.csv.gz": "author,field_of_study,institution,paper\nFalse,False,False,True\n",
               "mag/raw/num-node-dict.csv.gz": lines([TYPES, TYPES.values()]), "mag/raw/triplet-type-list.csv.gz": lines(edges),
               "mag/raw/node-feat/paper/node-feat.csv.gz": lines([v / 8, -v] for v in range(NUM_VERTICES)),
               "mag/raw/node-feat/paper/node_year.csv.gz": lines([2000 + v] for v in range(NUM_VERTICES)),
               "mag/raw/node-label/paper/node-label.csv.gz": lines([v % 7] for v in range(NUM_VERTICES)),
               "mag/split/time/nodetype-has-split.csv.gz": "author,field_of_study,institution,paper\nFalse,False,False,True\n"}
    for names, ends in edges.items():
        members[f"mag/raw/relations/{'___'.join(names)}/edge.csv.gz"] = lines(ends)
        members[f"mag/raw/relations/{'___'.join(names)}/edge_reltype.csv.gz"] = lines([0] for _ in ends)
        members[f"mag/raw/relations/{'___'.join(names)}/num-edge-list.csv.gz"] = f"{len(ends)}\n"
    for part, vertices in zip(("train", "valid", "test"), split):
        members[f"mag/split/time/paper/{part}.csv.gz"] = lines([v] for v in vertices)
    write_zip(os.path.join(folder, "mag.zip"), members)
    return {"vertices": sum(TYPES.values()), "nonzeros": nonzeros, "features": 2, "classes": 7, **dict(zip(("train", "valid", "test"), map(len, split)))}


def igb_het_tiny(folder):
    edges, nonzeros = typed_edges(32)
    members = {"tiny/processed/paper/node_label_19.npy": npy("<f4", (NUM_VERTICES,), [v % 5 for v in range(NUM_VERTICES)]),
               "tiny/processed/paper/node_label_2K.npy": npy("<f4", (NUM_VERTICES,), [v % 50 for v in range(NUM_VERTICES)])}
    for name, count in TYPES.items():
        members[f"tiny/processed/{name}/node_feat.npy"] = npy("<f4", (count, 3), [v / 4 for v in range(3 * count)])
    for names, ends in edges.items():
        members[f"tiny/processed/{'__'.join(names)}/edge_index.npy"] = npy("<i4", (len(ends), 2), [end for edge in ends for end in edge])
    with tarfile.open(os.path.join(folder, "igb_heterogeneous_tiny.tar.gz"), "w:gz") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return {"vertices": sum(TYPES.values()), "nonzeros": nonzeros, "features": 3, "classes": 5, "train": 36, "valid": 12, "test": 12}


def Reddit(folder):
    """Two archives of arrays: a SciPy matrix with both directions of each edge, and what the vertices have."""
    pairs = {(u, v) for u, v in random_edges(5) if u != v}
    edges = sorted(pairs | {(v, u) for u, v in pairs})
    split = split_of(5)
    types = [1 if v in split[0] else 2 if v in split[1] else 3 for v in range(NUM_VERTICES)]
    n = NUM_VERTICES
    write_zip(os.path.join(folder, "reddit.zip"), {
        "reddit_data.npz": npz({"feature": npy("<f8", (n, 602), [0.25] * (602 * n)), "node_types": npy("<i4", (n,), types),
                                "node_ids": npy("<i4", (n,), list(range(n))),
                                "label": npy("<i4", (n,), [v % 41 for v in range(n)])}, zipfile.ZIP_STORED),
        "reddit_graph.npz": npz({"row": npy("<i4", (len(edges),), [e[0] for e in edges]),
                                 "col": npy("<i4", (len(edges),), [e[1] for e in edges]), "format": npy("|S3", (), b"coo"),
                                 "shape": npy("<i8", (2,), [n, n]), "data": npy("<i8", (len(edges),), [1] * len(edges))})})
    return counts(edges, 602, 41, split)


def matrix_market(edges, head, value=""):
    text = f"%%MatrixMarket matrix coordinate {head}\n% a comment\n{NUM_VERTICES} {NUM_VERTICES} {len(edges)}\n"
    return text + "".join(f"{u + 1} {v + 1}{value}\n" for u, v in edges)


def isolate_3_8M(folder):
    edges = random_edges(6)
    name = "subgraph3_iso_vs_iso_30_70length_ALL.m100.oneindexed.mtx"
    with open(os.path.join(folder, name), "w") as file:
        file.write(matrix_market(edges, "real general", " 0.75"))
    return counts(edges, 128, 32)


def products_14M(folder):
    edges = random_edges(7)
    with open(os.path.join(folder, "products-14M.mtx"), "w") as file:
        file.write(matrix_market(edges, "pattern general"))
    return counts(edges, 128, 32)


def europe_osm(folder):
    """As in the SuiteSparse collection: the lower triangle, and the vertices' coordinates beside it."""
    edges = sorted({(max(e), min(e)) for e in random_edges(8) if e[0] != e[1]})
    files = {"europe_osm.mtx": matrix_market(edges, "pattern symmetric"),
             "europe_osm_coord.mtx": f"%%MatrixMarket matrix array real general\n{NUM_VERTICES} 2\n" +
                                     "0.5\n" * (2 * NUM_VERTICES)}
    with tarfile.open(os.path.join(folder, "europe_osm.tar.gz"), "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"europe_osm/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return counts(edges, 128, 32)


def cora(folder):
    """cora.content: paper, words, class; cora.cites: cited paper, citing paper. Papers have ids of their own."""
    draw = random.Random(9)
    edges = random_edges(9)
    paper = [1000 + 7 * v for v in range(NUM_VERTICES)]
    classes = ["Neural_Networks", "Theory", "Case_Based"]
    content = "".join("\t".join([str(paper[v]), *(str(draw.randrange(2)) for _ in range(20)), classes[v % 3]]) + "\n"
                      for v in range(NUM_VERTICES))
    cites = "".join(f"{paper[v]}\t{paper[u]}\n" for u, v in edges)
    with tarfile.open(os.path.join(folder, "cora.tgz"), "w:gz") as archive:
        for name, text in (("README", "about Cora\n"), ("cora.content", content), ("cora.cites", cites)):
            member = tarfile.TarInfo(f"cora/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return counts(edges, 20, 3)


def wordnet_line(offset, kind, lexicographer_file, pointers, gloss):
    """A line of wndb(5WN), of one word; pointers are (symbol, offset, part of speech)."""
    frames = " 01 + 02 00" if kind == "v" else ""
    listed = "".join(f" {symbol} {target:08d} {part} 0000" for symbol, target, part in pointers)
    return f"{offset:08d} {lexicographer_file:02d} {kind} 01 word 0 {len(pointers):03d}{listed}{frames} | {gloss}  \n"


def wordnet(folder):
    """A Debian package: an archive of ar, whose member data.tar.xz has the files. Synsets of the four parts of speech in turn."""
    draw = random.Random(10)
    edges = {(u, v) for u, v in random_edges(10) if NUM_VERTICES - 1 not in (u, v)}  # the last synset has no pointers
    symbol = {e: draw.choice(["@", "~", "+", "#m", "\\"]) for e in sorted(edges)}
    texts = dict.fromkeys("nvar", "  1 This software and database is being provided to you\n")
    for u in range(NUM_VERTICES):
        part = "nvar"[u % 4]
        pointers = [(symbol[e], 100 + e[1], "nvar"[e[1] % 4]) for e in sorted(edges) if e[0] == u for _ in range(2)]
        kind = "s" if u % 8 == 2 else part
        texts[part] += wordnet_line(100 + u, kind, 44 if u == 3 else u % 45, pointers, "a gloss; \"an example | of it\"")
    files = io.BytesIO()
    with tarfile.open(fileobj=files, mode="w:xz") as archive:
        for part, suffix in zip("nvar", ("noun", "verb", "adj", "adv")):
            member = tarfile.TarInfo(f"./usr/share/wordnet/data.{suffix}")
            member.size = len(texts[part])
            archive.addfile(member, io.BytesIO(texts[part].encode()))
    with open(os.path.join(folder, "wordnet-base_3.0-37_all.deb"), "wb") as file:
        file.write(b"!<arch>\n")
        for name, content in (("debian-binary", b"2.0\n"), ("data.tar.xz", files.getvalue())):
            file.write(f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode())
            file.write(content + b"\n" * (len(content) % 2))
    tenth = NUM_VERTICES // 10
    parts = [range(tenth), range(tenth), range(NUM_VERTICES - 2 * tenth)]
    return counts(edges, 256, 45, parts, is_directed=True)


WRITERS = {"wordnet": wordnet, "ogbn-arxiv": ogbn_arxiv, "ogbn-products": ogbn_products, "ogbn-proteins": ogbn_proteins,
           "ogbn-mag": ogbn_mag, "igb-het-tiny": igb_het_tiny,
           "ogbn-papers100M": ogbn_papers100M, "Reddit": Reddit, "isolate-3-8M": isolate_3_8M,
           "products-14M": products_14M, "europe_osm": europe_osm, "cora": cora}
