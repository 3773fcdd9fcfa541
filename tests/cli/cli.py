#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# The command line as a user meets it, on one rank without mpirun and on several with it: cli.py PROGRAM PART.

import sys

from bench_kernels import bench_store, epoch_of, gemm, gemm_table, machine, phases, sparse_epochs, sparse_features, spmm, spmm_graphs
from help_pages import COMMANDS, help_of, info, overview, version
from mistakes import MISTAKES, environment_mistake, files, first_hour, mistakes
from plans import (measured_grids, plan_for_machine, plan_language_model, plan_of_batches, plan_of_counts, plan_of_options, plan_of_store, plan_of_times,
                   plan_without_grids)
from program import attempt_all
from runs import bench, bench_grid, gather, gemm_math, hang, operand_dtype, parts, precedence, precision, prune, rates, trace

PARTS = {
    "help": [(help_of, command) for command in COMMANDS] + [(overview,), (version,)],
    "run": [(hang,), (info,), (bench,), (bench_grid,), (precedence,), (gemm_math,), (precision,), (operand_dtype,), (gather,), (prune,),
            (trace,), (parts,), (rates,)],
    "bench": [(spmm, "fp32", 4), (spmm, "fp64", 8), (spmm_graphs,), (machine,), (gemm, "fp32", 4), (gemm, "fp64", 8), (gemm_table,),
              (epoch_of, [], 12), (epoch_of, ["--dropout", "0", "--overlap", "off", "--compute-dtype", "fp64"], 6),
              (epoch_of, ["--trainable-features", "--order", "aggregate", "--device-graph", "off"], 28, 2 * 3 * (6 * 8 + 8 * 3)),
              (epoch_of, ["--model", "gat", "--heads", "4", "--dropout", "0"], 3 * (8 + 3), 2 * (2 * 6 * 8 + 3 * 8 * 3)),
              (sparse_features,), (sparse_epochs,), (bench_store,), (phases,)],
    "plan": [(plan_of_counts,), (plan_of_options,), (plan_of_store,), (plan_of_times,), (plan_for_machine,), (plan_without_grids,),
             (plan_of_batches,), (measured_grids,), (plan_language_model,)],
    "mistakes": [(mistakes, arguments, pattern) for arguments, pattern in MISTAKES] + [(files,), (first_hour,), (environment_mistake,)],
}


def main():
    several = 2 if sys.argv[2] == "bench" else 4
    return attempt_all([(ranks, job) for ranks in (1, several) for job in PARTS[sys.argv[2]]])


if __name__ == "__main__":
    sys.exit(main())
