#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What error.hpp says of throw_internal, without MPI and fmt: for sources that a machine with a device and a
// bare toolkit compiles, too.

#include <source_location>
#include <string_view>

namespace orthant::runtime {

/// Throws Error with this process's rank, the place and the text.
[[noreturn]] void throw_internal(std::string_view text, std::source_location where);

} // namespace orthant::runtime
