#pragma once
// SPDX-License-Identifier: Apache-2.0

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <vector>

namespace orthant::pmm {

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
