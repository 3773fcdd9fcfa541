#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// How calls of HDF5 are checked, for the files that implement Hdf5File. A call that writes or makes something
// fails with Error; one that reads what somebody else made fails with UserError, which says that the file is
// damaged and what of it cannot be read.

#include "runtime/error.hpp"
#include "runtime/files/hdf5_file.hpp"

#include <algorithm>
#include <cstdint>
#include <fmt/format.h>
#include <hdf5.h>
#include <string>

namespace orthant::runtime::detail {

/// The innermost reason on HDF5's error stack, and the stack cleared.
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

/// HDF5 returns a negative number on failure, whatever the type.
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

/// One dataset of a file, open. Throws UserError if there is no such array, if its data are in another file,
/// or if its bytes cannot be as many as its extents say.
class OpenArray {
 public:
  OpenArray(Hdf5Handle const& file, std::string const& file_name, std::string const& name);

  [[nodiscard]] std::int64_t id() const { return array_.get(); }
  [[nodiscard]] std::int64_t space() const { return space_.get(); }
  [[nodiscard]] Hdf5File::Extents const& extents() const { return extents_; }
  [[nodiscard]] std::int64_t element_bytes() const { return element_bytes_; }
  [[nodiscard]] Hdf5Type type() const;
  /// Where its bytes begin, 0 if it has none. Throws UserError if they are not contiguous.
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

/// One write or read call moves at most this much, so that MPI-IO's 32-bit counts never matter.
inline constexpr std::int64_t max_bytes_per_call = std::int64_t{1} << 28;

/// Cuts a box along its first dimension in pieces of bounded size: visit(first row, number of rows, offset in
/// elements).
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
