#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Collectives as rounds of messages between the members of a group, as libraries carry them out. B bytes, G members, of
// which m share each node (Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH, 2005;
// two_level: as NCCL and hierarchical MPI libraries do).
//
//   ring          all_gather, reduce_scatter: G-1 rounds of B/G to the next member; all_reduce: both, 2 (G-1)
//   halving       partners at distance G/2, G/4, .. exchange B/2, B/4, ..: log2 G rounds; all_reduce: there and back.
//                 If G is no power of two, members beyond the largest one send all to a partner first, and get all back
//   two_level     the same within nodes (ring), with B/m each between members of equal place (halving), within nodes
//   pairwise      all_to_all: G-1 rounds, to the member k places on
//   tree          broadcast and scan: each member that has the buffer sends it on, ceil(log2 G) rounds; barrier: nothing in as many
//
// A round ends with its last message; then the next begins.
//
// Flows that share links. Rates are max-min fair: no flow can have more without one that has no more than it getting less
// (Bertsekas and Gallager, Data Networks, section 6.5.2). They are found by filling: all rates grow together until a
// link is full, or a flow as fast as it may be; its flows keep their rate, and the others grow on.
//
// Rates change when a flow begins or ends, and only those of flows that share links with it, directly or through others.

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
  int from = 0; // places in the group
  int to = 0;
  double bytes = 0;
};

enum class Algorithm : std::uint8_t { ring, halving, two_level, pairwise, tree };
[[nodiscard]] std::string_view name_of(Algorithm algorithm);

/// Those that may carry it out, for a group with `members_on_node` members on each of its nodes. At least one.
[[nodiscard]] std::vector<Algorithm> algorithms_for(runtime::Operation operation, int num_ranks,
                                                    int members_on_node);

/// The messages of a call, round after round. Rounds may be equal, and are made one at a time.
class CollectiveRounds {
 public:
  CollectiveRounds(PlannedCall const& call, Algorithm algorithm, int members_on_node);

  [[nodiscard]] int size() const { return static_cast<int>(rounds_.size()); }
  [[nodiscard]] std::vector<Message> messages(int round) const;
  /// Whether a round has the messages of the one before.
  [[nodiscard]] bool repeats(int round) const {
    return round > 0 && rounds_[at(round)] == rounds_[at(round - 1)];
  }

 private:
  /// Members lie in parts of `block` units of `unit` members each. Member j of unit p of a part sends `bytes` to member j of
  ///   shift      unit (p + distance) mod block
  ///   exchange   unit p xor distance, for p below the largest power of two in block
  ///   fold       unit p - distance, for p from distance on; unfold: from there to p
  ///   grow       unit p + distance, for p below distance
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

class FairFlows {
 public:
  /// Links by number, in bytes per second.
  explicit FairFlows(std::vector<double> capacities);

  /// A flow through two links begins, which is never faster than `most` bytes per second. `owner`: what end() returns for it.
  void begin(double now, std::array<int, 2> links, double most, double bytes, int owner);
  /// When the first flow ends if none begins before; infinity if there is none.
  [[nodiscard]] double next_end();
  /// Ends that flow, at next_end(), and returns its owner.
  int end();
  /// Whether another flow ends at the same time, to the last bits.
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
    std::uint32_t version = 0; // of its rate: older ends do not count
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
  /// New rates for the flows of the marked links and all that share links with them.
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

  std::vector<int> links_; // marked, then all that change
  std::vector<char> is_marked_;
  std::vector<int> changed_; // flows
  std::vector<char> is_changed_;
  std::vector<double> left_; // by link
  std::vector<int> growing_;
};

} // namespace orthant::pmm
