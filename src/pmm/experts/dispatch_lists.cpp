// SPDX-License-Identifier: Apache-2.0
#include "pmm/experts/dispatch_lists.hpp"

#include "runtime/comm/collectives.hpp"
#include "runtime/error.hpp"
#include "runtime/numbers/counts.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace orthant::pmm {

using runtime::sum_of;

DispatchLists::DispatchLists(ProcessGrid const& grid, DispatchAxes const& axes, std::int64_t num_groups)
    : grid_(&grid),
      axes_(axes),
      num_groups_(num_groups) {
  auto const num_owners = grid.size(axes.owners);
  ORTHANT_REQUIRE(num_groups % num_owners == 0, num_groups, " groups cannot be dealt to ", num_owners,
                  " ranks evenly");
  auto const per_owner = num_groups / num_owners;
  auto const first = grid.coordinate(axes.owners) * per_owner;
  own_groups_ = {first, first + per_owner};
}

void DispatchLists::set(std::span<std::int32_t const> groups, std::int64_t num_choices) {
  auto const& owners = grid_->over(axes_.owners);
  auto const& copies = grid_->over(axes_.copies);
  sizes_ = {.num_rows = std::ssize(groups) / num_choices, .num_choices = num_choices};
  own_rows_ = runtime::balanced_range(sizes_.num_rows, copies.size(), copies.rank());
  sizes_.num_own_rows = own_rows_.size();
  list_sent(groups);

  auto const per_owner = own_groups_.size();
  std::vector<std::int64_t> received(counts_of_groups_.size()); // [owners x own groups]
  runtime::all_to_all(runtime::host, owners, counts_of_groups_, received);
  std::vector<std::int64_t> counts(received.size() * static_cast<std::size_t>(copies.size()));
  runtime::all_gather(runtime::host, copies, received, counts);

  send_counts_.clear();
  receive_counts_.clear();
  gather_counts_.clear();
  for (int rank = 0; rank < owners.size(); ++rank) {
    auto const begin = static_cast<std::size_t>(rank * per_owner);
    auto const length = static_cast<std::size_t>(per_owner);
    send_counts_.push_back(sum_of(std::span(counts_of_groups_).subspan(begin, length)));
    receive_counts_.push_back(sum_of(std::span(received).subspan(begin, length)));
  }
  for (int rank = 0; rank < copies.size(); ++rank)
    gather_counts_.push_back(
        sum_of(std::span(counts).subspan(static_cast<std::size_t>(rank) * received.size(), received.size())));
  auto const me = static_cast<std::size_t>(owners.rank());
  sizes_.num_sent = sum_of(send_counts_);
  sizes_.num_sent_away = sizes_.num_sent - send_counts_[me];
  sizes_.num_received = sum_of(receive_counts_);
  sizes_.num_received_away = sizes_.num_received - receive_counts_[me];
  sizes_.num_arrived = sum_of(gather_counts_);
  list_arrivals(counts);
}

/// Counting sort of the choices of own rows by group.
void DispatchLists::list_sent(std::span<std::int32_t const> groups) {
  auto const num_choices = sizes_.num_choices;
  auto const own = Range{own_rows_.begin * num_choices, own_rows_.end * num_choices};
  auto const group_at = [&](std::int64_t choice) {
    return static_cast<std::size_t>(groups[static_cast<std::size_t>(choice)]);
  };
  auto const is_sent = [&](std::int64_t choice) { return groups[static_cast<std::size_t>(choice)] >= 0; };
  counts_of_groups_.assign(static_cast<std::size_t>(num_groups_), 0);
  for (auto choice = own.begin; choice < own.end; ++choice)
    if (is_sent(choice)) ++counts_of_groups_.at(group_at(choice));
  std::vector<std::int64_t> next(counts_of_groups_.size());
  std::exclusive_scan(counts_of_groups_.begin(), counts_of_groups_.end(), next.begin(), std::int64_t{0});
  sent_choices_.resize(static_cast<std::size_t>(sum_of(counts_of_groups_)));
  places_.assign(static_cast<std::size_t>(own.size()), -1);
  for (auto choice = own.begin; choice < own.end; ++choice) {
    if (!is_sent(choice)) continue;
    auto const place = next[group_at(choice)]++;
    sent_choices_[static_cast<std::size_t>(place)] = choice;
    places_[static_cast<std::size_t>(choice - own.begin)] = place;
  }
}

/// Lists the places of the rows of Y. Rows arrive in the order of `counts` [copies x owners x own groups]; Y has the order
/// own groups, owners, copies.
void DispatchLists::list_arrivals(std::span<std::int64_t const> counts) {
  auto const num_own = static_cast<std::size_t>(own_groups_.size());
  auto const num_owners = receive_counts_.size();
  std::vector<std::int64_t> begins(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), begins.begin(), std::int64_t{0});
  arrivals_.clear();
  rows_of_groups_.clear();
  for (std::size_t group = 0; group < num_own; ++group) {
    auto const first = std::ssize(arrivals_);
    for (std::size_t owner = 0; owner < num_owners; ++owner)
      for (std::size_t copy = 0; copy < gather_counts_.size(); ++copy) {
        auto const place = (copy * num_owners + owner) * num_own + group;
        for (std::int64_t i = 0; i < counts[place]; ++i)
          arrivals_.push_back(begins[place] + i);
      }
    rows_of_groups_.push_back({first, std::ssize(arrivals_)});
  }
}

DispatchSizes largest_of(DispatchSizes const& a, DispatchSizes const& b) {
  return {.num_rows = std::max(a.num_rows, b.num_rows),
          .num_own_rows = std::max(a.num_own_rows, b.num_own_rows),
          .num_choices = std::max(a.num_choices, b.num_choices),
          .num_sent = std::max(a.num_sent, b.num_sent),
          .num_sent_away = std::max(a.num_sent_away, b.num_sent_away),
          .num_received = std::max(a.num_received, b.num_received),
          .num_received_away = std::max(a.num_received_away, b.num_received_away),
          .num_arrived = std::max(a.num_arrived, b.num_arrived)};
}

bool travels(GridShape const& shape, DispatchAxes const& axes) {
  return shape.size(axes.owners) > 1 || shape.size(axes.copies) > 1;
}

void plan_dispatch_lists(StepPlan& step, DispatchAxes const& axes, std::int64_t num_groups) {
  auto const num_owners = std::int64_t{step.shape().size(axes.owners)};
  constexpr std::int64_t count_bytes = sizeof(std::int64_t);
  step.add_call(runtime::Operation::all_to_all, axes.owners,
                num_groups / num_owners * (num_owners - 1) * count_bytes, num_groups * count_bytes);
  step.add_call(runtime::Operation::all_gather, axes.copies,
                num_groups * step.shape().size(axes.copies) * count_bytes);
}

DispatchSizes balanced_sizes(GridShape const& shape, Coordinates const& coordinates, DispatchAxes const& axes,
                             std::int64_t num_rows, std::int64_t num_choices) {
  auto const num_owners = shape.size(axes.owners);
  DispatchSizes sizes{.num_rows = num_rows, .num_choices = num_choices};
  sizes.num_own_rows =
      runtime::balanced_range(num_rows, shape.size(axes.copies), rank_within(shape, coordinates, axes.copies))
          .size();
  sizes.num_sent = sizes.num_received = sizes.num_own_rows * num_choices;
  sizes.num_sent_away = sizes.num_received_away = sizes.num_sent - sizes.num_sent / num_owners;
  sizes.num_arrived = num_rows * num_choices;
  return sizes;
}

DispatchSizes fullest_sizes(DispatchSizes balanced, int num_owners, double imbalance) {
  ORTHANT_REQUIRE(imbalance >= 1 && imbalance <= num_owners, "an imbalance of ", imbalance, " between ",
                  num_owners, " ranks");
  auto const times = [&](std::int64_t count) {
    return static_cast<std::int64_t>(std::ceil(static_cast<double>(count) * imbalance));
  };
  auto const to_itself = times(balanced.num_sent / num_owners);
  balanced.num_sent_away = balanced.num_sent - to_itself;
  balanced.num_received = times(balanced.num_received);
  balanced.num_received_away = balanced.num_received - to_itself;
  balanced.num_arrived = times(balanced.num_arrived);
  return balanced;
}

} // namespace orthant::pmm
