// SPDX-License-Identifier: Apache-2.0
#include "cli/training/stragglers.hpp"

#include "cli/training/train_settings.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <span>
#include <sstream>
#include <unistd.h>

namespace orthant::cli {
namespace {

constexpr std::size_t most_listed = 8;
/// Smaller shares of an epoch come from messages and clocks rather than from ranks.
constexpr double least_share = 0.05;
/// The first epoch allocates memory and fills caches.
constexpr std::size_t num_warm_up = 1;

/// Of two ranks the one that waits longer, so that the other one is late.
double median_of(std::vector<double> values) {
  auto const middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

/// Lateness of one rank over a run.
struct Lateness {
  int rank = 0;
  double mean_seconds = 0; // per epoch
  double most_seconds = 0; // in one epoch
};

/// waits[e][r]: seconds that rank r spent in collectives of epoch e. Returns the ranks, the latest first.
std::vector<Lateness> lateness_of(std::vector<std::vector<double>> const& waits) {
  std::vector<Lateness> all(waits.empty() ? 0 : waits.front().size());
  for (std::size_t r = 0; r < all.size(); ++r)
    all[r].rank = static_cast<int>(r);
  for (auto const& of_ranks : waits) {
    auto const median = median_of(of_ranks);
    for (std::size_t r = 0; r < all.size(); ++r) {
      auto const late = median - of_ranks[r];
      all[r].mean_seconds += late / static_cast<double>(waits.size());
      all[r].most_seconds = std::max(all[r].most_seconds, late);
    }
  }
  std::ranges::stable_sort(all, std::greater<>(), &Lateness::mean_seconds);
  return all;
}

std::string node_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "an unknown node";
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
      is_on_(is_on && grid.world().size() > 1),
      unit_(std::move(unit)) {
  if (is_on && !is_on_) context.log().warn_once("--stragglers: one rank waits for no other");
  if (!is_on_) return;
  if (grid.group().size() > 1 && grid.group().works_on_streams())
    context.log().warn_once("--stragglers: the device runs the collectives, and the host does not see how "
                            "long a rank waits in them; use a profiler of the device");
  waited_before_ = waited();
}

double Stragglers::waited() const {
  double seconds = 0;
  for (auto const& [group, comm] : grid_.communicators())
    seconds += comm.ledger().total().seconds;
  return seconds;
}

void Stragglers::add_epoch(double seconds) {
  if (!is_on_) return;
  std::array const own{waited() - waited_before_};
  std::vector<double> all(static_cast<std::size_t>(grid_.world().size()));
  runtime::all_gather(runtime::host, grid_.world(), own, all);
  waits_.push_back(std::move(all));
  seconds_ += seconds;
  waited_before_ = waited();
}

void Stragglers::report() {
  if (!is_on_ || waits_.empty()) return;
  auto const mean_epoch = seconds_ / static_cast<double>(waits_.size());
  if (waits_.size() > num_warm_up) waits_.erase(waits_.begin(), waits_.begin() + num_warm_up);
  auto const late = lateness_of(waits_);
  std::string names; // a line per rank
  runtime::gather_text(grid_.world(), node_name() + "\n", [&](std::string_view piece) { names += piece; });
  if (!grid_.world().is_root()) return;
  std::vector<std::string> nodes;
  for (std::istringstream lines(names); std::getline(lines, nodes.emplace_back());)
    ;
  auto ranks = nlohmann::ordered_json::array();
  bool has_any = false;
  for (auto const& each : std::span(late).first(std::min(late.size(), most_listed))) {
    auto const& node = nodes[static_cast<std::size_t>(each.rank)];
    auto const share = mean_epoch > 0 ? each.mean_seconds / mean_epoch : 0;
    auto const is_late = share >= least_share;
    if (is_late)
      say(context_,
          "straggler rank {} on {}: {:.3g} ms per {} later than the median, {:.0f} % of it; at most {:.3g} "
          "ms\n",
          each.rank, node, 1e3 * each.mean_seconds, unit_, 100 * share, 1e3 * each.most_seconds);
    else if (!has_any)
      say(context_, "straggler none; the latest, rank {} on {}, is {:.3g} ms per {} later than the median\n",
          each.rank, node, 1e3 * each.mean_seconds, unit_);
    has_any = true;
    ranks.push_back({{"rank", each.rank},
                     {"node", node},
                     {"late_seconds", each.mean_seconds},
                     {"most_late_seconds", each.most_seconds},
                     {"is_late", is_late}});
  }
  context_.metrics.write("stragglers", {{"unit", unit_}, {"ranks", std::move(ranks)}});
}

} // namespace orthant::cli
