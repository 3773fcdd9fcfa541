#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Checks of HDF5 calls, for the files that implement Hdf5File. A failed call that writes or creates throws Error. A failed call that reads
// a foreign file throws a UserError, which says that the file is damaged and which part cannot be read.

#include "runtime/error.hpp"
#include "runtime/files/hdf5_file.hpp"

#include <algorithm>
#include <cstdint>
#include <fmt/format.h>
#include <hdf5.h>
#include <string>

namespace orthant::runtime::detail {

/// Returns the innermost reason on HDF5's error stack and clears the stack.
inline std::string take_reason() {
  std::string reason;
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned n, H5E_error2_t const* error, void* data) -> herr_t {
        if (n == 0 && error->desc != nullptr) *static_cast<std::string*>(data) = error->desc;
        return 0;
      },
      &reason);
  H5Eclear2(H5E_DEFAULT);
  return reason.empty() ? "no reason given" : reason;
}

/// Returns `result`. Throws Error if it is negative, which means failure for every HDF5 type.
template<class T>
T check_made(T result, std::string const& file, char const* call) {
  if (result < 0) throw Error(fmt::format("{}: {} failed: {}", file, call, take_reason()));
  return result;
}
template<class T>
T check_read(T result, std::string const& file, std::string const& what) {
  if (result < 0) throw_user("{} is damaged: {} cannot be read: {}", file, what, take_reason());
  return result;
}

/// One open dataset of a file. The constructor throws UserError if the array does not exist, if its data are in another file, or if the
/// file cannot hold as many bytes as its extents need.
class OpenArray {
 public:
  OpenArray(Hdf5Handle const& file, std::string const& file_name, std::string const& name);

  [[nodiscard]] std::int64_t id() const { return array_.get(); }
  [[nodiscard]] std::int64_t space() const { return space_.get(); }
  [[nodiscard]] Hdf5File::Extents const& extents() const { return extents_; }
  [[nodiscard]] std::int64_t element_bytes() const { return element_bytes_; }
  [[nodiscard]] Hdf5Type type() const;
  /// Offset of its bytes in the file, 0 if it has none. Throws UserError if they are not contiguous.
  [[nodiscard]] std::int64_t offset_bytes() const;

 private:
  void require_bytes(std::int64_t property_list) const;

  std::string const& file_name_;
  std::string const& name_;
  Hdf5Handle array_;
  Hdf5Handle space_;
  Hdf5File::Extents extents_;
  std::int64_t element_bytes_ = 0;
};

[[nodiscard]] std::int64_t in_memory_type(Hdf5Type type);
[[nodiscard]] std::int64_t in_file_type(Hdf5Type type);

/// Largest number of bytes per write or read call, so that the 32-bit counts of MPI-IO are never exceeded.
inline constexpr std::int64_t max_bytes_per_call = std::int64_t{1} << 28;

/// Cuts a box along its first dimension into pieces of bounded size and calls visit(first row, number of rows, offset in elements) for
/// each.
template<class Visit>
void for_each_piece(Hdf5File::Extents const& counts, std::size_t element_bytes, Visit&& visit) {
  std::int64_t row_elements = 1;
  for (std::size_t d = 1; d < counts.size(); ++d)
    row_elements *= counts[d];
  if (counts[0] == 0 || row_elements == 0) return;
  auto const row_bytes = row_elements * static_cast<std::int64_t>(element_bytes);
  auto const rows_per_call = std::max<std::int64_t>(1, max_bytes_per_call / row_bytes);
  for (std::int64_t row = 0; row < counts[0]; row += rows_per_call)
    visit(row, std::min(rows_per_call, counts[0] - row), row * row_elements);
}

} // namespace orthant::runtime::detail
