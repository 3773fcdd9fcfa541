#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The safetensors format of weights (github.com/huggingface/safetensors, "Format"), little-endian:
//
//   8 bytes             n, the length of the header
//   n bytes             JSON: {"NAME": {"dtype": "F32", "shape": [..], "data_offsets": [begin, end]}, ..,
//                              "__metadata__": {"KEY": "TEXT", ..}}
//   the rest            the tensors' numbers, row-major, without gaps; offsets count from its first byte
//
// Files come from unknown sources: everything in the header is checked before a number is read.

#include "runtime/range.hpp"
#include "runtime/unique_handle.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace orthant::runtime {

enum class TensorType : std::uint8_t { float16, bfloat16, float32, float64 };

struct Tensor {
  std::string name;
  TensorType type = TensorType::float32;
  std::vector<std::int64_t> shape;

  [[nodiscard]] std::int64_t num_elements() const;
};

/// Numbers of a piece of a tensor, if it is read or written in pieces.
inline constexpr std::int64_t most_numbers_of_piece = std::int64_t{1} << 22;

using TensorMetadata = std::map<std::string, std::string>;

class SafetensorsFile {
 public:
  /// Reads the header. Throws UserError, with the file's name and the reason, if it is not a safetensors file, is cut off, or holds a
  /// tensor whose type is not a TensorType.
  explicit SafetensorsFile(std::filesystem::path path);

  /// In the order of their names in the file.
  [[nodiscard]] std::vector<Tensor> const& tensors() const { return tensors_; }
  [[nodiscard]] TensorMetadata const& metadata() const { return metadata_; }
  /// Whether a tensor has fp64 numbers.
  [[nodiscard]] bool has_float64() const;
  /// All numbers of a tensor, or those in `range`, row-major, converted to T from 16-bit numbers or from the other type. Throws UserError if
  /// there is no tensor named `name`, or if the file has become shorter.
  template<class T>
  [[nodiscard]] std::vector<T> read(std::string const& name, std::optional<Range> range = std::nullopt) const;

 private:
  std::filesystem::path path_;
  std::vector<Tensor> tensors_;
  std::vector<std::int64_t> offsets_; // offset of each tensor in the file, bytes
  TensorMetadata metadata_;
};

/// Writes a file that gets its name when it is complete. `numbers_of(i, rows)` returns the numbers of these rows of tensor i, which must
/// have type T; a vector is one row. It is called for the tensors in order, each from the first row to the last, with as many rows as have
/// about most_numbers_of_piece numbers. Throws UserError if the file cannot be written.
template<class T>
void write_safetensors(std::filesystem::path const& path, std::vector<Tensor> const& tensors,
                       TensorMetadata const& metadata,
                       std::function<std::vector<T>(std::size_t, Range)> const& numbers_of);
/// The same with all numbers of tensor i at once.
template<class T>
void write_safetensors(std::filesystem::path const& path, std::vector<Tensor> const& tensors,
                       TensorMetadata const& metadata,
                       std::function<std::vector<T>(std::size_t)> const& numbers_of);

} // namespace orthant::runtime
