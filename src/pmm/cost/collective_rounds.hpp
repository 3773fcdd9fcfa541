#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The messages of a collective, round by round and for all members of a group at once. Algorithms are those of runtime/comm/rounds.hpp; a test
// compares the messages with those lists. Libraries use them, too (Thakur, Rabenseifner, Gropp: Optimization of Collective Communication
// Operations in MPICH, 2005). Others of a library:
//
//   all_to_all         G-1 rounds for G members; in round k, each member sends to the k-th member after it
//   broadcast, scan    each member that has the buffer sends it on, ceil(log2 G) rounds; barrier: the same, empty messages
//
// A round begins when the last message of the round before has arrived.

#include "pmm/cost/machine.hpp"
#include "runtime/comm/rounds.hpp"

#include <cstdint>
#include <functional>
#include <vector>

namespace orthant::pmm {

struct Message {
  int from = 0; // place in the group
  int to = 0;   // place in the group
  double bytes = 0;
};

using runtime::Algorithm;

/// Algorithms that a library may use for the operation, for a group with `members_on_node` members on each of its nodes. At least one.
[[nodiscard]] std::vector<Algorithm> algorithms_for(runtime::Operation operation, int num_ranks,
                                                    int members_on_node);

/// Messages of a call, round by round. Creates the messages of one round at a time. `Algorithm::library` is for operations that have no other.
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
  void add_ring(int block, int distance, double bytes);
  void add_all_to_all(int unit, double bytes);
  void add_recursion(int unit, double bytes, bool shrinks, bool grows);
  void add_doubling(int unit, double bytes);

  int num_ranks_;
  std::vector<Round> rounds_;
};

/// Seconds of a call with this algorithm while all groups with its span make the same call, in a job of `job_ranks` ranks. The sum of
/// `call_seconds` and, for each round, `step_seconds` and the time of the slowest link, whose messages share its bandwidth.
[[nodiscard]] double seconds_alone(Machine const& machine, PlannedCall const& call, Algorithm algorithm,
                                   int job_ranks);
/// Returns the algorithm with the least seconds_alone().
[[nodiscard]] Algorithm fastest_algorithm(Machine const& machine, PlannedCall const& call, int job_ranks);

/// The algorithm that the machine's choice names for this call, as the program asks for it: an all_to_all without a size.
[[nodiscard]] Algorithm chosen_algorithm(Machine const& machine, PlannedCall const& call, int job_ranks);

/// Returns the choice that AlgorithmChoice::predicted needs: of the algorithms that are possible in the group and the library, the one with
/// the fewest predicted seconds, where the library's count as 5 % more. It chooses the library for operations of unknown size (0 bytes) and
/// for groups that do not have the machine's number of ranks on each node. Sizes are rounded down to 16 per doubling, so that a training
/// asks the model few times. Any thread may call the result.
[[nodiscard]] std::function<Algorithm(runtime::Operation, runtime::NodeShape, std::int64_t)>
predicted_algorithms(Machine machine);

} // namespace orthant::pmm
