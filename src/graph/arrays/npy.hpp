#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Arrays in NumPy's .npy format (numpy.lib.format): a header with type, order and shape, followed by the numbers. Supports versions 1 to 3,
// little-endian, C order. Any range of elements can be read by itself and is converted to the requested type. Arrays of texts ("<U5",
// "|S5") are refused unless the caller allows them.

#include "runtime/files/byte_source.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::graph {

// The text of a .npy header (numpy.lib.format): a Python dictionary with exactly three keys,
//   {'descr': '<i8', 'fortran_order': False, 'shape': (2, 100), }

struct NpyHeader {
  std::string type; // "<i8", "|u1", ..
  bool is_fortran = false;
  std::vector<std::int64_t> shape;
};

/// Throws a UserError that begins with `name` ("x.npy") if the text is not such a dictionary: if it has another key or a key twice, a
/// structured type, or an extent that is negative or does not fit in 64 bits.
[[nodiscard]] NpyHeader parse_npy_header(std::string_view text, std::string const& name);

/// The header of version 1.0 for a .npy file in C order with `type` "<i8" .. Its length is a multiple of 64.
[[nodiscard]] std::string npy_header(std::string const& type, std::vector<std::int64_t> const& shape);

class NpyArray {
 public:
  /// Reads the header. Throws UserError if there is no valid header, if the type, order or byte order is not supported, or if the shape
  /// does not match the number of bytes. Uses at most 64 KiB of memory.
  /// `may_be_text`: the array may have texts in place of numbers.
  explicit NpyArray(std::unique_ptr<runtime::ByteSource> bytes, bool may_be_text = false);
  /// The array in a file.
  explicit NpyArray(std::filesystem::path const& path, bool may_be_text = false)
      : NpyArray(runtime::open_file_bytes(path), may_be_text) {}

  [[nodiscard]] std::vector<std::int64_t> const& shape() const { return shape_; }
  [[nodiscard]] std::int64_t num_elements() const { return num_elements_; }
  /// 1 if the array has one dimension.
  [[nodiscard]] std::int64_t num_columns() const { return shape_.size() == 2 ? shape_[1] : 1; }
  /// True if the array has one dimension.
  [[nodiscard]] bool is_list() const { return shape_.size() == 1; }
  /// "<i8", "|u1", ..
  [[nodiscard]] std::string const& type() const { return type_; }
  /// False for bool, because a mask in place of ids is a mistake.
  [[nodiscard]] bool is_fp64() const { return type_[1] == 'f' && element_bytes_ == 8; }
  [[nodiscard]] bool is_integer() const { return type_[1] == 'i' || type_[1] == 'u'; }
  [[nodiscard]] bool is_real() const { return type_[1] == 'f'; }
  [[nodiscard]] bool is_text() const { return type_[1] == 'U' || type_[1] == 'S'; }
  [[nodiscard]] std::string const& name() const { return bytes_->name(); }
  [[nodiscard]] bool has_random_access() const { return bytes_->has_random_access(); }
  [[nodiscard]] std::int64_t element_bytes() const { return element_bytes_; }
  /// Number of bytes read for elements so far, including bytes that were inflated and dropped.
  [[nodiscard]] std::int64_t bytes_read() const { return bytes_->bytes_read() - header_cost_; }
  /// Offset of element `index` in bytes, for messages.
  [[nodiscard]] std::int64_t byte_of(std::int64_t index) const;

  /// Reads elements [first, first + out.size()). The array must have an integer type and values that fit in 63 bits; otherwise throws
  /// UserError.
  void read(std::int64_t first, std::span<std::int64_t> out);
  /// Reads elements of any type, rounded to the nearest float or double.
  void read(std::int64_t first, std::span<float> out);
  void read(std::int64_t first, std::span<double> out);
  /// Reads texts as UTF-8. The array must have texts.
  void read(std::int64_t first, std::span<std::string> out);

  /// Throws a UserError with the file, its shape, and the expected shape `wanted` ("[N, features]").
  [[noreturn]] void fail_shape(std::string const& wanted) const;

 private:
  void take_header(NpyHeader header, bool may_be_text);
  template<class T>
  void read_as(std::int64_t first, std::span<T> out);

  std::unique_ptr<runtime::ByteSource> bytes_;
  std::string type_;
  std::vector<std::int64_t> shape_;
  std::int64_t num_elements_ = 1;
  std::int64_t data_begin_ = 0;
  std::int64_t element_bytes_ = 0;
  std::int64_t header_cost_ = 0; // part of bytes_->bytes_read()
  std::vector<std::byte> buffer_;
};

/// "[2, 100]".
[[nodiscard]] std::string to_string(std::vector<std::int64_t> const& shape);

} // namespace orthant::graph
