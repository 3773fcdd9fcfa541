#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Which library multiplies: a pure function of a table, a processor, the numbers, the transposes and a class of shapes.
// It never depends on the clock, so that a run repeats to the bit.
//
//   product                                   class            in training
//   m n k below 2^18                          small
//   k >= 8 max(m, n), min(m, n) >= 64         long_sum         dW = H^T dQ
//   k >= 8 max(m, n), min(m, n) <  64         long_sum_narrow  dW = H^T dQ of 47 classes
//   m >= 8 max(n, k), n >= 64                 tall             Q = H W, dH = dQ W^T
//   m >= 8 max(n, k), n <  64                 tall_narrow      Q = H W of 47 classes
//   all else                                  other
//
// `orthant bench gemm --tune FILE` measures a table, and one is built in (gemm_table.cpp). What a table does not say
// is OpenBLAS's work; bf16 is widened for it.

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

/// A kind of products, all of which one library multiplies.
struct GemmCase {
  GemmNumbers numbers = GemmNumbers::fp32;
  Transpose transpose_a = Transpose::no, transpose_b = Transpose::no;
  GemmShape shape = GemmShape::small;

  auto operator<=>(GemmCase const&) const = default;
  bool operator==(GemmCase const&) const = default; // nvcc leaves out the one that is implied
};

/// "fp32 NT tall".
[[nodiscard]] std::string name_of(GemmCase const& kind);

inline constexpr std::string_view openblas_name = "openblas";
inline constexpr std::string_view onednn_name = "onednn";
inline constexpr std::string_view libxsmm_name = "libxsmm";
inline constexpr std::string_view orthant_name = "orthant"; // pmm/tall_gemm
inline constexpr std::string_view widened_name =
    "widened"; // bf16 converted to fp32 tile by tile (tiled_gemm.hpp)

/// Right operands of up to so many numbers are packed by oneDNN, all by turns in memory that stays.
inline constexpr std::int64_t most_packed = std::int64_t{1} << 22;

struct GemmTable {
  struct Choice {
    GemmCase kind;
    std::string library;
    std::map<std::string, double> gflop_per_s; // as measured, by library
  };
  /// Those with these properties. A property that is not given may be any.
  struct Processors {
    std::string vendor;
    std::optional<int> family, model;
    std::optional<runtime::Vectors> vectors;
    std::optional<bool> has_bf16_tiles;
    std::vector<Choice> choices;
    // Where the choices come from.
    std::string name, date, version;
    std::vector<std::string> libraries;

    [[nodiscard]] bool fit(runtime::Processor const& processor) const;
  };
  std::vector<Processors> processors;
};

/// The library by its name in tables: of the first entry that fits the processor, else "openblas"; for bf16 "widened".
[[nodiscard]] std::string_view library_of(GemmTable const& table, runtime::Processor const& processor,
                                          GemmCase const& kind);

/// For the processors that Orthant was measured on (gemm_default_table.cpp).
[[nodiscard]] GemmTable const& built_in_gemm_table();

/// A file of `bench gemm --tune`, as text and back. Throws UserError, which names `path`, if the text is anything else.
[[nodiscard]] std::string text_of(GemmTable const& table);
[[nodiscard]] GemmTable parse_gemm_table(std::string_view text, std::filesystem::path const& path);

/// What local_gemm() goes by from now on, for the whole program. Ranks whose results must agree give the same table and
/// processor. Without a call: the built-in table and this rank's processor. Does nothing on devices.
void set_gemm_choice(GemmTable const& table, runtime::Processor const& processor);

/// The name of the library that multiplies such a product now; "widened" for bf16 that is converted. Host only.
[[nodiscard]] std::string_view chosen_gemm_library(GemmCase const& kind);

/// What is chosen now, as one line for records: {"oneDNN 2.6.3":["fp32 NN tall",..],"OpenBLAS 0.3.21 (SkylakeX)":["else"]};
/// the vendor's library on devices.
[[nodiscard]] std::string describe_gemm_choice();

/// "OpenBLAS 0.3.21 (SkylakeX)", "oneDNN 2.6.3": those that products may be given to.
[[nodiscard]] std::vector<std::string> gemm_libraries();

} // namespace orthant::pmm
