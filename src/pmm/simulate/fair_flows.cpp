// SPDX-License-Identifier: Apache-2.0
#include "pmm/simulate/fair_flows.hpp"

#include <algorithm>
#include <utility>

namespace orthant::pmm {

FairFlows::FairFlows(std::vector<double> capacities)
    : capacities_(std::move(capacities)),
      flows_of_(capacities_.size()),
      is_marked_(capacities_.size(), 0),
      left_(capacities_.size(), 0),
      growing_(capacities_.size(), 0) {}

void FairFlows::mark(int link) {
  auto& marked = is_marked_[static_cast<std::size_t>(link)];
  if (std::exchange(marked, 1) == 0) links_.push_back(link);
}

void FairFlows::begin(double now, std::array<int, 2> links, double most, double bytes, int owner) {
  if (now > now_) share_out();
  now_ = now;
  if (free_.empty()) {
    free_.push_back(static_cast<int>(flows_.size()));
    flows_.emplace_back();
    is_changed_.push_back(0);
  }
  auto const place = free_.back();
  free_.pop_back();
  auto& flow = flows_[static_cast<std::size_t>(place)];
  flow = {links, most, bytes, now, 0, owner, flow.version + 1};
  for (auto const link : links) {
    flows_of_[static_cast<std::size_t>(link)].push_back(place);
    mark(link);
  }
}

double FairFlows::next_end() {
  share_out();
  drop_old_ends();
  return ends_.empty() ? never : ends_.top().time;
}

int FairFlows::end() {
  auto const [time, place, version] = ends_.top();
  ends_.pop();
  now_ = std::max(now_, time);
  auto& flow = flows_[static_cast<std::size_t>(place)];
  ++flow.version;
  for (auto const link : flow.links) {
    auto& flows = flows_of_[static_cast<std::size_t>(link)];
    std::iter_swap(std::ranges::find(flows, place), flows.end() - 1);
    flows.pop_back();
    mark(link);
  }
  free_.push_back(place);
  drop_old_ends();
  return flow.owner;
}

bool FairFlows::has_other_end() {
  constexpr auto last_bits = 1e-14;
  drop_old_ends();
  return !ends_.empty() && ends_.top().time <= now_ * (1 + last_bits);
}

void FairFlows::drop_old_ends() {
  while (!ends_.empty() && ends_.top().version != flows_[static_cast<std::size_t>(ends_.top().flow)].version)
    ends_.pop();
}

void FairFlows::share_out() {
  if (links_.empty()) return;
  collect_neighbors();
  for (auto const place : changed_) {
    auto& flow = flows_[static_cast<std::size_t>(place)];
    flow.bytes = std::max(0.0, flow.bytes - flow.rate * (now_ - flow.since));
    flow.since = now_;
  }
  fill();
  for (auto const place : changed_) {
    auto& flow = flows_[static_cast<std::size_t>(place)];
    ends_.push({now_ + flow.bytes / flow.rate, place, ++flow.version});
    is_changed_[static_cast<std::size_t>(place)] = 0;
  }
  for (auto const link : links_)
    is_marked_[static_cast<std::size_t>(link)] = 0;
  links_.clear();
  changed_.clear();
}

void FairFlows::collect_neighbors() {
  for (std::size_t i = 0; i < links_.size(); ++i) // mark() appends to links_
    for (auto const place : flows_of_[static_cast<std::size_t>(links_[i])]) {
      if (std::exchange(is_changed_[static_cast<std::size_t>(place)], 1) != 0) continue;
      changed_.push_back(place);
      for (auto const link : flows_[static_cast<std::size_t>(place)].links)
        mark(link);
    }
}

void FairFlows::fill() {
  for (auto const link : links_) {
    auto const l = static_cast<std::size_t>(link);
    left_[l] = capacities_[l];
    growing_[l] = static_cast<int>(flows_of_[l].size());
  }
  auto const share_of = [&](int link) {
    auto const l = static_cast<std::size_t>(link);
    return growing_[l] == 0 ? never : left_[l] / growing_[l];
  };
  auto open = changed_;
  while (!open.empty()) {
    auto level = never;
    for (auto const link : links_)
      level = std::min(level, share_of(link));
    for (auto const place : open)
      level = std::min(level, flows_[static_cast<std::size_t>(place)].most);
    // Treats shares that differ only by rounding as equal.
    auto const most = level * (1 + 1e-9);
    auto const stops = [&](int place) {
      auto const& flow = flows_[static_cast<std::size_t>(place)];
      return flow.most <= most || share_of(flow.links[0]) <= most || share_of(flow.links[1]) <= most;
    };
    auto const kept =
        std::stable_partition(open.begin(), open.end(), [&](int place) { return !stops(place); });
    for (auto stopped = kept; stopped != open.end(); ++stopped) {
      auto& flow = flows_[static_cast<std::size_t>(*stopped)];
      flow.rate = level;
      for (auto const link : flow.links) {
        left_[static_cast<std::size_t>(link)] -= level;
        --growing_[static_cast<std::size_t>(link)];
      }
    }
    open.erase(kept, open.end());
  }
}

} // namespace orthant::pmm
