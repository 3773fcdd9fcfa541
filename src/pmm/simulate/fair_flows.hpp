#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Flows that share links. Rates are max-min fair: no flow can have more without one that has no more than it getting less
// (Bertsekas and Gallager, Data Networks, section 6.5.2). They are found by filling: all rates grow together until a
// link is full, or a flow as fast as it may be; its flows keep their rate, and the others grow on.
//
// Rates change when a flow begins or ends, and only those of flows that share links with it, directly or through others.

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <vector>

namespace orthant::pmm {

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
