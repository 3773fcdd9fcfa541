#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The text of a .npy header (numpy.lib.format): a Python dictionary of exactly three keys,
//   {'descr': '<i8', 'fortran_order': False, 'shape': (2, 100), }

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::graph {

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

} // namespace orthant::graph
