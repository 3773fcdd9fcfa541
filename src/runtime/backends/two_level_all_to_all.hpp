#pragma once
// SPDX-License-Identifier: Apache-2.0
#include "runtime/backends/phased_exchange.hpp"
#include "runtime/comm/rounds.hpp"
#include "runtime/numbers/counts.hpp"

#include <cstdint>
#include <mpi.h>
#include <span>
#include <vector>

namespace orthant::runtime::detail {

/// all_to_all on N nodes of M ranks: what goes to the ranks with the same place on their nodes is collected by the rank with this place on
/// the own node, and sent from there to each node in one message. A rank sends N + M - 2 messages instead of N M - 1, and with counts M - 1
/// more, which tell the lengths.
class TwoLevelAllToAll final : public PhasedExchange {
 public:
  TwoLevelAllToAll(Communicator const& comm, MPI_Comm messages, int tag, Call const& call, NodeShape shape)
      : PhasedExchange(comm, messages, tag, call),
        shape_(shape),
        node_(comm.rank() / shape.per_node),
        place_(comm.rank() % shape.per_node) {}

 private:
  enum class Phase { counting, collecting, sending, over };
  enum Slot : std::size_t { outgoing, collected, between };
  using Lengths = std::vector<std::int64_t>; // bytes

  void begin() override;
  bool advance(bool waits) override;
  void collect();
  void send_to_nodes();
  void put_own_node();
  [[nodiscard]] std::size_t rank_at(int node, int place) const {
    return index(node * shape_.per_node + place);
  }
  [[nodiscard]] int on_own_node(int place) const { return static_cast<int>(rank_at(node_, place)); }
  [[nodiscard]] Lengths lengths(std::span<std::int64_t const> counts, std::int64_t total) const;

  NodeShape shape_;
  int node_, place_;
  Phase phase_ = Phase::counting;
  Lengths sent_, received_; // per rank
  Lengths counts_out_,
      counts_; // per place and node: from this rank to the place's ranks; from the place to this rank's
};

} // namespace orthant::runtime::detail
