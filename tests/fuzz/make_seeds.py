#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seed corpus of every fuzz target: small valid inputs and some that are nearly so.

usage: make_seeds.py FOLDER      (FOLDER/TARGET/NAME)
Needs nothing but Python's own library, so that every machine that builds the tests can make them.
"""
import gzip
import io
import json
import math
import pathlib
import struct
import sys
import zipfile


def npy(descr, shape, values, fmt, version=1):
    """A .npy array of `values`, packed with struct's `fmt` ('<q' ..)."""
    text = "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }" % (
        descr, "".join(f"{n}, " for n in shape))
    head = b"\x93NUMPY" + bytes([version, 0])
    size_format = "<H" if version == 1 else "<I"
    text += " " * (-(len(head) + struct.calcsize(size_format) + len(text) + 1) % 64) + "\n"
    return head + struct.pack(size_format, len(text)) + text.encode() + b"".join(
        struct.pack(fmt, value) for value in values)


def npz(members, method):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", method) as file:
        for name, content in members.items():
            file.writestr(zipfile.ZipInfo(name), content, compress_type=method)
    return archive.getvalue()


def files(**contents):
    """The files of one folder as the target input_folder takes them; '__' in a key stands for '/', '_dot_' for '.'."""
    parts = []
    for key, content in contents.items():
        name = key.replace("__", "/").replace("_dot_", ".")
        parts.append(f"--- {name}\n".encode() + (content.encode() if isinstance(content, str) else content))
    return b"\n".join(parts)


def safetensors(length=None, metadata=None, **tensors):
    """A safetensors file of tensors NAME=(dtype, shape, numbers' bytes); '_' in a name stands for '.', '__' for '_'."""
    header, data = {}, b""
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, (dtype, shape, content) in tensors.items():
        header[name.replace("__", "/").replace("_", ".").replace("/", "_")] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def gguf(metadata, tensors, version=3):
    """A GGUF file of {key: value}, of texts, whole numbers, fractions and lists of these, and {name: (row-major shape, kind, numbers' bytes)}."""
    def text(words):
        return struct.pack("<Q", len(words.encode())) + words.encode()

    def kind_and_value(value):
        if isinstance(value, list):
            each = [kind_and_value(one) for one in value]
            return 9, struct.pack("<IQ", each[0][0], len(each)) + b"".join(content for _, content in each)
        return (8, text(value)) if isinstance(value, str) else (6, struct.pack("<f", value)) if isinstance(value, float) else (4, struct.pack("<I", value))

    header, data = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata)), b""
    for key, value in metadata.items():
        kind, content = kind_and_value(value)
        header += text(key) + struct.pack("<I", kind) + content
    for name, (shape, kind, content) in tensors.items():
        header += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], kind, len(data))
        data += content + bytes(-len(content) % 32)
    return header + bytes(-len(header) % 32) + data


def small_llama(**changed):
    """Metadata and tensors of a block with two heads of width 2."""
    keys = {"block_count": 1, "context_length": 8, "embedding_length": 4, "feed_forward_length": 3, "attention.head_count": 2,
            "attention.head_count_kv": 1, "rope.freq_base": 1e4, "attention.layer_norm_rms_epsilon": 1e-5, "vocab_size": 5, **changed}
    shapes = {"token_embd": [5, 4], "output_norm": [4], "output": [5, 4], "blk.0.attn_norm": [4], "blk.0.ffn_norm": [4], "blk.0.attn_q": [4, 4],
              "blk.0.attn_k": [2, 4], "blk.0.attn_v": [2, 4], "blk.0.attn_output": [4, 4], "blk.0.ffn_gate": [3, 4], "blk.0.ffn_up": [3, 4],
              "blk.0.ffn_down": [4, 3]}
    tensors = {name + ".weight": (shape, 0, bytes(4 * math.prod(shape))) for name, shape in shapes.items()}
    return {"general.architecture": "llama", **{"llama." + key: value for key, value in keys.items()}}, tensors


llama, llama_tensors = small_llama()
tokenizer = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.tokens": ["a", "b", "ab", "c", "<|end|>"],
             "tokenizer.ggml.token_type": [1, 1, 1, 1, 3], "tokenizer.ggml.merges": ["a b"]}
edges = npy("<i8", (2, 3), [0, 1, 2, 1, 2, 3], "<q")
weights = npy("<f4", (3,), [0.5, 1, 2], "<f")
features = npy("<f4", (4, 2), [0, 1, 2, 3, 4, 5, 6, 7], "<f")
machines = pathlib.Path(__file__).resolve().parents[2] / "machines"
labels = npy("<i8", (4,), [0, 1, -1, 2], "<q")
text_graph = dict(
    raw__edge_dot_csv="0,1\n1,2\n2,3\n", **{"raw__num-node-list_dot_csv": "4\n", "raw__num-edge-list_dot_csv": "3\n",
    "raw__node-feat_dot_csv": "0,1\n1,2\n2,3\n3,4\n", "raw__node-label_dot_csv": "0\n1\nnan\n2\n"},
    split__one__train_dot_csv="0\n1\n", split__one__valid_dot_csv="2\n", split__one__test_dot_csv="3\n")

def token_facts(vocabulary_size, num_tokens=5):
    part = {"tokens": num_tokens, "bytes": 5, "sum": "0"}
    return json.dumps({"source": "text.txt", "tokenizer": "char", "vocabulary_size": vocabulary_size, "train": part, "valid": part,
                       "vocabulary_sum": "0"}).encode()


def checkpoint_facts(epoch=3, version=1):
    """Of a training that was not evaluated: without the arrays of a best epoch."""
    scores = [{"counted": 0, "correct": 0, "loss": 0.5, "roc_auc": 0.5, "ranking": {"mrr": 0.5, "hits": [0, 0, 0, 0]}}] * 3
    progress = {"epoch": epoch, "step": 2, "loss_sum": 0, "loss_count": 1, "last_loss": 0.5, "last": scores, "best_epoch": 0,
                "best": scores, "records": {"merit": 1, "loss": 2},
                "plateau": {"least_loss": 1, "evaluations_since": 2, "reduction": 0.5}}
    tensors = [{"name": "/parameters/bias", "extents": [3], "sum": "0" * 16}]
    return json.dumps({"version": version, "progress": progress, "optimizer_steps": 2, "training": "0", "identity": [
        {"name": "--seed", "value": "7", "group": ""}], "tensors": tensors}).encode()


seeds = {
    "npy": {
        "int64": edges, "float32": weights, "version2": npy("<i8", (3,), [1, 2, 3], "<q", 2),
        "int8": npy("|i1", (3,), [1, -2, 3], "<b"), "half": npy("<f2", (2,), [1.0, -2.0], "<e"),
        "uint64": npy("<u8", (2,), [1, 2**64 - 1], "<Q"), "empty": npy("<i8", (0,), [], "<q"),
        "number": npy("<f8", (), [1.0], "<d"), "no_columns": npy("<i8", (4, 0), [], "<q"),
    },
    "npz": {
        "stored": npz({"edge_index.npy": edges, "x.npy": features}, zipfile.ZIP_STORED),
        "deflated": npz({"edge_index.npy": edges, "x.npy": features}, zipfile.ZIP_DEFLATED),
        "empty": npz({}, zipfile.ZIP_STORED),
    },
    "edge_text": {
        "commas": b"\x000,1\n1,2\n", "blanks": b"\x01# comment\n0 1\n1\t2\n", "header": b"\x20source,target\n0,1\n",
        "weights": b"\x040 1 0.5\n1 2 1e-3\n", "passed_over": b"\x080 1 0.5\n", "no_end": b"\x000 1",
        "gzip": b"\x00" + gzip.compress(b"0,1\n1,2\n", mtime=0),
        "two_members": b"\x00" + gzip.compress(b"0,1\n", mtime=0) + gzip.compress(b"1,2\n", mtime=0),
        "long_number": b"\x1012345678901234567890 1\n", "one_based": b"\x021 2\n2 100\n", "empty": b"\x00",
        "names": b"\x00source,target,weight\n\"a, \"\"b\"\"\",c,1\nc,d,2e3\n", "dicts": b"\x00a b {'weight': 2.5}\nb c {'weight': 1}\n",
        "triples": b"\x00head\trelation\ttail\na\tr\tb\nb\ts\t\"1\"^^x\n", "quoted_numbers": b"\x04\"0\";\"1\";\"2.5\"\n",
    },
    "table_text": {
        "features": b"\x010,1.5\n-2e3,3\n4,5\n", "classes": b"\x000\nnan\n-1\n", "floats": b"\x000.0\n1.0\n2.0\n",
        "indicator": b"\x010,1\nnan,0\n1,1\n", "number": b"\x0042\n", "gzip": b"\x00" + gzip.compress(b"3\n", mtime=0),
        "huge": b"\x001e400\ninf\n-inf\n", "empty": b"\x00",
    },
    "matrix_market": {
        "metis": b"4 2\n2\n1 4\n\n2\n", "metis_weights": b"% c\n3 2 111 2\n5 1 2 2 7\n5 1 2 1 7 3 1.5\n5 1 2 2 1.5\n",
        "skew": b"%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 1\n2 1 1.5D+03\n",
        "pattern": b"%%MatrixMarket matrix coordinate pattern symmetric\n% comment\n3 3 2\n2 1\n3 2\n",
        "real": b"%%MatrixMarket matrix coordinate real general\n2 2 2\n1 2 0.5\n2 1 1e-2\n",
        "array": b"%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\n4\n",
        "huge": b"%%MatrixMarket matrix coordinate pattern general\n999999999999999999 999999999999999999 1\n1 1\n",
    },
    "input_folder": {
        "text": files(**text_graph), "described": files(meta_dot_json='{"name": "a", "num_nodes": 4, "num_classes": 3, '
                                                        '"splits": {"one": [2, 1, 1]}}', **text_graph),
        "arrays": files(edge_index_dot_npy=edges, edge_weight_dot_npy=weights, x_dot_npy=features,
                        labels_dot_npy=labels, train_idx_dot_npy=npy("<i8", (2,), [0, 1], "<q")),
        "sparse": files(edge_index_dot_npy=edges, x_indptr_dot_npy=npy("<i8", (5,), [0, 1, 2, 2, 3], "<q"),
                        x_indices_dot_npy=npy("<i4", (3,), [0, 1, 1], "<i"), x_data_dot_npy=weights,
                        x_shape_dot_npy=npy("<i8", (2,), [4, 2], "<q")),
        "no_columns": files(edge_index_dot_npy=edges, labels_dot_npy=npy("<i8", (4, 0), [], "<q")),
        "archives": files(
            g_graph_dot_npz=npz({"row.npy": npy("<i4", (2,), [0, 1], "<i"), "col.npy": npy("<i4", (2,), [1, 3], "<i"),
                                 "shape.npy": npy("<i8", (2,), [4, 4], "<q")}, zipfile.ZIP_STORED),
            g_data_dot_npz=npz({"feature.npy": features, "label.npy": labels,
                                "node_types.npy": npy("<i4", (4,), [1, 2, 3, 0], "<i")}, zipfile.ZIP_STORED)),
        "pyg": files(edge_index_dot_npy=edges, edge_attr_dot_npy=npy("<f4", (3, 1), [0.5, 1, 2], "<f"), x_dot_npy=features,
                     y_dot_npy=labels, train_mask_dot_npy=npy("|b1", (4,), [1, 0, 0, 0], "<?"),
                     val_mask_dot_npy=npy("|b1", (4,), [0, 1, 0, 0], "<?"), test_mask_dot_npy=npy("|u1", (4,), [0, 0, 0, 1], "<B")),
        "dgl": files(edge_index_dot_npy=edges, feat_dot_npy=features, label_dot_npy=labels,
                     train_idx_dot_npy=npy("<i8", (1,), [0], "<q"), val_idx_dot_npy=npy("<i8", (1,), [1], "<q"),
                     test_idx_dot_npy=npy("<i8", (1,), [3], "<q"), graph_dot_bin=b"\0"),
        "market": files(graph_dot_mtx="%%MatrixMarket matrix coordinate pattern general\n3 3 1\n1 2\n"),
        "names": files(edges_dot_csv="a,b\nb,c\nc,d\n", x_dot_npy=features), "metis": files(graph_dot_graph="4 2\n2\n1 4\n\n2\n", x_dot_npy=features),
        "csv": files(meta_dot_yaml="edge_data:\n- file_name: edges.csv\nnode_data:\n- file_name: nodes.csv\n",
                     nodes_dot_csv='node_id,label,feat,train_mask\na,0,"1,2",True\nb,,"3, 4",False\n', edges_dot_csv="src_id,dst_id,weight\na,b,0.5\n"),
        "nothing": b"",
    },
    "store": {
        "unchanged": b"\0",
        "entry": b"\0" + bytes([30, 0, 0]) + struct.pack("<q", 0xFFFFFFFF),
        "shorter": b"\0" + bytes([5, 1, 0]) + struct.pack("<q", 3),
        "flat": b"\0" + bytes([12, 7, 0]) + struct.pack("<q", 0),
        "facts": b'{"num_vertices": 41, "num_classes": -3}\0', "clusters": b'{"num_vertices": 40, "num_clusters": 41}\0',
    },
    "token_file": {
        "unchanged": b"\0",
        "token": b"\0" + bytes([0, 0, 1]) + struct.pack("<q", 3),
        "end": b"\0" + bytes([3, 0, 1]) + struct.pack("<q", -1),
        "shorter": b"\0" + bytes([1, 1, 0]) + struct.pack("<q", 2),
        "facts": token_facts(3) + b"\0", "wide": token_facts(70000) + b"\0", "negative": token_facts(-1) + b"\0", "real": token_facts(1e300) + b"\0",
        "no_tokens": token_facts(3, 0) + b"\0" + bytes([0, 1, 0]) + struct.pack("<q", 0),
    },
    "checkpoint": {
        "unchanged": b"\0",
        "number": b"\0" + bytes([0, 0, 1]) + struct.pack("<q", 1),
        "shorter": b"\0" + bytes([1, 1, 0]) + struct.pack("<q", 2),
        "flat": b"\0" + bytes([5, 7, 0]) + struct.pack("<q", 12),
        "facts": checkpoint_facts() + b"\0", "large_epoch": checkpoint_facts(epoch=1e300) + b"\0",
        "other_version": checkpoint_facts(version=9) + b"\0",
    },
    "safetensors": {
        "gcn": safetensors(metadata={"format": "pt", "normalization": "sym"}, convs_0_lin_weight=("F32", [2, 3], bytes(24)),
                           convs_0_bias=("F32", [2], bytes(8)), convs_1_lin_weight=("F64", [4, 2], bytes(64)),
                           convs_1_bias=("BF16", [4], bytes(8))),
        "no_bias": safetensors(convs_0_lin_weight=("F16", [1, 1], bytes(2)), norms_0_weight=("F32", [1], bytes(4))),
        "gin": safetensors(convs_0_nn_lins_0_weight=("F32", [1, 1], bytes(4)), convs_0_nn_lins_1_weight=("F32", [2, 1], bytes(8)),
                           convs_0_eps=("F32", [1], bytes(4))),
        "sage": safetensors(convs_0_lin__l_weight=("F32", [1, 2], bytes(8)),
                            convs_0_lin__r_weight=("F32", [1, 2], bytes(8))),
        "huge": safetensors(a=("F32", [2**62, 2**62], b"")), "no_columns": safetensors(a=("F32", [4, 0], b"")),
        "long_header": safetensors(length=2**63), "empty": safetensors(), "nothing": b"",
    },
    "gguf": {
        "llama": gguf(llama, llama_tensors), "version_2": gguf(llama, llama_tensors, 2), "tokenizer": gguf({**llama, **tokenizer}, llama_tensors),
        "kinds": gguf({"general.alignment": 32}, {"a": ([1, 32], 8, bytes(34)), "b": ([2, 32], 3, bytes(40)), "c": ([3], 1, bytes(6)), "d": ([1, 1, 2], 30, bytes(4))}),
        "no_head": gguf(llama, {name: tensor for name, tensor in llama_tensors.items() if name != "output.weight"}),
        "many_blocks": gguf(small_llama(block_count=2**32 - 1)[0], llama_tensors), "wide": gguf(small_llama(embedding_length=2**31)[0], llama_tensors),
        "huge": gguf({}, {"a": ([2**40, 2**40], 0, b"")}), "cut": gguf(llama, llama_tensors)[:400], "empty": gguf({}, {}), "nothing": b"",
    },
    "study_file": {
        "strong": b'name = "a"\n[jobs]\nranks_per_node = 2\n[[strong]]\nname = "s"\ngraphs = ["karate", "g/b.h5"]\nranks = [1, 4]\n'
                  b'grids = ["auto", "1xPx2x1"]\nschedules = ["pmm3d", "rows"]\nmodes = ["full", "minibatch"]\nrepeats = 2\n'
                  b'options = "--epochs 2"\nrows_options = "--gather all"\n',
        "weak": b'name = "a"\n[[weak]]\nname = "w"\ngenerate = "rmat"\nvertices_per_rank = 10\nedges_per_rank = 20\nranks = [2]\n',
        "language": b'name = "a"\n[[weak]]\nname = "w"\ncommand = "train-lm"\ntokens = "t.h5"\nsequences_per_rank = 4\nranks = [2]\n',
        "many": b'name = "a"\n[[strong]]\nname = "s"\ngraphs = ["karate"]\nranks = [1, 2, 4]\nrepeats = 1000\n',
        "wrong": b'name = "../a"\n[[strong]]\nranks = [0]\n', "twice": b'name = "a"\nname = "b"\n',
    },
    "machine_file": {
        **{path.stem: path.read_bytes() for path in machines.glob("*.toml")},
        "edges": b'name = "m"\nranks_per_node = 1048576\n[memory]\nbytes_per_second = 1e-300\nsource = "a"\n[dense_products]\n'
                 b'fp32 = 1\nof_16_bits = 1e308\nsource = "a"\n[sparse_products]\nper_nonzero = [[1, 1e308], [2, 1e-308]]\n'
                 b'source = "a"\n[launch]\nseconds = 0\nsource = "a"\n[collectives]\ncall_seconds = 0\nstep_seconds = 0\n'
                 b'inside = [[1, 2, 1e-308]]\nbytes_per_second_between_nodes = 1e308\noverlap = 1\nsource = "a"\n',
        "wrong": b"name = 1\nranks_per_node = -0.5\n", "nan": b'name = "m"\nranks_per_node = nan\n',
    },
    "config": {
        "flat": b"seed = 7\nlr = 0.01\nbias = true\n", "tables": b"[train]\nhidden = 128\nrandom-split = [0.6, 0.2]\n",
        "nested": b"[bench.collectives]\nsizes = \"4:1M\"\n", "wrong": b"[train\nlr = [[1], {a = 2}]\n",
        "numbers": b"[train]\nhidden = 9223372036854775807\nlr = 1e400\n",
        "batches": b"[train]\nbatch = \"auto\"\nsampler = \"clusters\"\nbatch-edges = \"renormalize\"\nroc-auc = true\n",
    },
    "command_line": {
        "train": b"--graph\ng.h5\n--grid\n1x2x3x2\n--lr=0.01\n--no-bias\n--random-split\n0.6,0.2,0.2\n",
        "partition": b"--input\na\n-o\ng.h5\n--permute\ncluster\n--metis\n8\n",
        "numbers": b"--hidden\n9223372036854775808\n--layers\n-1\n--lr\nnan\n4294967296x1x1x1\n",
        "batches": b"--mode\nminibatch\n--batch\nauto\n--sampler=degree\n--batch-edges\nrescale\n--finish-full\n10\n--roc-auc\n",
        "clusters": b"--input\na\n-o\ng.h5\n--clusters\n64\n", "foreign": b"--batch-size\n512\n--wd=5e-4\n--hidden-channels\n64\n",
        "help": b"--help\n", "empty": b"",
    },
}

if len(sys.argv) != 2:
    sys.exit(__doc__)
for target, inputs in seeds.items():
    folder = pathlib.Path(sys.argv[1]) / target
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in inputs.items():
        (folder / name).write_bytes(content)
