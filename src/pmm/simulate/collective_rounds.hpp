#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Collectives as rounds of messages between the members of a group, as libraries implement them, and the rates of messages that share
// links (FairFlows). B bytes, G members, m of them on each node (Thakur, Rabenseifner, Gropp: Optimization of Collective Communication
// Operations in MPICH, 2005; two_level as in NCCL and hierarchical MPI libraries):
//
//   ring          all_gather, reduce_scatter: G-1 rounds of B/G to the next member; all_reduce: both, 2 (G-1)
//   halving       partners at distance G/2, G/4, .. exchange B/2, B/4, ..: log2 G rounds; all_reduce: these, then the reverse.
//                 If G is no power of two, the members beyond the largest power of two first send all to a partner, and receive the
//                 result from it at the end
//   two_level     ring within nodes, then halving of B/m between the members with the same place on their nodes, then ring within nodes
//   pairwise      all_to_all: G-1 rounds; in round k, each member sends to the k-th member after it
//   tree          broadcast, scan: each member that has the buffer sends it on, ceil(log2 G) rounds; barrier: the same, empty messages
//
// A round begins when the last message of the round before has arrived.

#include "pmm/cost/machine.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <string_view>
#include <vector>

namespace orthant::pmm {

struct Message {
  int from = 0; // place in the group
  int to = 0;   // place in the group
  double bytes = 0;
};

enum class Algorithm : std::uint8_t { ring, halving, two_level, pairwise, tree };
[[nodiscard]] std::string_view name_of(Algorithm algorithm);

/// Algorithms that implement the operation, for a group with `members_on_node` members on each of its nodes. At least one.
[[nodiscard]] std::vector<Algorithm> algorithms_for(runtime::Operation operation, int num_ranks,
                                                    int members_on_node);

/// Messages of a call, round by round. Creates the messages of one round at a time.
class CollectiveRounds {
 public:
  CollectiveRounds(PlannedCall const& call, Algorithm algorithm, int members_on_node);

  [[nodiscard]] int size() const { return static_cast<int>(rounds_.size()); }
  [[nodiscard]] std::vector<Message> messages(int round) const;
  /// True if a round has the same messages as the round before it.
  [[nodiscard]] bool repeats(int round) const {
    return round > 0 && rounds_[at(round)] == rounds_[at(round - 1)];
  }

 private:
  /// The group is divided into parts of `block` units with `unit` members each. Member j of unit p of a part sends `bytes` to member j of
  ///   shift          unit (p + distance) mod block
  ///   exchange       unit p xor distance, for p below the largest power of two in block
  ///   fold           unit p - distance, for p >= distance
  ///   unfold, grow   unit p + distance, for p < distance
  struct Round {
    enum class Kind : std::uint8_t { shift, exchange, fold, unfold, grow };
    Kind kind{};
    int distance = 1;
    int unit = 1;
    int block = 1;
    double bytes = 0;
    friend bool operator==(Round const&, Round const&) = default;
  };
  static std::size_t at(int round) { return static_cast<std::size_t>(round); }
  void add_ring(int block, double bytes);
  void add_halving(int unit, double bytes, bool shrinks, bool grows);

  int num_ranks_;
  std::vector<Round> rounds_;
};

/// Flows that share links with max-min fair rates: the rate of a flow can only grow at the expense of one that is not faster
/// (Bertsekas and Gallager, Data Networks, section 6.5.2). The rates are found by filling: all grow together until a link is full or a
/// flow reaches its own limit. These flows keep their rates, and the others grow further.
///
/// When a flow begins or ends, only the rates of flows that share links with it, directly or through others, are computed again.
class FairFlows {
 public:
  /// Capacities of the links by number, in bytes per second.
  explicit FairFlows(std::vector<double> capacities);

  /// Begins a flow of `bytes` through two links, at `most` bytes per second or slower. `owner`: number that end() returns for it.
  void begin(double now, std::array<int, 2> links, double most, double bytes, int owner);
  /// Time at which the next flow ends if no other begins before; infinity if there is no flow.
  [[nodiscard]] double next_end();
  /// Ends the flow that ends at next_end() and returns its owner.
  int end();
  /// True if another flow ends at the same time, up to rounding.
  [[nodiscard]] bool has_other_end();

 private:
  static constexpr auto never = std::numeric_limits<double>::infinity();
  struct Flow {
    std::array<int, 2> links{};
    double most = 0;
    double bytes = 0; // left at `since`
    double since = 0;
    double rate = 0;
    int owner = 0;
    std::uint32_t version = 0; // of the rate; an End with an older version is not valid
  };
  struct End {
    double time;
    int flow;
    std::uint32_t version;
    bool operator>(End const& other) const {
      return time != other.time ? time > other.time : flow > other.flow;
    }
  };

  void mark(int link);
  /// Computes new rates for the flows of the marked links and all flows that share links with them.
  void share_out();
  void collect_neighbors();
  void fill();
  void drop_old_ends();

  std::vector<double> capacities_;
  std::vector<std::vector<int>> flows_of_; // by link
  std::vector<Flow> flows_;
  std::vector<int> free_; // places of flows that have ended
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
  double now_ = 0;

  std::vector<int> links_; // marked links; during share_out() all links of changed flows
  std::vector<char> is_marked_;
  std::vector<int> changed_; // flows that get new rates
  std::vector<char> is_changed_;
  std::vector<double> left_; // remaining capacity by link
  std::vector<int> growing_;
};

} // namespace orthant::pmm
