// SPDX-License-Identifier: Apache-2.0
#include "cli/lm/step_lines.hpp"

#include "cli/machine/units.hpp"

#include <utility>
#include <vector>

namespace orthant::cli {

StepLines::StepLines(Context& context, std::int64_t num_steps, std::int64_t log_every, StepSpeed const& speed)
    : context_(context),
      num_steps_(num_steps),
      log_every_(log_every),
      speed_(speed),
      progress_(num_steps, "step",
                runtime::progress_style(context.world().is_root() &&
                                        context.log().prints(runtime::LogLevel::info))) {}

void StepLines::write(runtime::EpochRecord const& step, std::vector<models::ExpertLoad> const& loads) {
  auto const valid_loss = step.score("val_loss");
  if (context_.metrics.is_on()) {
    nlohmann::ordered_json line{{"step", step.epoch},
                                {"loss", step.loss},
                                {"grad_norm", step.grad_norm},
                                {"lr", step.learning_rate},
                                {"tokens_per_second", speed_.tokens_per_second(step.seconds)},
                                {"seconds", step.seconds},
                                {"comm_bytes", step.comm_bytes},
                                {"sent_bytes", step.sent_bytes},
                                {"phases", step.phases.to_json()}};
    for (auto const& load : loads)
      line["experts"].push_back({{"layer", load.layer},
                                 {"tokens", load.chosen},
                                 {"dropped", load.num_dropped},
                                 {"imbalance", load.imbalance()},
                                 {"entropy", load.entropy()}});
    context_.metrics.write("step", line);
    if (valid_loss)
      context_.metrics.write(
          "eval",
          {{"step", step.epoch}, {"val_loss", *valid_loss}, {"val_acc", step.score("val_acc").value()}});
  }
  if (valid_loss) valid_loss_ = valid_loss;
  auto const is_bar = progress_.style() == runtime::ProgressStyle::bar;
  auto const is_first = std::exchange(is_first_, false); // the rate of steps is counted from it
  if (!is_bar && !valid_loss && !is_first && step.epoch % log_every_ != 0 && step.epoch != num_steps_) return;
  auto const flop_per_s = speed_.flop_per_s(step.seconds);
  using Field = runtime::Progress::Field;
  std::vector<Field> fields{{"loss", step.loss}};
  if (valid_loss_ && (is_bar || valid_loss)) fields.push_back({"val_loss", *valid_loss_});
  fields.push_back({"tokens/s", speed_.tokens_per_second(step.seconds), 0});
  fields.push_back({"Gflop/s", flop_per_s / giga, 1});
  fields.push_back({"of peak", flop_per_s / speed_.peak_flop_per_s, 3});
  fields.push_back({"norm", step.grad_norm});
  progress_.update(step.epoch, fields,
                   valid_loss ? runtime::Progress::Unit::notable : runtime::Progress::Unit::usual);
}

} // namespace orthant::cli
