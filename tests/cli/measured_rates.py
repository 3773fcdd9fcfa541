# SPDX-License-Identifier: Apache-2.0
"""What every line of the benchmarks of kernels has, and how its figures follow from one another."""

from program import Failure

TINY_ROOFLINE = ["--stream-mib", "1", "--gemm-size", "32"]


def require_close(line, key, expected):
    if abs(line[key] - expected) > 1e-9 * abs(expected):
        raise Failure(f"{key} is {line[key]}, not {expected}: {line}")


def require_rates(line, ranks, bench_name):
    """What every line of a kernel's benchmark has, and that its figures fit one another."""
    if (line["bench"], line["ranks"]) != (bench_name, ranks):
        raise Failure(f"odd line {line}")
    if not (line["seconds"] >= line["min_seconds"] > 0 and line["stream_gb_per_s"] > 0 and line["gemm_gflop_per_s"] > 0
            and line["fma_gflop_per_s"] > 0):
        raise Failure(f"odd figures {line}")
    require_close(line, "library_share", line["gemm_gflop_per_s"] / arithmetic(line))


def arithmetic(line):
    return max(line["fma_gflop_per_s"], line["gemm_gflop_per_s"])


def roofline_seconds(line, num_bytes, flops):
    return max(num_bytes / line["stream_gb_per_s"], flops / arithmetic(line)) * 1e-9
