// SPDX-License-Identifier: Apache-2.0
//
// Built-in table of the processors on which Orthant was measured, in the format of `bench gemm --tune`. On one core each, with OpenBLAS
// 0.3.21 (core type SkylakeX) and oneDNN 2.6.3 of Debian 12; GFLOP/s in fp32 of 24,490 rows x 128 times 128 x {128, 47}, and of the sum
// over these rows with 128 x {128, 47} results:
//
//   Intel with AMX (flags of a Sapphire Rapids)   OpenBLAS 100  81, 112  76   oneDNN 137 156, 135 141   bf16 528 527, 599 354
//   Intel, model 207, no AMX (48,980 rows)        OpenBLAS  81  61, 101  62   oneDNN 119  96, 106 101   bf16 76
//   AMD, family 26 (Zen 5), 48,980 rows           OpenBLAS 166 196, 131 136   oneDNN 216 181, 161 150   bf16 415 384, 266 194
//     with OpenBLAS's core type Haswell                     85  72,  93  69
//   AMD, family 25, AVX-512 (Zen 4), two cores    OpenBLAS 182 202, 197 197   oneDNN 177 172, 196 200   bf16 437 421, 347 322
//     at once, 48,980 rows each                   LIBXSMM  196 202, 208 215
//   AMD, family 25, no AVX-512 (Zen 3), 48,980    OpenBLAS  63  49,  73  42   oneDNN  79  69,  83  67
//
// On Zen 3 (core type Zen), OpenBLAS is chosen for the other shapes, which it multiplies up to 4 % faster. OpenBLAS is chosen on older
// processors, where nothing else was measured. LIBXSMM 1.17, which was measured on Zen 4 and Zen 5, is not built in: where it is faster than
// the others, Orthant's own kernels are as fast, or take less time in an epoch.
//
// Orthant's own kernels (pmm/tall_gemm) were measured on two processors, with two cores at the same time; in brackets oneDNN, LIBXSMM and
// OpenBLAS:
//
//   Zen 5, multiply-adds reach 540   A B 518 (473 303 372), narrow 484 (379 485 392); A B^T 501 (468 306 380), narrow 477 (393 477 390);
//                                    sums 447 (367 381 311), narrow 443 (354 438 340)
//   Zen 4, multiply-adds reach 236   A B 204 (182 188 182), narrow 213 (161 182 182); A B^T 195 (179 186 181), narrow 209 (146 162 160);
//                                    sums 205 (194 208 197), narrow 214 (195 211 194)
//
// On Zen 4, LIBXSMM was 1 % faster in sums; with Orthant's kernels for all tall shapes, an epoch took 0.90 to 0.94 of its time.
#include "pmm/gemm/gemm_choice.hpp"

namespace orthant::pmm {
namespace {

constexpr std::string_view text = R"({
 "table": "gemm_libraries",
 "format": 1,
 "processors": [
  {"vendor": "GenuineIntel", "vectors": "AVX-512", "bf16_tiles": true, "date": "2026-11-22", "choices": [
    {"numbers": "fp32", "transposes": "NN", "shape": "tall", "library": "onednn"},
    {"numbers": "fp32", "transposes": "NN", "shape": "tall_narrow", "library": "onednn"},
    {"numbers": "fp32", "transposes": "NT", "shape": "tall", "library": "onednn"},
    {"numbers": "fp32", "transposes": "NT", "shape": "tall_narrow", "library": "onednn"},
    {"numbers": "fp32", "transposes": "TN", "shape": "long_sum", "library": "onednn"},
    {"numbers": "fp32", "transposes": "TN", "shape": "long_sum_narrow", "library": "onednn"},
    {"numbers": "fp32", "transposes": "NN", "shape": "other", "library": "onednn"},
    {"numbers": "fp32", "transposes": "NT", "shape": "other", "library": "onednn"},
    {"numbers": "bf16", "transposes": "NN", "shape": "tall", "library": "onednn"},
    {"numbers": "bf16", "transposes": "NN", "shape": "tall_narrow", "library": "onednn"},
    {"numbers": "bf16", "transposes": "NT", "shape": "tall", "library": "onednn"},
    {"numbers": "bf16", "transposes": "NT", "shape": "tall_narrow", "library": "onednn"},
    {"numbers": "bf16", "transposes": "TN", "shape": "long_sum", "library": "onednn"},
    {"numbers": "bf16", "transposes": "TN", "shape": "long_sum_narrow", "library": "onednn"},
    {"numbers": "bf16", "transposes": "NN", "shape": "other", "library": "onednn"},
    {"numbers": "bf16", "transposes": "NT", "shape": "other", "library": "onednn"},
    {"numbers": "bf16", "transposes": "TN", "shape": "other", "library": "onednn"}
  ]},
  {"vendor": "GenuineIntel", "vectors": "AVX-512", "bf16_tiles": false, "date": "2026-11-21", "choices": [
    {"numbers": "fp32", "transposes": "NN", "shape": "tall", "library": "onednn"},
    {"numbers": "fp32", "transposes": "NN", "shape": "tall_narrow", "library": "onednn"},
    {"numbers": "fp32", "transposes": "NT", "shape": "tall", "library": "onednn"},
    {"numbers": "fp32", "transposes": "NT", "shape": "tall_narrow", "library": "onednn"},
    {"numbers": "fp32", "transposes": "TN", "shape": "long_sum", "library": "onednn"},
    {"numbers": "fp32", "transposes": "TN", "shape": "long_sum_narrow", "library": "onednn"}
  ]},
  {"vendor": "AuthenticAMD", "family": 25, "vectors": "AVX2", "date": "2026-11-23", "choices": [
    {"numbers": "fp32", "transposes": "NN", "shape": "tall", "library": "onednn"},
    {"numbers": "fp32", "transposes": "NN", "shape": "tall_narrow", "library": "onednn"},
    {"numbers": "fp32", "transposes": "NT", "shape": "tall", "library": "onednn"},
    {"numbers": "fp32", "transposes": "NT", "shape": "tall_narrow", "library": "onednn"},
    {"numbers": "fp32", "transposes": "TN", "shape": "long_sum", "library": "onednn"},
    {"numbers": "fp32", "transposes": "TN", "shape": "long_sum_narrow", "library": "onednn"},
    {"numbers": "fp32", "transposes": "TN", "shape": "small", "library": "onednn"}
  ]},
  {"vendor": "AuthenticAMD", "family": 25, "vectors": "AVX-512", "date": "2026-11-25", "choices": [
    {"numbers": "fp32", "transposes": "NN", "shape": "tall", "library": "orthant"},
    {"numbers": "fp32", "transposes": "NN", "shape": "tall_narrow", "library": "orthant"},
    {"numbers": "fp32", "transposes": "NT", "shape": "tall", "library": "orthant"},
    {"numbers": "fp32", "transposes": "NT", "shape": "tall_narrow", "library": "orthant"},
    {"numbers": "fp32", "transposes": "TN", "shape": "long_sum", "library": "orthant"},
    {"numbers": "fp32", "transposes": "TN", "shape": "long_sum_narrow", "library": "orthant"},
    {"numbers": "fp32", "transposes": "NT", "shape": "small", "library": "orthant"},
    {"numbers": "fp32", "transposes": "NN", "shape": "other", "library": "onednn"},
    {"numbers": "fp32", "transposes": "NT", "shape": "other", "library": "onednn"},
    {"numbers": "fp32", "transposes": "TN", "shape": "other", "library": "onednn"},
    {"numbers": "bf16", "transposes": "NN", "shape": "tall", "library": "onednn"},
    {"numbers": "bf16", "transposes": "NN", "shape": "tall_narrow", "library": "onednn"},
    {"numbers": "bf16", "transposes": "NT", "shape": "tall", "library": "onednn"},
    {"numbers": "bf16", "transposes": "NT", "shape": "tall_narrow", "library": "onednn"},
    {"numbers": "bf16", "transposes": "TN", "shape": "long_sum", "library": "onednn"},
    {"numbers": "bf16", "transposes": "TN", "shape": "long_sum_narrow", "library": "onednn"},
    {"numbers": "bf16", "transposes": "NN", "shape": "other", "library": "onednn"},
    {"numbers": "bf16", "transposes": "NT", "shape": "other", "library": "onednn"},
    {"numbers": "bf16", "transposes": "TN", "shape": "other", "library": "onednn"}
  ]},
  {"vendor": "AuthenticAMD", "family": 26, "vectors": "AVX-512", "date": "2026-11-25", "choices": [
    {"numbers": "fp32", "transposes": "NN", "shape": "tall", "library": "orthant"},
    {"numbers": "fp32", "transposes": "NN", "shape": "tall_narrow", "library": "orthant"},
    {"numbers": "fp32", "transposes": "NT", "shape": "tall", "library": "orthant"},
    {"numbers": "fp32", "transposes": "NT", "shape": "tall_narrow", "library": "orthant"},
    {"numbers": "fp32", "transposes": "TN", "shape": "long_sum", "library": "orthant"},
    {"numbers": "fp32", "transposes": "TN", "shape": "long_sum_narrow", "library": "orthant"},
    {"numbers": "fp32", "transposes": "NN", "shape": "other", "library": "onednn"},
    {"numbers": "fp32", "transposes": "NT", "shape": "other", "library": "onednn"},
    {"numbers": "fp32", "transposes": "TN", "shape": "other", "library": "onednn"},
    {"numbers": "bf16", "transposes": "NN", "shape": "tall", "library": "onednn"},
    {"numbers": "bf16", "transposes": "NN", "shape": "tall_narrow", "library": "onednn"},
    {"numbers": "bf16", "transposes": "NT", "shape": "tall", "library": "onednn"},
    {"numbers": "bf16", "transposes": "NT", "shape": "tall_narrow", "library": "onednn"},
    {"numbers": "bf16", "transposes": "TN", "shape": "long_sum", "library": "onednn"},
    {"numbers": "bf16", "transposes": "TN", "shape": "long_sum_narrow", "library": "onednn"},
    {"numbers": "bf16", "transposes": "NN", "shape": "other", "library": "onednn"},
    {"numbers": "bf16", "transposes": "NT", "shape": "other", "library": "onednn"},
    {"numbers": "bf16", "transposes": "TN", "shape": "other", "library": "onednn"}
  ]}
 ]
})";

} // namespace

GemmTable const& built_in_gemm_table() {
  static GemmTable const table = parse_gemm_table(text, "built-in");
  return table;
}

} // namespace orthant::pmm
