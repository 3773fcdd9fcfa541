#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// --save-weights and --save-best: the files that receive weights at the end of a training. `--save-weights w.h5` writes the final weights
// to w.h5 and the weights of the best epoch to w-best.h5, unless --save-best names another file or there is no evaluation.

#include "cli/options/command.hpp"
#include "cli/options/shared_options.hpp"
#include "models/training/checkpoint/training_state.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace orthant::cli {

/// Rules in addition to the options that name files.
struct WeightRules {
  std::string_view unit;       // "epoch" or "step"
  std::int64_t eval_every = 0; // 0: no evaluations, so no best epoch
  std::int64_t patience = 0;
  std::vector<FileOption> inputs; // files that must not be overwritten
  CheckpointOptions const& checkpoints;
};

class WeightFiles {
 public:
  /// Throws UserError on all ranks if a file cannot be written, already exists or is named by another option, or if an option needs
  /// evaluations and there are none. Collective.
  WeightFiles(Context const& context, WeightOptions const& options, WeightRules const& rules);

  /// Turns off the best epoch because there is no validation data. `why` is the end of the message, such as "goes by .., and .. has none;
  /// leave it out". Throws UserError if an option that the user gave needs the best epoch. Not collective.
  void judge_by_nothing(std::string const& why);
  /// True if the weights of the best epoch must be kept.
  [[nodiscard]] bool keeps_best() const { return !best_.empty(); }
  /// True if save() writes a file. `has_best`: there is a best epoch.
  [[nodiscard]] bool writes(bool has_best) const {
    return !options_.save_weights.empty() || (keeps_best() && has_best);
  }

  /// Writes the files. If `best` is not null, the parameters hold the values of the best epoch afterwards. Collective over the grid's
  /// world. Throws UserError if a file cannot be written.
  template<class T>
  void save(pmm::ProcessGrid const& grid, std::vector<models::Parameter<T>> const& parameters,
            models::Architecture const& architecture, models::HostCopy<T> const* best) const {
    if (!options_.save_weights.empty())
      models::save_weights(grid, options_.save_weights, parameters, architecture);
    if (best_.empty() || best == nullptr) return;
    for (std::size_t p = 0; p < parameters.size(); ++p)
      models::copy_from_host((*best)[p], parameters[p].value());
    models::save_weights(grid, best_, parameters, architecture);
  }

 private:
  void require_none_of_best(std::string const& why) const;

  Context const& context_;
  WeightOptions const& options_;
  std::int64_t patience_;
  std::string best_; // file of the best weights; empty if there is none
};

} // namespace orthant::cli
