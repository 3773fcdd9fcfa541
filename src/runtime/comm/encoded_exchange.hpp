#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Calls whose numbers travel encoded (numbers/formats.hpp), on any backend that moves bytes. Calls other than sums are encoded, moved and
// decoded. A sum has four parts: an exchange in which every rank receives all addends of its own part; their sum in fp32 in rank order; one
// rounding; and for all_reduce a gather of the parts. All ranks, including the owner of a part, get the same bits.
//
//   P_r := encode(x[r-th part])                 sent to rank r
//   S   := round(sum over ranks q of decode(P_q)), q in order
//   x   := decode(gather of S)                  all_reduce; or x := decode(S), reduce_scatter

#include "runtime/comm/backend.hpp"

namespace orthant::runtime::detail {

/// True if the backend accepts the call, or can move the bytes of its encoded numbers.
[[nodiscard]] bool can_carry(Backend const& backend, Call const& call, Mode mode);

/// Begins a call for which can_carry() is true. Returns the exchange to wait for, or null if there is nothing to wait for.
[[nodiscard]] std::unique_ptr<Exchange> begin_on(Backend& backend, Communicator const& comm, Call const& call,
                                                 Mode mode);

} // namespace orthant::runtime::detail
