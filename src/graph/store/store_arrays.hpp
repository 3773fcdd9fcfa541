#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The plain arrays of an open store, read with their checksums, and their values compared with what they can
// be: an index that leads out of its array stops here.

#include "graph/store/store_file.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace orthant::graph {

/// Elements `wanted` of one row of an array (row 0 if it has one dimension). The full chunks among them are
/// compared with their checksums; a long range is widened to whole chunks, so that all of it is.
template<class T>
[[nodiscard]] std::vector<T> read_checked(StoreFile const& file, std::string const& name, std::int64_t row,
                                          Range wanted);

/// read_checked of 32- or 64-bit integers. Throws UserError if one is not in [low, high].
[[nodiscard]] std::vector<std::int64_t> read_integers(StoreFile const& file, std::string const& name,
                                                      Range wanted, std::int64_t low, std::int64_t high,
                                                      std::int64_t row = 0);

/// Throws UserError, which names the array, if a value is not in [low, high]. `first` is the first one's
/// place in the array.
template<class T>
void require_between(StoreFile const& file, std::string const& name, std::span<T const> values,
                     std::int64_t first, T low, T high);

/// Throws UserError if a value is infinite or not a number.
template<class T>
void require_finite(StoreFile const& file, std::string const& name, std::span<T const> values,
                    std::int64_t first);

[[noreturn]] void report_wrong_checksum(StoreFile const& file, std::string const& name,
                                        std::string const& place);

/// Compares the checksums of this part of the array: its chunks are dealt to `num_parts`.
void check_array_part(StoreFile const& file, std::string const& name, int part, int num_parts);
inline void check_whole_array(StoreFile const& file, std::string const& name) {
  check_array_part(file, name, 0, 1);
}

} // namespace orthant::graph
