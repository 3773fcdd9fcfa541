// SPDX-License-Identifier: Apache-2.0
#include "models/training/training_run.hpp"

#include "runtime/comm/collectives.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/ranges.h>
#include <tuple>
#include <utility>

namespace orthant::models {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  auto const middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

namespace {

char const* text_of_not_finite(double loss) {
  return std::isnan(loss) ? "nan" : "infinite";
}

void add_scores(Scores const& scores, runtime::EpochRecord& record) {
  for (std::size_t s = 0; s < scores.size(); ++s) {
    if (scores[s].num_counted == 0) continue;
    for (auto const& [measure, value] : named_measures(scores[s]))
      record.scores.emplace_back(fmt::format("{}_{}", split_names[s], measure), value);
    if (s != static_cast<std::size_t>(graph::Split::train))
      record.scores.emplace_back(fmt::format("{}_loss", split_names[s]), scores[s].loss);
  }
}

} // namespace

Monitor parse_monitor(std::string_view word) {
  if (word == "accuracy" || word == "r2") return Monitor::accuracy;
  if (word == "loss") return Monitor::loss;
  if (word == "both") return Monitor::both;
  if (word == "mae") return Monitor::absolute_error;
  runtime::throw_user("--monitor is accuracy, loss, both, r2 or mae, not '{}'", word);
}

void TrainProgress::add_evaluation(Monitor monitor, std::int64_t after_epoch, Scores const& scores) {
  auto const& valid = scores[static_cast<std::size_t>(graph::Split::valid)];
  auto const merit_of = [&](SplitScore const& score) {
    return monitor == Monitor::absolute_error ? -score.mae : score.merit();
  };
  auto const merit = merit_of(valid);
  auto const is_both = monitor == Monitor::both;
  auto const raises = [&](double most) { return is_both ? merit >= most : merit > most; };
  auto const lowers = [&](double least) { return is_both ? valid.loss <= least : valid.loss < least; };
  auto const is_better = [&](double most, double least) {
    return (monitor == Monitor::loss || raises(most)) &&
           ((monitor != Monitor::loss && !is_both) || lowers(least));
  };
  auto is_best = true;
  auto has_gain = true;
  if (records) {
    is_best = is_better(records->merit, records->loss);
    has_gain = is_both ? raises(records->merit) || lowers(records->loss) : is_best;
    records = {std::max(records->merit, merit), std::min(records->loss, valid.loss)};
  } else {
    records = {merit, valid.loss};
  }
  if (best.epoch > 0) { // the best evaluation may be the one at the end, which the records do not include
    auto const& best_valid = best.scores[static_cast<std::size_t>(graph::Split::valid)];
    is_best = is_best && is_better(merit_of(best_valid), best_valid.loss);
  }
  last = scores;
  if (is_best) best = {after_epoch, scores};
  // If there is no validation part, no evaluation counts towards --patience.
  num_without_gain = has_gain || valid.num_counted == 0 ? 0 : num_without_gain + 1;
}

std::vector<std::pair<std::string, double>> named_measures(SplitScore const& score) {
  if (score.is_of_numbers) return {{"r2", score.r2}, {"mae", score.mae}};
  std::vector<std::pair<std::string, double>> named{{"acc", score.accuracy()}};
  if (!score.ranking) {
    named.emplace_back("macro_f1", score.macro_f1);
    named.emplace_back("micro_f1", score.micro_f1);
  }
  if (score.roc_auc) named.emplace_back("roc_auc", *score.roc_auc);
  if (score.ranking) {
    named.emplace_back("mrr", score.ranking->mrr);
    for (std::size_t i = 0; i < hits_at.size(); ++i)
      named.emplace_back(fmt::format("hits_at_{}", hits_at[i]), score.ranking->hits[i]);
  }
  return named;
}

TrainSettings with_num_steps(TrainSettings settings, std::int64_t num_steps) {
  auto& schedule = settings.optimizer.schedule;
  schedule.num_steps = num_steps;
  if (schedule.num_warmup_steps > 0 && schedule.num_warmup_steps >= num_steps)
    runtime::throw_user(
        "--warmup-steps {} of a training of {} steps; leave at least one step after the warm-up",
        schedule.num_warmup_steps, num_steps);
  return settings;
}

namespace {

double seconds_in_calls(pmm::ProcessGrid const& grid) {
  double seconds = 0;
  for (auto const& [group, comm] : grid.communicators())
    seconds += comm.ledger().total().seconds;
  return seconds;
}

} // namespace

CommunicatedBytes communicated_bytes(pmm::ProcessGrid const& grid) {
  CommunicatedBytes bytes;
  for (auto const& [group, comm] : grid.communicators()) {
    auto const total = comm.ledger().total();
    for (auto const axis : pmm::nested_axes)
      if (group.axes == pmm::AxisSet{axis}) bytes.by_axis[static_cast<std::size_t>(axis)] += total.bytes;
    constexpr pmm::AxisSet data{pmm::Axis::data};
    if (group.axes != data && group.axes.contains(data) && !group.axes.intersects(pmm::group_axes))
      bytes.by_axis[static_cast<std::size_t>(pmm::Axis::data)] += total.bytes;
    bytes.counted += total.bytes;
    bytes.sent += total.sent_bytes;
    bytes.loss += comm.ledger().loss();
  }
  return bytes;
}

CommunicatedBytes sum_of_difference(pmm::ProcessGrid const& grid, CommunicatedBytes const& before,
                                    CommunicatedBytes const& after) {
  std::vector sums{after.counted - before.counted, after.sent - before.sent};
  std::ranges::transform(after.by_axis, before.by_axis, std::back_inserter(sums), std::minus<>());
  sums.push_back(after.loss.sent > before.loss.sent ? 1 : 0); // ranks with encoded messages
  runtime::all_reduce(runtime::host, grid.world(), sums);
  CommunicatedBytes sum{.counted = sums[0], .sent = sums[1], .loss = {}};
  std::copy_n(sums.begin() + 2, sum.by_axis.size(), sum.by_axis.begin());
  if (sums.back() > 0) {
    std::array losses{after.loss.lost - before.loss.lost, after.loss.sent - before.loss.sent};
    runtime::all_reduce(runtime::host, grid.world(), losses);
    sum.loss = {losses[0], losses[1]};
  }
  return sum;
}

TrainResult run_epochs(pmm::ProcessGrid const& grid, TrainSettings const& settings, EpochWork const& work,
                       std::function<void(runtime::EpochRecord const&)> const& on_epoch,
                       TrainProgress const& start, StopRequest const& should_stop) {
  ORTHANT_REQUIRE(start.epoch >= 1 && start.step >= 0, "a start at epoch ", start.epoch, ", step ",
                  start.step);
  TrainResult result;
  auto& progress = result.progress = start;
  std::vector<double> seconds;
  std::int64_t num_alike = 0; // evaluations in a row that predict a single class
  auto const has_lost_patience = [&] {
    return settings.patience > 0 && progress.num_without_gain >= settings.patience;
  };
  auto const& schedule = settings.optimizer.schedule;
  auto const has_plateaus = schedule.decay == RateDecay::plateau;
  if (has_plateaus) work.set_rate_reduction(progress.plateau.reduction);
  while (progress.epoch <= settings.num_epochs && !has_lost_patience()) {
    auto const epoch = progress.epoch;
    auto const before = communicated_bytes(grid);
    auto const seconds_before = seconds_in_calls(grid);
    auto trained = work.train(progress, should_stop);
    if (!trained) break;
    auto& record = *trained;

    record.call_seconds = seconds_in_calls(grid) - seconds_before;
    auto const bytes = sum_of_difference(grid, before, communicated_bytes(grid));
    record.comm_bytes = bytes.counted;
    record.sent_bytes = bytes.sent;
    if (bytes.loss.sent > 0) record.wire_error = std::sqrt(bytes.loss.lost / bytes.loss.sent);
    result.epoch_bytes = bytes;
    record.seconds = runtime::all_reduced(grid.world(), record.seconds, runtime::Reduction::max);
    seconds.push_back(record.seconds);
    progress.last_loss = record.loss;

    auto const is_due =
        settings.eval_every > 0 && (epoch % settings.eval_every == 0 || epoch == settings.num_epochs);
    if (is_due) {
      auto const scores = work.evaluate();
      if (auto const sign = sign_of_divergence(scores); !sign.empty())
        throw_diverged(fmt::format("after the update of {} {} {}", settings.unit, epoch, sign));
      // Warns at the second evaluation in a row: the first ones of a sound training may predict a single class.
      num_alike = are_all_alike(scores) ? num_alike + 1 : 0;
      if (num_alike == 2 || (num_alike == 1 && epoch == settings.num_epochs))
        grid.world().instruments().log.warn_once("{} {}: {}", settings.unit, epoch,
                                                 sign_of_collapse(scores, work.dead_layers()));
      add_scores(scores, record);
      auto const counted = std::pair(progress.records, progress.num_without_gain);
      progress.add_evaluation(settings.monitor, epoch, scores);
      // An evaluation that takes place only because training ends here is not counted, because a longer training would not have it.
      if (epoch % settings.eval_every != 0) {
        std::tie(progress.records, progress.num_without_gain) = counted;
      } else if (has_plateaus) {
        progress.plateau.add(schedule, scores[static_cast<std::size_t>(graph::Split::valid)].loss);
        work.set_rate_reduction(progress.plateau.reduction);
      }
    }
    on_epoch(record);
    progress.begin_epoch(epoch + 1);
    if (should_stop && should_stop(progress)) break;
  }
  result.has_stopped_early = progress.epoch <= settings.num_epochs && has_lost_patience();
  result.is_complete = progress.epoch > settings.num_epochs || result.has_stopped_early;
  work.require_bounded_parameters();
  if (seconds.size() > 1) seconds.erase(seconds.begin());
  result.median_epoch_seconds = median(std::move(seconds));
  return result;
}

void throw_loss_not_finite(std::string const& what, double loss, std::int64_t layer, bool has_decoder) {
  auto const where = layer < 0 ? fmt::format("all layers' outputs are finite{}",
                                             has_decoder ? "; the decoder's scores are not" : "")
                               : fmt::format("the output of layer {} is the first that is not finite", layer);
  throw runtime::Error(fmt::format("{}: the loss is {}; {} (a smaller --lr or --clip-norm may help)", what,
                                   text_of_not_finite(loss), where));
}

void throw_diverged(std::string const& sign) {
  throw runtime::Error(
      fmt::format("{}: the training has diverged (a smaller --lr or --clip-norm may help)", sign));
}

bool are_all_alike(Scores const& scores) {
  bool has_several = false; // several classes
  for (auto const& score : scores) {
    if (score.num_most_predicted < score.num_counted) return false;
    has_several = has_several || score.num_most_frequent < score.num_counted;
  }
  return has_several;
}

std::string sign_of_collapse(Scores const& scores, std::vector<std::int64_t> const& dead) {
  if (!are_all_alike(scores)) return {};
  constexpr auto advice = "a smaller --lr, --warmup-steps or larger batches may help";
  if (dead.empty()) return fmt::format("all vertices are predicted to be of one class; {}", advice);
  return fmt::format(
      "all vertices are predicted to be of one class, as layer{} {} let{} nothing pass (after ReLU all "
      "outputs are 0); {}",
      dead.size() == 1 ? "" : "s", fmt::join(dead, ", "), dead.size() == 1 ? "s" : "", advice);
}

std::string sign_of_divergence(Scores const& scores) {
  for (auto const split : {graph::Split::train, graph::Split::valid, graph::Split::test}) {
    auto const loss = scores[static_cast<std::size_t>(split)].loss;
    if (!std::isfinite(loss))
      return fmt::format("the loss of the {} part is {}", graph::name_of(split), text_of_not_finite(loss));
  }
  return {};
}

} // namespace orthant::models
