#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A communicator of one rank for parsers that are collective. MPI starts at the first use and ends with the
// program.

#include "runtime/comm/communicator.hpp"

namespace orthant::fuzz {

[[nodiscard]] runtime::Communicator const& single_rank();

} // namespace orthant::fuzz
