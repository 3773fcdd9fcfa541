#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Arrays in NumPy's .npy format (numpy.lib.format): a header with type, order and shape, then the numbers.
// Versions 1 to 3, little-endian, C order. Any run of elements is read on its own, converted to the type that
// is wanted.

#include "graph/byte_source.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace orthant::graph {

class NpyArray {
 public:
  /// Reads the header. Throws UserError where it is not one, has a type, order or byte order that cannot be
  /// read, or promises more bytes than there are.
  explicit NpyArray(std::unique_ptr<ByteSource> bytes);
  /// A file.
  explicit NpyArray(std::filesystem::path const& path) : NpyArray(open_file_bytes(path)) {}

  [[nodiscard]] std::vector<std::int64_t> const& shape() const { return shape_; }
  [[nodiscard]] std::int64_t num_elements() const;
  /// "<i8", "|u1", ..
  [[nodiscard]] std::string const& type() const { return type_; }
  [[nodiscard]] bool is_integer() const;
  [[nodiscard]] std::string const& name() const { return bytes_->name(); }
  [[nodiscard]] bool has_random_access() const { return bytes_->has_random_access(); }
  /// Where element `index` begins, for messages.
  [[nodiscard]] std::int64_t byte_of(std::int64_t index) const;

  /// Elements [first, first + out.size()). Integers only, from integer types; throws UserError otherwise.
  void read(std::int64_t first, std::span<std::int64_t> out);
  /// Floats from any type.
  void read(std::int64_t first, std::span<float> out);

  /// Throws UserError that names the file, its shape, and `wanted` ("[N, features]").
  [[noreturn]] void fail_shape(std::string const& wanted) const;

 private:
  void parse_header(std::string const& header);
  template<class T>
  void read_as(std::int64_t first, std::span<T> out);

  std::unique_ptr<ByteSource> bytes_;
  std::string type_;
  std::vector<std::int64_t> shape_;
  std::int64_t data_begin_ = 0;
  std::int64_t element_bytes_ = 0;
  std::vector<std::byte> buffer_;
};

/// "[2, 100]".
[[nodiscard]] std::string to_string(std::vector<std::int64_t> const& shape);

/// The header of version 1.0 that begins a .npy file: `type` "<i8" .., C order. Its length is a multiple
/// of 64.
[[nodiscard]] std::string npy_header(std::string const& type, std::vector<std::int64_t> const& shape);

} // namespace orthant::graph
