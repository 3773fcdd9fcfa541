#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The GGUF format of llama.cpp (github.com/ggml-org/ggml, docs/gguf.md), versions 2 and 3, little-endian:
//
//   "GGUF", u32 version, u64 number of tensors, u64 number of metadata
//   metadata            key, u32 type, value; a text is its length (u64) and its bytes; an array is its u32 type, its length, its values
//   tensors             name, u32 number of dims, their extents (u64; the first one is contiguous), u32 kind, u64 offset
//   the numbers         from the next multiple of general.alignment (default 32) on; offsets count from there
//
// Kinds that are read: F32, F16, BF16, and two kinds with blocks of 32 numbers, where d and m are fp16:
//
//   Q8_0    d, 32 x int8 q:                        x = d q
//   Q4_1    d, m, 32 x 4 bits q, low halves first: x = d q + m
//
// Files come from unknown sources: everything in the header is checked before a number is read.

#include "runtime/range.hpp"

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace orthant::models {

struct GgufTensor {
  std::string name;
  std::vector<std::int64_t> shape; // row-major, so in the reverse order of the file
  std::uint32_t kind = 0;
  std::int64_t offset = 0; // in the file, bytes
};

class GgufFile {
 public:
  /// Reads the header. Throws UserError, with the file's name and the reason, if it is not a GGUF file, is cut off, or has a tensor of
  /// another kind.
  explicit GgufFile(std::filesystem::path path);

  [[nodiscard]] std::string name() const { return path_.string(); }
  /// Values by key. Arrays are kept under "tokenizer." only; others are null.
  [[nodiscard]] nlohmann::json const& metadata() const { return metadata_; }
  [[nodiscard]] std::vector<GgufTensor> const& tensors() const { return tensors_; }
  /// The numbers in `range` of one of the tensors(), row-major. The range must consist of whole blocks, as whole rows do. Throws UserError
  /// if the file has become shorter.
  [[nodiscard]] std::vector<float> read(GgufTensor const& tensor, runtime::Range range) const;

 private:
  std::filesystem::path path_;
  nlohmann::json metadata_ = nlohmann::json::object();
  std::vector<GgufTensor> tensors_;
};

} // namespace orthant::models
