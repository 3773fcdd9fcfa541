// SPDX-License-Identifier: Apache-2.0
#include "pmm/simulate/collective_rounds.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace orthant::pmm {
namespace {

using runtime::Operation;

int power_of_two_in(int count) {
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(count)));
}

bool is_power_of_two(int count) {
  return power_of_two_in(count) == count;
}

} // namespace

std::string_view name_of(Algorithm algorithm) {
  switch (algorithm) {
  case Algorithm::ring:
    return "ring";
  case Algorithm::halving:
    return "halving";
  case Algorithm::two_level:
    return "two_level";
  case Algorithm::pairwise:
    return "pairwise";
  case Algorithm::tree:
    return "tree";
  }
  return "unknown";
}

std::vector<Algorithm> algorithms_for(Operation operation, int num_ranks, int members_on_node) {
  auto const has_levels =
      members_on_node > 1 && members_on_node < num_ranks && num_ranks % members_on_node == 0;
  std::vector<Algorithm> algorithms;
  switch (operation) {
  case Operation::all_reduce:
    algorithms = {Algorithm::ring, Algorithm::halving};
    break;
  case Operation::all_gather:
  case Operation::reduce_scatter:
    algorithms = {Algorithm::ring};
    if (is_power_of_two(num_ranks)) algorithms.push_back(Algorithm::halving);
    break;
  case Operation::all_to_all:
    return {Algorithm::pairwise};
  default:
    return {Algorithm::tree};
  }
  if (has_levels && (operation == Operation::all_reduce || is_power_of_two(num_ranks / members_on_node)))
    algorithms.push_back(Algorithm::two_level);
  return algorithms;
}

CollectiveRounds::CollectiveRounds(PlannedCall const& call, Algorithm algorithm, int members_on_node)
    : num_ranks_(call.span.num_ranks) {
  auto const bytes = static_cast<double>(call.bytes);
  auto const shrinks = call.operation == Operation::all_reduce || call.operation == Operation::reduce_scatter;
  auto const grows = call.operation == Operation::all_reduce || call.operation == Operation::all_gather;
  switch (algorithm) {
  case Algorithm::ring:
    if (shrinks) add_ring(num_ranks_, bytes);
    if (grows) add_ring(num_ranks_, bytes);
    return;
  case Algorithm::halving:
    add_halving(1, bytes, shrinks, grows);
    return;
  case Algorithm::two_level:
    if (shrinks) add_ring(members_on_node, bytes);
    add_halving(members_on_node, bytes / members_on_node, shrinks, grows);
    if (grows) add_ring(members_on_node, bytes);
    return;
  case Algorithm::pairwise: // call.bytes are the bytes to all other members together
    for (int distance = 1; distance < num_ranks_; ++distance)
      rounds_.push_back({Round::Kind::shift, distance, 1, num_ranks_, bytes / (num_ranks_ - 1)});
    return;
  case Algorithm::tree:
    for (int distance = 1; distance < num_ranks_; distance *= 2)
      rounds_.push_back({Round::Kind::grow, distance, 1, num_ranks_, bytes});
    return;
  }
}

void CollectiveRounds::add_ring(int block, double bytes) {
  rounds_.insert(rounds_.end(), at(block - 1), {Round::Kind::shift, 1, 1, block, bytes / block});
}

void CollectiveRounds::add_halving(int unit, double bytes, bool shrinks, bool grows) {
  auto const block = num_ranks_ / unit;
  auto const power = power_of_two_in(block);
  auto const add = [&](Round::Kind kind, int distance, double sent) {
    rounds_.push_back({kind, distance, unit, block, sent});
  };
  if (power < block) add(Round::Kind::fold, power, bytes);
  for (int distance = power / 2; shrinks && distance > 0; distance /= 2)
    add(Round::Kind::exchange, distance, bytes * distance / power);
  for (int distance = 1; grows && distance < power; distance *= 2)
    add(Round::Kind::exchange, distance, bytes * distance / power);
  if (power < block) add(Round::Kind::unfold, power, bytes);
}

std::vector<Message> CollectiveRounds::messages(int round) const {
  auto const& [kind, distance, unit, block, bytes] = rounds_[at(round)];
  std::vector<Message> sent;
  for (int from = 0; from < num_ranks_; ++from) {
    auto const p = from / unit % block;
    auto to = p; // stays p if the member sends nothing
    switch (kind) {
    case Round::Kind::shift:
      to = (p + distance) % block;
      break;
    case Round::Kind::exchange:
      if (p < power_of_two_in(block)) to = p ^ distance;
      break;
    case Round::Kind::fold:
      if (p >= distance) to = p - distance;
      break;
    case Round::Kind::unfold:
    case Round::Kind::grow:
      if (p < distance && p + distance < block) to = p + distance;
      break;
    }
    if (to != p) sent.push_back({from, from + (to - p) * unit, bytes});
  }
  return sent;
}

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
