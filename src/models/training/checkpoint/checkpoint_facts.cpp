// SPDX-License-Identifier: Apache-2.0
#include "models/training/checkpoint/checkpoint_facts.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <charconv>
#include <fmt/ranges.h>
#include <optional>
#include <set>
#include <string_view>

namespace orthant::models {
namespace {

std::optional<double> number_of(std::string_view text) {
  double number = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

/// Compares options with numeric values as numbers: "1" equals "1.0".
bool are_same(std::string_view name, std::string_view left, std::string_view right) {
  if (left == right || !name.starts_with("--")) return left == right;
  auto const number = number_of(left);
  return number && number == number_of(right);
}

} // namespace

void require_same_training(std::filesystem::path const& path, Identity const& recorded,
                           Identity const& wanted, std::vector<std::string> const& may_differ) {
  std::vector<std::string> differences;
  std::set<std::string> groups; // groups of the differences; "" if a difference is never permitted
  auto const compare = [&](IdentityPart const& part, std::string const* found, std::string const* here) {
    if (found != nullptr && here != nullptr && are_same(part.name, *found, *here)) return;
    auto const is_one_sided = found == nullptr || here == nullptr;
    if (is_one_sided && part.group == if_both_have_it) return;
    if (std::ranges::find(may_differ, part.group) != may_differ.end()) return;
    differences.push_back(fmt::format("its {} is {}, here it is {}", part.name,
                                      found == nullptr ? "not given" : *found,
                                      here == nullptr ? "not given" : *here));
    groups.insert(part.group == if_both_have_it ? std::string() : part.group);
  };
  for (auto const& part : wanted) {
    auto const found = std::ranges::find(recorded, part.name, &IdentityPart::name);
    if (found != recorded.end())
      compare(part, &found->value, &part.value);
    else if (!part.is_default)
      compare(part, nullptr, &part.value);
  }
  for (auto const& part : recorded)
    if (std::ranges::find(wanted, part.name, &IdentityPart::name) == wanted.end())
      compare(part, &part.value, nullptr);
  if (differences.empty()) return;
  runtime::throw_user(
      "'{}' is a checkpoint of another training: {}{}", path.string(), fmt::join(differences, "; "),
      groups.contains(std::string())
          ? std::string()
          : fmt::format(" (--resume-override {} goes on all the same)", fmt::join(groups, ",")));
}

namespace {

using Json = nlohmann::ordered_json;

/// Rejects reals, which would be truncated, and numbers beyond 64 bits, whose value is undefined.
std::int64_t whole(Json const& json) {
  if (!json.is_number_integer()) throw std::invalid_argument("a count is no whole number: " + json.dump());
  return json.get<std::int64_t>();
}

runtime::Hdf5File::Extents extents_of(Json const& list) {
  runtime::Hdf5File::Extents extents;
  for (auto const& extent : list)
    extents.push_back(whole(extent));
  return extents;
}

Json json_of(Scores const& scores) {
  auto list = Json::array();
  for (auto const& split : scores) {
    list.push_back({{"counted", split.num_counted},
                    {"correct", split.num_correct},
                    {"loss", split.loss},
                    {"macro_f1", split.macro_f1},
                    {"micro_f1", split.micro_f1},
                    {"most_frequent", split.num_most_frequent}});
    if (split.is_of_numbers) list.back().update({{"r2", split.r2}, {"mae", split.mae}});
    if (split.roc_auc) list.back()["roc_auc"] = *split.roc_auc;
    if (split.ranking) list.back()["ranking"] = {{"mrr", split.ranking->mrr}, {"hits", split.ranking->hits}};
  }
  return list;
}

Scores scores_of(Json const& list) {
  Scores scores;
  for (std::size_t s = 0; s < scores.size(); ++s) {
    auto const& split = list.at(s);
    scores[s].num_counted = whole(split.at("counted"));
    scores[s].num_correct = whole(split.at("correct"));
    scores[s].loss = split.at("loss").get<double>();
    scores[s].macro_f1 = split.value("macro_f1", 0.0); // absent in older files
    scores[s].micro_f1 = split.value("micro_f1", 0.0);
    scores[s].num_most_frequent = split.contains("most_frequent") ? whole(split.at("most_frequent")) : 0;
    if (split.contains("r2")) {
      scores[s].is_of_numbers = true;
      scores[s].r2 = split.at("r2").get<double>();
      scores[s].mae = split.at("mae").get<double>();
    }
    if (split.contains("roc_auc")) scores[s].roc_auc = split.at("roc_auc").get<double>();
    if (!split.contains("ranking")) continue;
    auto const& ranking = split.at("ranking");
    scores[s].ranking = {ranking.at("mrr").get<double>(),
                         ranking.at("hits").get<decltype(RankingScore::hits)>()};
  }
  return scores;
}

Json json_of(Plateau const& plateau) {
  return {{"least_loss", plateau.least_loss ? Json(*plateau.least_loss) : Json()},
          {"evaluations_since", plateau.num_since},
          {"reduction", plateau.reduction}};
}

Plateau plateau_of(Json const& json) {
  Plateau plateau;
  if (auto const& least = json.at("least_loss"); !least.is_null()) plateau.least_loss = least.get<double>();
  plateau.num_since = whole(json.at("evaluations_since"));
  plateau.reduction = json.at("reduction").get<double>();
  return plateau;
}

Json json_of(ValidationRecords const& records) {
  return {{"merit", records.merit}, {"loss", records.loss}};
}

/// Records of the validation part. Older files do not have them; then the scores of the best epoch are the record of the monitored
/// quantity.
std::optional<ValidationRecords> records_of(Json const& progress, BestEpoch const& best) {
  auto const& of_best = best.scores[static_cast<std::size_t>(graph::Split::valid)];
  if (!progress.contains("records"))
    return best.epoch > 0 ? std::optional(ValidationRecords{of_best.merit(), of_best.loss}) : std::nullopt;
  auto const& json = progress.at("records");
  if (json.is_null()) return std::nullopt;
  return ValidationRecords{json.at("merit").get<double>(), json.at("loss").get<double>()};
}

Json json_of(TrainProgress const& progress) {
  return {{"epoch", progress.epoch},
          {"step", progress.step},
          {"loss_sum", progress.loss_sum},
          {"loss_count", progress.loss_count},
          {"last_loss", progress.last_loss},
          {"last", progress.last ? json_of(*progress.last) : Json()},
          {"best_epoch", progress.best.epoch},
          {"best", json_of(progress.best.scores)},
          {"records", progress.records ? json_of(*progress.records) : Json()},
          {"evaluations_since_best", progress.num_without_gain},
          {"plateau", json_of(progress.plateau)}};
}

TrainProgress progress_of(Json const& json) {
  TrainProgress progress;
  progress.epoch = whole(json.at("epoch"));
  progress.step = whole(json.at("step"));
  if (progress.epoch < 1 || progress.step < 0) throw std::invalid_argument("no epoch or step");
  progress.loss_sum = json.at("loss_sum").get<double>();
  progress.loss_count = json.at("loss_count").get<double>();
  progress.last_loss = json.at("last_loss").get<double>();
  if (!json.at("last").is_null()) progress.last = scores_of(json.at("last"));
  progress.best = {whole(json.at("best_epoch")), scores_of(json.at("best"))};
  progress.records = records_of(json, progress.best);
  progress.num_without_gain = json.contains("evaluations_since_best")
                                  ? whole(json.at("evaluations_since_best"))
                                  : 0;                                             // absent in older files
  if (json.contains("plateau")) progress.plateau = plateau_of(json.at("plateau")); // absent in older files
  return progress;
}

std::uint64_t sum_of(std::string const& digits) {
  std::uint64_t sum = 0;
  auto const [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), sum, 16);
  if (error != std::errc() || end != digits.data() + digits.size())
    throw std::invalid_argument("a checksum is no number: " + digits);
  return sum;
}

} // namespace

std::string CheckpointFacts::to_json() const {
  Json json{{"format", "orthant checkpoint"},
            {"version", checkpoint_version},
            {"progress", json_of(progress)},
            {"optimizer_steps", num_steps},
            {"training", training}};
  if (learning_rate) json["learning_rate"] = *learning_rate;
  auto& parts = json["identity"] = Json::array();
  for (auto const& part : identity)
    parts.push_back({{"name", part.name}, {"value", part.value}, {"group", part.group}});
  json["configuration"] = configuration;
  auto& list = json["tensors"] = Json::array();
  for (auto const& tensor : tensors)
    list.push_back(
        {{"name", tensor.name}, {"extents", tensor.extents}, {"sum", fmt::format("{:016x}", tensor.sum)}});
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

CheckpointFacts CheckpointFacts::from_json(std::string const& text, std::filesystem::path const& path) {
  try {
    auto const json = Json::parse(text);
    if (auto const version = whole(json.at("version")); version > checkpoint_version)
      runtime::throw_user("'{}' is a checkpoint of version {}, and this program reads versions up to {}",
                          path.string(), version, checkpoint_version);
    CheckpointFacts facts;
    facts.progress = progress_of(json.at("progress"));
    facts.num_steps = whole(json.at("optimizer_steps"));
    if (facts.num_steps < 0) throw std::invalid_argument("a negative number of optimizer steps");
    if (json.contains("learning_rate")) facts.learning_rate = json.at("learning_rate").get<double>();
    facts.training = json.at("training").get<std::string>();
    for (auto const& part : json.at("identity"))
      facts.identity.push_back({part.at("name").get<std::string>(), part.at("value").get<std::string>(),
                                part.at("group").get<std::string>()});
    for (auto const& tensor : json.at("tensors"))
      facts.tensors.push_back({tensor.at("name").get<std::string>(), extents_of(tensor.at("extents")),
                               sum_of(tensor.at("sum").get<std::string>())});
    return facts;
  } catch (runtime::Error const&) {
    throw;
  } catch (std::exception const& error) {
    runtime::throw_user("'{}' is damaged: {}", path.string(), runtime::describe(error));
  }
}

} // namespace orthant::models
