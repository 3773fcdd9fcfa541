#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Choice of the library that multiplies a dense product. It is a pure function of a table, the processor, the number format, the
// transposes and a class of shapes. It never depends on timings, so that runs are reproducible to the bit.
//
//   product                                   class            in training
//   m n k below 2^18                          small
//   k >= 8 max(m, n), min(m, n) >= 64         long_sum         dW = H^T dQ
//   k >= 8 max(m, n), min(m, n) <  64         long_sum_narrow  dW = H^T dQ of 47 classes
//   m >= 8 max(n, k), n >= 64                 tall             Q = H W, dH = dQ W^T
//   m >= 8 max(n, k), n <  64                 tall_narrow      Q = H W of 47 classes
//   all others                                other
//
// `orthant bench gemm --tune FILE` measures a table, and one is built in (gemm_default_table.cpp). OpenBLAS multiplies all products that
// the table does not list; bf16 numbers are widened for it.

#include "pmm/gemm/local_gemm.hpp"
#include "runtime/machine/processor.hpp"

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::pmm {

enum class GemmNumbers : std::uint8_t { fp32, fp64, bf16 };
enum class GemmShape : std::uint8_t { small, tall, tall_narrow, long_sum, long_sum_narrow, other };

inline constexpr std::array all_gemm_numbers{GemmNumbers::fp32, GemmNumbers::fp64, GemmNumbers::bf16};
inline constexpr std::array all_gemm_shapes{GemmShape::small,           GemmShape::tall,
                                            GemmShape::tall_narrow,     GemmShape::long_sum,
                                            GemmShape::long_sum_narrow, GemmShape::other};

[[nodiscard]] GemmShape gemm_shape(GemmExtents const& extents);

/// A kind of product. One library multiplies all products of a kind.
struct GemmCase {
  GemmNumbers numbers = GemmNumbers::fp32;
  Transpose transpose_a = Transpose::no, transpose_b = Transpose::no;
  GemmShape shape = GemmShape::small;

  auto operator<=>(GemmCase const&) const = default;
  bool operator==(GemmCase const&) const = default; // nvcc does not emit the implied one
};

/// Returns for example "fp32 NT tall".
[[nodiscard]] std::string name_of(GemmCase const& kind);

inline constexpr std::string_view openblas_name = "openblas";
inline constexpr std::string_view onednn_name = "onednn";
inline constexpr std::string_view orthant_name = "orthant"; // pmm/tall_gemm
inline constexpr std::string_view widened_name =
    "widened"; // bf16 converted to fp32 tile by tile (tiled_gemm.cpp)

/// oneDNN packs right operands of up to this many numbers, one at a time, in memory that is kept.
inline constexpr std::int64_t most_packed = std::int64_t{1} << 22;

struct GemmTable {
  struct Choice {
    GemmCase kind;
    std::string library;
    std::map<std::string, double> gflop_per_s; // as measured, by library
  };
  /// Processors with these properties, and their choices. A property without a value matches all processors.
  struct Processors {
    std::string vendor;
    std::optional<int> family, model;
    std::optional<runtime::Vectors> vectors;
    std::optional<bool> has_bf16_tiles;
    std::vector<Choice> choices;
    // Origin of the choices.
    std::string name, date, version;
    std::vector<std::string> libraries;

    [[nodiscard]] bool fit(runtime::Processor const& processor) const;
  };
  std::vector<Processors> processors;
};

/// Returns the name of the library for this kind, from the first entry that fits the processor. If that does not list it, returns
/// "openblas", or "widened" for bf16.
[[nodiscard]] std::string_view library_of(GemmTable const& table, runtime::Processor const& processor,
                                          GemmCase const& kind);

/// Table of the processors on which Orthant was measured (gemm_default_table.cpp).
[[nodiscard]] GemmTable const& built_in_gemm_table();

/// Writes a table as `bench gemm --tune` does, and parses it. Parsing throws UserError, which names `path`, if the text is not a valid
/// table.
[[nodiscard]] std::string text_of(GemmTable const& table);
[[nodiscard]] GemmTable parse_gemm_table(std::string_view text, std::filesystem::path const& path);

/// Sets the choices of local_gemm() from now on, for the whole program. Ranks whose results must agree must pass the same table and
/// processor. The default is the built-in table and this rank's processor. Does nothing on devices.
void set_gemm_choice(GemmTable const& table, runtime::Processor const& processor);

/// Name of the library that currently multiplies products of this kind; "widened" for bf16 that is converted. Host only.
[[nodiscard]] std::string_view chosen_gemm_library(GemmCase const& kind);

/// Returns the current choices as one line for records: {"oneDNN 2.6.3":["fp32 NN tall",..],"OpenBLAS 0.3.21 (SkylakeX)":["else"]}. On
/// devices, the only library is the vendor's.
[[nodiscard]] std::string describe_gemm_choice();

/// Names and versions of the available libraries, such as "OpenBLAS 0.3.21 (SkylakeX)" and "oneDNN 2.6.3".
[[nodiscard]] std::vector<std::string> gemm_libraries();

} // namespace orthant::pmm
