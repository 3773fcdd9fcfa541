#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Arrays in NumPy's .npy format (numpy.lib.format): a header with type, order and shape, then the numbers.
// Versions 1 to 3, little-endian, C order. Any run of elements is read on its own, converted to the type that
// is wanted.

#include "runtime/files/byte_source.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::graph {

// The text of a .npy header (numpy.lib.format): a Python dictionary of exactly three keys,
//   {'descr': '<i8', 'fortran_order': False, 'shape': (2, 100), }

struct NpyHeader {
  std::string type; // "<i8", "|u1", ..
  bool is_fortran = false;
  std::vector<std::int64_t> shape;
};

/// Throws UserError that begins with `name` ("x.npy") if the text is not such a dictionary: another key or
/// one that is given twice, a structured type, an extent that is negative or does not fit in 64 bits.
[[nodiscard]] NpyHeader parse_npy_header(std::string_view text, std::string const& name);

/// The header of version 1.0 that begins a .npy file: `type` "<i8" .., C order. Its length is a multiple
/// of 64.
[[nodiscard]] std::string npy_header(std::string const& type, std::vector<std::int64_t> const& shape);

class NpyArray {
 public:
  /// Reads the header. Throws UserError if it is not one, has a type, order or byte order that cannot be
  /// read, or if its shape needs another number of bytes than there are. Takes no more memory than 64 KiB.
  explicit NpyArray(std::unique_ptr<runtime::ByteSource> bytes);
  /// A file.
  explicit NpyArray(std::filesystem::path const& path) : NpyArray(runtime::open_file_bytes(path)) {}

  [[nodiscard]] std::vector<std::int64_t> const& shape() const { return shape_; }
  [[nodiscard]] std::int64_t num_elements() const { return num_elements_; }
  /// One dimension.
  [[nodiscard]] bool is_list() const { return shape_.size() == 1; }
  /// "<i8", "|u1", ..
  [[nodiscard]] std::string const& type() const { return type_; }
  /// Bool is none: whoever gives a mask where ids are wanted has made a mistake.
  [[nodiscard]] bool is_integer() const { return type_[1] == 'i' || type_[1] == 'u'; }
  [[nodiscard]] std::string const& name() const { return bytes_->name(); }
  [[nodiscard]] bool has_random_access() const { return bytes_->has_random_access(); }
  [[nodiscard]] std::int64_t element_bytes() const { return element_bytes_; }
  /// Bytes that reading elements has cost so far, those that were inflated and passed over included.
  [[nodiscard]] std::int64_t bytes_read() const { return bytes_->bytes_read() - header_cost_; }
  /// Where element `index` begins, for messages.
  [[nodiscard]] std::int64_t byte_of(std::int64_t index) const;

  /// Elements [first, first + out.size()). Integers only, from integer types; throws UserError otherwise, and
  /// if one does not fit in 63 bits.
  void read(std::int64_t first, std::span<std::int64_t> out);
  /// Numbers of any type, rounded to the nearest float, or double.
  void read(std::int64_t first, std::span<float> out);
  void read(std::int64_t first, std::span<double> out);

  /// Throws UserError that names the file, its shape, and `wanted` ("[N, features]").
  [[noreturn]] void fail_shape(std::string const& wanted) const;

 private:
  void take_header(NpyHeader header);
  template<class T>
  void read_as(std::int64_t first, std::span<T> out);

  std::unique_ptr<runtime::ByteSource> bytes_;
  std::string type_;
  std::vector<std::int64_t> shape_;
  std::int64_t num_elements_ = 1;
  std::int64_t data_begin_ = 0;
  std::int64_t element_bytes_ = 0;
  std::int64_t header_cost_ = 0; // of bytes_->bytes_read()
  std::vector<std::byte> buffer_;
};

/// "[2, 100]".
[[nodiscard]] std::string to_string(std::vector<std::int64_t> const& shape);

} // namespace orthant::graph
