#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The device side of a communicator: an NCCL (or RCCL) communicator over the same ranks. Two implementations,
// chosen by the build: collectives_nccl.cpp (ORTHANT_ENABLE_NCCL) and collectives_no_nccl.cpp, in which no
// group ever exists.

#include <mpi.h>

namespace orthant::runtime {
class Stream;
namespace detail {

class NcclGroup;
struct Call;

/// Null where NCCL is not built in, no device is visible, or two ranks share a device (NCCL refuses that;
/// such groups communicate through MPI). Collective over `comm`.
[[nodiscard]] NcclGroup* create_nccl_group(MPI_Comm comm);
void destroy_nccl_group(NcclGroup* group) noexcept;

/// True for what NCCL does; barriers and arg-max go through MPI.
[[nodiscard]] bool can_enqueue(Call const& call);

/// Enqueues the call on its stream. Does not wait. Throws Error where a value overflowed the fp16 wire in an
/// earlier call.
void enqueue(NcclGroup& group, Call const& call);

} // namespace detail
} // namespace orthant::runtime
