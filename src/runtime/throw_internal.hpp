#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// throw_internal() without the MPI and fmt headers of error.hpp, for sources that must also compile on a machine with only a device
// toolkit.

#include <source_location>
#include <string_view>

namespace orthant::runtime {

/// Throws Error with this process's rank, the source location and the text.
[[noreturn]] void throw_internal(std::string_view text, std::source_location where);

} // namespace orthant::runtime
