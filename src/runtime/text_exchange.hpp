#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Text between ranks. Collectives carry numbers, so it travels as 64-bit words, its length first. For what
// happens once a run (configurations, traces), not for data.

#include "runtime/communicator.hpp"

#include <string>

namespace orthant::runtime {

/// text := root's text on every rank. Collective.
void broadcast_text(Communicator const& comm, std::string& text, int root);

void send_text(Communicator const& comm, std::string const& text, int destination, int tag = 0);
[[nodiscard]] std::string receive_text(Communicator const& comm, int source, int tag = 0);

} // namespace orthant::runtime
