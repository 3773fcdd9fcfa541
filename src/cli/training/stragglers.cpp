// SPDX-License-Identifier: Apache-2.0
#include "cli/training/stragglers.hpp"

#include "cli/training/train_settings.hpp"
#include "models/training/training_run.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/machine/binding.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <span>

namespace orthant::cli {
namespace {

constexpr std::size_t most_listed = 8;
/// Smaller shares of an epoch come from messages and clocks rather than from ranks.
constexpr double least_share = 0.05;

/// The same on all ranks. The first question to a communicator sets up its backend together with its other ranks, so every rank asks all of
/// its communicators, in the same order.
bool a_device_communicates(pmm::ProcessGrid const& grid) {
  int num_on_streams = 0;
  for (auto const& [axes, comm] : grid.communicators())
    num_on_streams += comm.size() > 1 && comm.works_on_streams() ? 1 : 0;
  return runtime::all_reduced(grid.world(), num_on_streams, runtime::Reduction::max) > 0;
}

} // namespace

void add_stragglers_option(Command& command, bool& stragglers, std::string const& unit) {
  command.flag("--stragglers", stragglers,
               fmt::format("At the end, name the ranks that make others wait, with their nodes and the time "
                           "per {} that they are later than the median rank",
                           unit));
}

Stragglers::Stragglers(Context& context, pmm::ProcessGrid const& grid, bool is_on, std::string unit)
    : context_(context),
      grid_(grid),
      is_on_(is_on && grid.world().size() > 1 && !a_device_communicates(grid)),
      unit_(std::move(unit)),
      late_(static_cast<std::size_t>(grid.world().size())) {
  for (std::size_t r = 0; r < late_.size(); ++r)
    late_[r].rank = static_cast<int>(r);
  if (!is_on || is_on_) return;
  if (grid.world().size() == 1)
    context.log().warn_once("--stragglers: one rank waits for no other");
  else
    context.log().warn_once("--stragglers: the device runs the collectives, and the host does not see how "
                            "long a rank waits in them; use a profiler of the device");
}

void Stragglers::add(runtime::EpochRecord const& epoch) {
  if (!is_on_) return;
  if (num_epochs_ == 1 && !has_warmed_up_) {
    has_warmed_up_ = true;
    num_epochs_ = 0;
    seconds_ = 0;
    for (auto& late : late_)
      late.sum_seconds = late.most_seconds = 0;
  }
  std::array const own{epoch.call_seconds};
  std::vector<double> waits(late_.size());
  runtime::all_gather(runtime::host, grid_.world(), own, waits);
  auto const median = models::median(waits);
  for (std::size_t r = 0; r < late_.size(); ++r) {
    late_[r].sum_seconds += median - waits[r];
    late_[r].most_seconds = std::max(late_[r].most_seconds, median - waits[r]);
  }
  seconds_ += epoch.seconds;
  ++num_epochs_;
}

void Stragglers::report() {
  if (!is_on_ || num_epochs_ == 0) return;
  auto const bindings = runtime::gather_bindings(grid_.world(), context_.environment.binding());
  if (!grid_.world().is_root()) return;
  std::ranges::stable_sort(late_, std::greater<>(), &Lateness::sum_seconds);
  auto ranks = nlohmann::ordered_json::array();
  bool has_any = false;
  for (auto const& each : std::span(late_).first(std::min(late_.size(), most_listed))) {
    std::string const node = bindings[static_cast<std::size_t>(each.rank)].host.data();
    auto const mean_seconds = each.sum_seconds / static_cast<double>(num_epochs_);
    auto const share = seconds_ > 0 ? each.sum_seconds / seconds_ : 0;
    auto const is_late = share >= least_share;
    if (is_late)
      say(context_,
          "straggler rank {} on {}: {:.3g} ms per {} later than the median, {:.0f} % of it; at most {:.3g} "
          "ms\n",
          each.rank, node, 1e3 * mean_seconds, unit_, 100 * share, 1e3 * each.most_seconds);
    else if (!has_any)
      say(context_, "straggler none; the latest, rank {} on {}, is {:.3g} ms per {} later than the median\n",
          each.rank, node, 1e3 * mean_seconds, unit_);
    has_any = true;
    ranks.push_back({{"rank", each.rank},
                     {"node", node},
                     {"late_seconds", mean_seconds},
                     {"most_late_seconds", each.most_seconds},
                     {"is_late", is_late}});
  }
  context_.metrics.write("stragglers", {{"unit", unit_}, {"ranks", std::move(ranks)}});
}

} // namespace orthant::cli
