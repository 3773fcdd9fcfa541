// SPDX-License-Identifier: Apache-2.0
//
// orthant train: full-graph or mini-batch training of a graph neural network.
#include "cli/commands/subcommands.hpp"
#include "cli/lm/train_lm_run.hpp"
#include "cli/training/checkpoints.hpp"
#include "cli/training/scores_text.hpp"
#include "cli/training/train_modes.hpp"
#include "cli/training/train_options.hpp"
#include "cli/training/train_settings.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace orthant::cli {
namespace {

TrainEnd train_once(TrainOptions const& options, Context& context) {
  return options.mode == "minibatch" ? train_minibatch(options, context) : train_full(options, context);
}

/// "--seeds 5" or "--split all".
std::string text_of_several(TrainOptions const& o) {
  return o.split == "all" ? "--split all" : fmt::format("--seeds {}", o.seeds);
}

/// Throws UserError for options of a single training: each training would overwrite the same files.
void require_no_files(TrainOptions const& o) {
  for (auto const& [option, value] : {std::pair("--save-weights", &o.save_weights),
                                      {"--save-best", &o.save_best},
                                      {"--checkpoint", &o.checkpoint}})
    if (!value->empty())
      runtime::throw_user("{} is for one training: leave it out with {}", option, text_of_several(o));
  if (o.resume != "never")
    runtime::throw_user("--resume is for one training: leave it out with {}", text_of_several(o));
  if (o.eval_every == 0)
    runtime::throw_user("{} goes by evaluations; give --eval-every the number of epochs between them",
                        text_of_several(o));
}

struct Spread {
  double mean = 0;
  double deviation = 0; // of a sample: divided by n - 1
};

Spread spread_of(std::vector<double> const& numbers) {
  auto const n = static_cast<double>(numbers.size());
  Spread spread;
  for (auto const number : numbers)
    spread.mean += number / n;
  for (auto const number : numbers)
    spread.deviation += (number - spread.mean) * (number - spread.mean);
  spread.deviation = std::sqrt(spread.deviation / (n - 1));
  return spread;
}

/// Reports mean and deviation over the seeds and splits: accuracies (areas under the ROC curve for links, R2 for regression) of the last epoch, and of the best one by
/// --monitor.
void report_spread(Context& context, TrainOptions const& options, std::int64_t num_splits,
                   std::vector<models::TrainProgress> const& seeds) {
  auto record = nlohmann::ordered_json{{"first_seed", options.seed}, {"num_seeds", options.seeds}};
  if (options.split == "all") record["num_splits"] = num_splits;
  std::string counts;
  if (num_splits > 1) counts = fmt::format("{} splits", num_splits);
  if (options.seeds > 1) counts += fmt::format("{}{} seeds", counts.empty() ? "" : " of ", options.seeds);
  say(context, "\n{}, mean and deviation\n", counts);
  auto const is_of_links = options.task == "links";
  say(context, "{:<12}{:>18}{:>18}{:>18}\n", name_of(merit_of(*seeds.front().last)),
      is_of_links ? "" : "train", "valid", "test");
  auto const has_best = std::ranges::all_of(seeds, [](models::TrainProgress const& progress) {
    return progress.best.scores[static_cast<std::size_t>(graph::Split::valid)].num_counted > 0;
  });
  auto const add = [&](char const* name, auto const& scores_of_seed) {
    std::string line = fmt::format("{:<12}", fmt::format("{} epoch", name));
    for (auto const split : {graph::Split::train, graph::Split::valid, graph::Split::test}) {
      if (is_of_links && split == graph::Split::train) {
        line += fmt::format("{:>18}", "");
        continue;
      }
      std::vector<double> accuracies;
      for (auto const& progress : seeds)
        accuracies.push_back(scores_of_seed(progress)[static_cast<std::size_t>(split)].merit());
      auto const [mean, deviation] = spread_of(accuracies);
      line += fmt::format("{:>18}", fmt::format("{:.4f} +- {:.4f}", mean, deviation));
      record[name][std::string(graph::name_of(split))] = {{"mean", mean}, {"deviation", deviation}};
    }
    say(context, "{}\n", line);
  };
  add("last", [](models::TrainProgress const& progress) { return *progress.last; });
  if (has_best) add("best", [](models::TrainProgress const& progress) { return progress.best.scores; });
  context.metrics.write("seeds", record);
}

/// Trains once with each seed on each of these splits.
int train_several(TrainOptions options, std::vector<std::string> const& splits, Context& context) {
  require_no_files(options);
  auto const asked = options;
  options.dataset_seed = options.seed;
  std::vector<models::TrainProgress> ends;
  for (auto const& split : splits) {
    options.split = split;
    options.seed = asked.seed;
    for (; options.seed < asked.seed + asked.seeds; ++options.seed) {
      if (!ends.empty()) say(context, "\n");
      if (splits.size() > 1) say(context, "split     {}\n", split);
      if (asked.seeds > 1) say(context, "seed      {}\n", options.seed);
      auto const end = train_once(options, context);
      if (!end.progress) return end.status;
      ends.push_back(*end.progress);
    }
  }
  report_spread(context, asked, std::ssize(splits), ends);
  return runtime::exit_done;
}

/// The splits of --split. Collective.
std::vector<std::string> splits_of(TrainOptions const& options, Context const& context) {
  if (options.split != "all") return {options.split};
  auto const count = options.graph.empty()
                         ? 1
                         : graph::GraphStore::open(context.world(), options.graph).facts().num_splits();
  std::vector<std::string> splits{"0"};
  for (std::int64_t number = 1; number < count; ++number)
    splits.push_back(fmt::format("{}", number));
  return splits;
}

int run(TrainOptions options, Context& context) {
  settle_idle_options(context, options);
  auto const splits = splits_of(options, context);
  if (options.seeds > 1 || splits.size() > 1) return train_several(options, splits, context);
  options.split = splits.front();
  return train_once(options, context).status;
}

} // namespace

std::unique_ptr<Command> make_train() {
  auto command =
      std::make_unique<Command>("train", "Train a graph neural network on the full graph or in mini-batches");
  auto const options = std::make_shared<TrainOptions>();
  add_preset_option(*command, *options);
  add_options(*command, *options);
  command->set_goes_on([options] { return options->resume != "never"; },
                       [options] { return goes_on_from_checkpoint(*options); });
  command->set_run([options](Context& context) {
    apply_preset(context, *options);
    return run(*options, context);
  });
  return command;
}

// orthant train-lm: trains transformers on the same distributed matrices as graph networks.

std::unique_ptr<Command> make_train_lm() {
  auto command =
      std::make_unique<Command>("train-lm", "Train a language model (GPT or Llama) on a token file");
  auto const options = std::make_shared<TrainLmOptions>();
  add_options(*command, *options);
  command->set_goes_on([options] { return options->resume != "never"; },
                       [options] { return goes_on_from_checkpoint(*options); });
  command->set_run([options](Context& context) {
    apply_preset(context, *options);
    require_effective_optimizer_options(context, *options);
    require_effective_expert_options(context, *options);
    require_effective_adapter_options(context, *options);
    return train_language_model(*options, context);
  });
  return command;
}

} // namespace orthant::cli
