#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Calls whose numbers travel encoded (numbers/formats.hpp), on any backend that moves bytes. What is no sum is
// encoded, moved and decoded. A sum is an exchange of addends, in which every rank receives all addends of its
// own part; their sum in fp32 and in rank order; one rounding; and for all_reduce a gather of the parts. So all
// ranks, the owner of a part included, end with the same bits.
//
//   P_r := encode(x[r-th part])                 sent to rank r
//   S   := round(sum over ranks q of decode(P_q)), q in order
//   x   := decode(gather of S)                  all_reduce; or x := decode(S), reduce_scatter

#include "runtime/comm/backend.hpp"

namespace orthant::runtime::detail {

/// Whether the backend takes the call as it is, or moves the bytes of its encoded numbers.
[[nodiscard]] bool can_carry(Backend const& backend, Call const& call, Mode mode);

/// Begins a call that the backend can carry. Returns as Backend::begin does.
[[nodiscard]] std::unique_ptr<Exchange> begin_on(Backend& backend, Communicator const& comm, Call const& call,
                                                 Mode mode);

} // namespace orthant::runtime::detail
