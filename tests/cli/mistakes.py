# SPDX-License-Identifier: Apache-2.0
"""Mistakes of the user: each is answered with one line that says what is wrong."""

import os
import tempfile

from program import expect_mistake, expect_success, require

MISTAKES = [
    ([], r"name a command.*orthant --help"),
    (["trian"], r"no command 'trian'; did you mean 'train'"),
    (["--versoin"], r"no option '--versoin'; did you mean '--version'"),
    (["frobnicate"], r"no command 'frobnicate'; see `orthant --help`"),
    (["bench"], r"what to bench"),
    (["bench", "colectives"], r"did you mean 'bench collectives'"),
    (["train", "--lrr", "0.1"], r"no option '--lrr'; did you mean '--lr'"),
    (["train", "--lrr=0.1"], r"no option '--lrr'; did you mean '--lr'"),
    (["train", "--zzzzz"], r"no option '--zzzzz'; see `orthant train --help`"),
    (["train", "--lr"], r"--lr"),
    (["train", "--lr", "fast"], r"--lr: needs a number, not 'fast'"),
    (["train", "--lr", "-0.1"], r"--lr: is -0\.1, but must be more than 0"),
    (["train", "--lr-schedule", "cosin"], r"'cosin' is none of constant, step, linear, cosine, plateau, wsd, inverse-sqrt; did you mean 'cosine'"),
    (["train", "--dataset", "karate", "--min-lr", "0.001"], r"--min-lr .*needs another --lr-schedule than constant"),
    (["train", "--dataset", "karate", "--lr-schedule", "linear", "--min-lr", "0.02"], r"--min-lr 0\.02 is more than --lr 0\.01"),
    (["train", "--dataset", "karate", "--epochs", "7", "--warmup-steps", "7"], r"--warmup-steps 7 of a training of 7 steps; leave"),
    (["train", "--dataset", "karate", "--lr-schedule", "cosine", "--epochs", "1", "--warmup-steps", "1"], r"--warmup-steps 1 of .* 1 steps"),
    (["train", "--dataset", "karate", "--mode", "minibatch", "--batch", "17", "--epochs", "4", "--finish-full", "1", "--warmup-steps", "7"],
     r"--warmup-steps 7 of a training of 7 steps"),
    (["train", "--dataset", "karate", "--lr-decay-share", "0.5"], r"--lr-decay-share is for --lr-schedule wsd: leave it out, or give that"),
    (["train", "--dataset", "karate", "--lr-schedule", "wsd", "--lr-decay-share", "0"], r"--lr-decay-share: is 0, but must be more than 0"),
    (["bench", "epoch", "--lr-schedul", "linear"], r"no option '--lr-schedul'; did you mean '--lr-schedule'"),
    (["train", "--layers", "1.5"], r"--layers: needs a whole number, not '1\.5'"),
    (["train", "--layers", "0"], r"--layers: is 0, but must be at least 1"),
    (["train", "--mode", "ful"], r"'ful' is none of full, minibatch; did you mean 'full'"),
    (["train", "--model", "gut"], r"'gut' is none of gcn, sage, graphconv, tag, gin, sgc, appnp, gcnii, gat, gatv2, transformer, rgcn, rsage, rgat; did you mean 'gat'"),
    (["train", "--dataset", "karate", "--resume", "auto"], r"--resume auto .*give --checkpoint"),
    (["train", "--dataset", "karate", "--resume", "none.h5"], r"none\.h5"),
    (["train", "--dataset", "karate", "--resume-override", "precision"], r"--resume-override needs --resume"),
    (["train", "--dataset", "karate", "--resume-override", "seed"], r"'seed' is none of precision, learning-rate"),
    (["train", "--dataset", "karate", "--resume", "a.h5", "--init-from", "b.h5"], r"--init-from b\.h5 would be ignored"),
    (["train", "--dataset", "karate", "--init-skip", "layer1.*"], r"--init-skip layer1\.\* needs --init-from"),
    (["train-lm", "--tokens", "t.h5", "--prune-to", "1"], r"--prune-to 1 is no share of weights: give a number above 0 and below 1, such as 0\.8"),
    (["train-lm", "--tokens", "t.h5", "--prune-at", "5"], r"--prune-at 5 is for --prune-to: give that, too"),
    (["train-lm", "--tokens", "t.h5", "--init-skip", "wte.*"], r"--init-skip wte\.\* needs --init-from"),
    (["train", "--dataset", "karate", "--checkpoint-every", "5"], r"--checkpoint-every needs --checkpoint"),
    (["train", "--dataset", "karate", "--checkpoint-keep", "0"], r"--checkpoint-keep: is 0, but must be at least 1"),
    (["train", "--dataset", "karate", "--checkpoint-every", "0"], r"--checkpoint-every 0: give a number of epochs"),
    (["train", "--dataset", "karate", "--checkpoint-every", "5h"], r"--checkpoint-every 5h: give a number of epochs"),
    (["train", "--dataset", "karate", "--checkpoint-every", "nanmin"], r"--checkpoint-every nanmin: give"),
    (["train", "--gemm-math", "tf23"], r"'tf23' is none of fp32, tf32, bf16; did you mean 'tf32'"),
    (["train", "--gather", "al"], r"'al' is none of auto, all, needed; did you mean 'all'"),
    (["train", "--prune", "of"], r"'of' is none of on, off, auto; did you mean 'off'"),
    (["train", "--dataset", "karate", "--mode", "minibatch", "--batch", "35"], r"a batch of 35 vertices, but the graph has 34"),
    (["train", "--dataset", "karate", "--mode", "minibatch", "--batch", "1"],
     r"a batch (needs at least 2 vertices|of 1 vertices for \d ranks along [xyz])"),
    (["train", "--dataset", "karate", "--mode", "minibatch", "--batch", "8", "--accumulate", str(1 << 62)],
     r"batches an epoch, but there are 34 vertices to share out; .*accumulate less"),
    (["train", "--dataset", "karate", "--mode", "minibatch", "--batch", "8", "--epochs", "3", "--finish-full", "4"],
     r"--finish-full 4 of 3 epochs"),
    (["train", "--dataset", "sbm:vertices=50,train=0,valid=0.5,test=0.5", "--mode", "minibatch", "--batch", "9"],
     r"no training vertices"),
    (["train", "--sampler", "cluster"], r"'cluster' is none of uniform, degree, clusters; did you mean 'clusters'"),
    (["train", "--batch-edges", "scale"], r"'scale' is none of auto, rescale, renormalize"),
    (["train", "--batch", "eight"], r"--batch: needs a whole number, not 'eight', or auto"),
    (["train", "--dataset", "karate", "--sampler", "degree"], r"--sampler is for mini-batches: give --mode minibatch, or leave it out"),
    (["train", "--dataset", "karate", "--batch-edges", "renormalize"], r"--batch-edges is for mini-batches"),
    (["train", "--dataset", "karate", "--mode", "minibatch", "--sampler", "clusters"],
     r"has no clusters for --sampler clusters; partition the graph with --clusters K"),
    (["train", "--dataset", "karate", "--mode", "minibatch", "--batch", "9", "--sampler", "degree", "--batch-train-fraction", "0.5"],
     r"--batch-train-fraction works with --sampler uniform only"),
    (["train", "extra"], r"what is 'extra' for"),
    (["plan"], r"plan: give either --graph graph\.h5 or --vertices N, --nonzeros M and --widths"),
    (["plan", "--vertices", "10", "--nonzeros", "20"], r"give either --graph"),
    (["plan", "--vertices", "10", "--nonzeros", "9", "--widths", "4-2"], r"--nonzeros 9: .*each of the 10 vertices"),
    (["plan", "--vertices", "0", "--nonzeros", "9", "--widths", "4-2"], r"--vertices: is 0, but must be at least 1"),
    (["plan", "--vertices", "10", "--nonzeros", "30", "--widths", "4"], r"--widths 4: a layer has two"),
    (["plan", "--vertices", "10", "--nonzeros", "30", "--widths", "4-x-2"], r"--widths: 'x' is no whole number"),
    (["plan", "--vertices", "10", "--nonzeros", "30", "--widths", "4-2", "--ranks", "0"], r"--ranks: is 0, but must be at least 1"),
    (["plan", "--vertices", "10", "--nonzeros", "30", "--widths", "4-2", "--schedule", "row"],
     r"'row' is none of auto, pmm3d, rows; did you mean 'rows'"),
    (["plan", "--vertices", "10", "--nonzeros", "30", "--widths", "4-2", "--symmetric", "maybe"], r"'maybe' is none of yes, no"),
    (["plan", "--vertices", str(1 << 40), "--nonzeros", str(1 << 43), "--widths", "4096-4096-4096", "--ranks", "2048"],
     r"does not fit in 64 bits"),
    (["plan", "--vertices", "10", "--nonzeros", "30", "--widths", "4-2", "--model", "gin"], r"--widths 4-2: gin has a linear layer"),
    (["plan", "--vertices", "10", "--nonzeros", "30", "--widths", "4-2", "--mode", "minibatch", "--batch", "5", "--arrays"], r"--arrays is of full graphs"),
    (["plan", "--graph", "none.h5"], r"none\.h5"),
    (["plan", "--batch", "5"], r"--batch is for mini-batches: give --mode minibatch"),
    (["train-lm"], r"give --tokens"),
    (["info", "--verify"], r"--verify needs the file"),
    (["info", "--log-level", "lout"], r"'lout' is none of"),
    (["bench", "collectives", "--grid", "1x2x2x2"], r"1x2x2x2 is for 8 ranks, but the job has \d"),
    (["bench", "collectives", "--grid", "2x2"], r"'2x2' is not a grid"),
    (["bench", "collectives", "--sizes", "16:4"], r"'16:4' is no range of sizes"),
    (["bench", "collectives", "--operations", "all_reduce,alltoall"], r"'alltoall' is none of .*did you mean 'all_to_all'"),
    (["bench", "spmm", "--widths", "16,x"], r"--widths: 'x' is no whole number from 1 to 65536"),
    (["bench", "spmm", "--widths", "0"], r"--widths: '0' is no whole number"),
    (["bench", "spmm", "--kind", "rmatt"], r"'rmatt' is none of .*did you mean 'rmat'"),
    (["bench", "spmm", "--graph", "none.h5"], r"none\.h5"),
    (["bench", "spmm", "--grid", "4x1x1x1"], r"no data axis|1x1x1 is for 4 ranks"),
    (["bench", "gemm"], r"give either --graph graph\.h5 or both --rows N and --widths"),
    (["bench", "gemm", "--rows", "10"], r"give either --graph"),
    (["bench", "gemm", "--rows", "10", "--widths", "5"], r"--widths 5: a layer has two"),
    (["bench", "gemm", "--rows", "10", "--widths", "5--3"], r"--widths: '' is no whole number"),
    (["bench", "epoch"], r"give one of --graph graph\.h5 and --dataset"),
    (["bench", "epoch", "--dataset", "karate", "--epochs", "0"], r"--epochs 0: at least one epoch"),
    (["bench", "epoch", "--dataset", "karate", "--compute-dtype", "fp64", "--comm-dtype", "bf16"], r"other than fp32 need --compute-dtype fp32"),
    (["train", "--dataset", "karate", "--operand-dtype", "bf1"], r"'bf1' is none of .*bf16"),
    (["train", "--dataset", "karate", "--compute-dtype", "fp64", "--operand-dtype", "fp16"], r"other than fp32 need --compute-dtype fp32"),
    (["bench", "epoch", "--dataset", "karate", "--compute-dtype", "fp64", "--operand-dtype", "bf16"], r"other than fp32 need --compute-dtype fp32"),
    (["plan", "--vertices", "9", "--nonzeros", "9", "--widths", "5-3", "--operand-dtype", "tf32"], r"'tf32' is none of"),
    (["bench", "epoch", "--batch", "5"], r"--batch is for mini-batches"),
    # Names from other programs, and flags that would do nothing.
    (["train", "--batch-size", "5"], r"no option '--batch-size'; did you mean '--batch'"),
    (["train", "--learning-rate", "0.1"], r"no option '--learning-rate'; did you mean '--lr'"),
    (["train", "--wd", "5e-4"], r"no option '--wd'; did you mean '--weight-decay'"),
    (["train", "--hidden_channels", "64"], r"no option '--hidden_channels'; did you mean '--hidden'"),
    (["train", "--num-layers=2"], r"no option '--num-layers'; did you mean '--layers'"),
    (["train", "--dataset", "karate", "--batch", "8"], r"--batch is for mini-batches: give --mode minibatch"),
    (["train", "--dataset", "karate", "--finish-full", "5"], r"--finish-full is for mini-batches: give --mode minibatch"),
    (["partition", "-o", "none.h5"], r"name the graph to read with --input PATH, or one to generate with --generate rmat"),
    (["partition", "--input", "none", "--generate", "rmat", "-o", "none.h5"], r"name the graph to read with --input PATH, or one to generate"),
    (["partition", "--input", "none", "--vertices", "9", "-o", "none.h5"], r"--vertices is for graphs of --generate: leave it out"),
    (["partition", "--generate", "rmat", "--weights", "ignore", "-o", "none.h5"], r"--weights is for graphs of --input: leave it out"),
    (["partition", "--generate", "rmat", "--targets", "-o", "none.h5"], r"--targets is for graphs of --input: leave it out"),
    (["partition", "--generate", "rmat", "--features-from-edges", "sum", "-o", "none.h5"], r"--features-from-edges is for graphs of --input: leave it out"),
    (["partition", "--generate", "rmat", "--edge-features", "keep", "-o", "none.h5"], r"--edge-features is for graphs of --input: leave it out"),
    (["partition", "--generate", "rmat", "--add-inverse", "-o", "none.h5"], r"--add-inverse is for graphs of --input: leave it out"),
    (["partition", "--generate", "rmat", "--names", "-o", "none.h5"], r"--names is for graphs of --input: leave it out"),
    (["partition", "--generate", "rmt", "-o", "none.h5"], r"'rmt' is none of rmat, sbm, grid2d, ring; did you mean 'rmat'"),
    (["partition", "--generate", "ring", "--vertices", "3", "--edges", "9", "--classes", "2", "-o", "none.h5"], r"a ring of 3 vertices has at most"),
    (["partition", "--input", "none", "-o", "none.h5", "--split", "a", "--random-split", "0.5,0.2,0.3"], r"--split a names a split of the input, and --random"),
    (["train", "--dataset", "karate", "--log-every", "0"], r"--log-every: is 0, but must be at least 1"),
]


def mistakes(ranks, arguments, pattern):
    expect_mistake(ranks, arguments, pattern)


def first_hour(ranks):
    """What a newcomer from PyTorch Geometric gets wrong, beside names and folders (folders.py)."""
    with tempfile.TemporaryDirectory() as folder:
        def at(name):
            return os.path.join(folder, name)
        expect_success(1, ["generate", "--kind", "ring", "--vertices", "40", "--features", "4", "--classes", "2", "-o", at("graph")])
        expect_success(1, ["partition", "--input", at("graph"), "-o", at("g.h5")])
        with open(at("edges.txt"), "w", encoding="utf-8") as file:
            file.write("0 1\n1 2\n2 0\n")
        with open(at("edges.parquet"), "wb") as file:
            file.write(b"PAR1")
        expect_success(1, ["partition", "--input", at("edges.txt"), "-o", at("bare.h5")])
        expect_success(1, ["train", "--graph", at("g.h5"), "--epochs", "1", "--save-weights", at("w.h5")])
        for arguments, pattern in (
                (["train", "--graph", at("graph")], r"graph.* (folder|directory)"),
                (["train", "--graph", at("edges.txt")], r"edges\.txt.*HDF5"),
                (["train", "--graph", at("bare.h5")], r"no (labels|features)"),
                (["train"], r"give one of --graph graph\.h5 and --dataset"),
                (["partition", "--input", at("g.h5"), "-o", at("h.h5")], r"looks like a graph store, which needs no partitioning"),
                (["partition", "--input", at("edges.parquet"), "-o", at("h.h5")], r"edges\.parquet is a table of Arrow.*orthant\.write\(\)"),
                (["partition", "--input", at("graph"), "-o", at("h.h5"), "--features-from-edges", "mean"], r"has no features of edges; looked for edge-feat"),
                (["partition", "--input", at("graph"), "-o", at("i.h5"), "--edge-features", "keep"], r"--edge-features keep: .* has no features of edges"),
                (["partition", "--input", at("graph"), "-o", at("i.h5"), "--edge-features", "keep", "--features-from-edges", "mean"], r"both use the features of edges: leave one of them out"),
                (["partition", "--input", at("graph"), "-o", at("g.h5")], r"--force"),
                (["partition", "--input", folder + "/none", "-o", at("h.h5")], r"none"),
                (["evaluate", "--graph", at("bare.h5"), "--weights", at("w.h5")], r"maps 4 features to 2 classes"),
                (["evaluate", "--graph", at("g.h5"), "--weights", at("g.h5")], r"holds no weights"),
                (["evaluate", "--graph", at("g.h5"), "--weights", at("w.h5"), "--probabilities"], r"--probabilities goes into the file of --predictions"),
                (["evaluate", "--graph", at("g.h5"), "--weights", at("w.h5"), "--predictions", at("p.pt")], r"p\.pt"),
                (["train", "--graph", at("g.h5"), "--save-weights", at("w.h5")], r"--force"),
                (["train", "--graph", at("g.h5"), "--grid", "1x8x8x1"], r"1x8x8x1 is for 64 ranks"),
                (["info", at("w.h5"), "--verify"], r"--verify checks stores and token files")):
            expect_mistake(ranks, arguments, pattern)
        # A setting that is meant for other trainings is told, not refused.
        done = expect_success(ranks, ["train", "--graph", at("g.h5"), "--epochs", "1"], ORTHANT_BATCH="8")
        require("batch of the environment has no effect here" in done.stderr, "does not tell", done)


def environment_mistake(ranks):
    expect_mistake(ranks, ["train", "--dataset", "karate"], r"ORTHANT_LR is 'abc'", ORTHANT_LR="abc")


def files(ranks):
    """Files that cannot be read or written are found at the start."""
    with tempfile.TemporaryDirectory() as folder:
        bad = os.path.join(folder, "bad.toml")
        for text, pattern in (("lr = \n", r"bad\.toml:1:\d+: not valid TOML"),
                              ("[train]\nlr = 0.1\nlrr = 1\n", r"bad\.toml:3.*no option 'lrr'; did you mean 'lr'"),
                              ("[trian]\nlr = 0.1\n", r"bad\.toml:1.*\[trian\]; did you mean 'train'"),
                              ("[train]\nlr = 'fast'\n", r"bad\.toml:2.*number"),
                              ("[train]\nlr = -1.0\n", r"bad\.toml:2: .*must be more than 0")):
            with open(bad, "w", encoding="utf-8") as file:
                file.write(text)
            expect_mistake(ranks, ["train", "--dataset", "karate", "--config", bad], pattern)
        expect_mistake(ranks, ["train", "--dataset", "karate", "--config", folder + "/none.toml"], r"none\.toml")
        expect_mistake(ranks, ["info", "--metrics", folder + "/none/run.jsonl"], r"metrics file '.*/none/run\.jsonl'")
        expect_mistake(ranks, ["info", "--metrics", folder], r"metrics file")
        expect_mistake(ranks, ["info", "--trace", folder + "/none/trace.json"], r"trace file '.*/none/trace\.json'")
