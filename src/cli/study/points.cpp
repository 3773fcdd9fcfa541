// SPDX-License-Identifier: Apache-2.0
#include "cli/study/study_file.hpp"

#include "graph/crc32.hpp"
#include "pmm/grid/process_grid.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <optional>
#include <set>
#include <span>
#include <sstream>

namespace orthant::cli {
namespace {

using Words = std::vector<std::string>;

constexpr double most_points = 1e5; // per experiment

Words words_of(std::string const& text) {
  std::istringstream stream(text);
  Words words;
  for (std::string word; stream >> word;)
    words.push_back(word);
  return words;
}

/// Grid of `ranks` ranks by a pattern such as "1x2xPx1"; nullopt if the ranks do not fit.
std::optional<std::string> fill_in(std::string const& pattern, std::int64_t ranks) {
  if (pattern == "auto") return pattern;
  if (std::ranges::count(pattern, 'x') != 3 || pattern.ends_with('x')) return "";
  std::int64_t product = 1;
  auto has_letter = false;
  Words factors;
  std::istringstream stream(pattern);
  for (std::string factor; std::getline(stream, factor, 'x');) {
    factors.push_back(factor);
    if (factor == "P" && !has_letter) {
      has_letter = true;
      continue;
    }
    std::int64_t number = 0;
    auto const* const end = factor.data() + factor.size();
    auto const parsed = std::from_chars(factor.data(), end, number);
    if (parsed.ec != std::errc{} || parsed.ptr != end || number < 1 || number > ranks)
      return number > ranks ? std::nullopt : std::optional<std::string>("");
    product *= number;
    if (product > ranks) return std::nullopt;
  }
  if (ranks % product != 0 || (!has_letter && product != ranks)) return std::nullopt;
  std::ranges::replace(factors, std::string("P"), std::to_string(ranks / product));
  return fmt::format("{}", fmt::join(factors, "x"));
}

struct Grid {
  std::string text;
  std::string of_curve; // the part of the text that is the same for all grids of a curve
};

std::vector<Grid> grids_of(Study const& study, Experiment const& experiment, std::int64_t ranks) {
  std::vector<Grid> grids;
  for (auto const& pattern : experiment.grids) {
    auto const grid = fill_in(pattern, ranks);
    if (grid && grid->empty())
      runtime::throw_user(
          "study file '{}': grids of '{}': '{}' is no grid; write auto, four factors such as 1x2x2x1, or "
          "P for what is left of the ranks, as in 1xPx1x1",
          study.file.string(), experiment.name, pattern);
    if (!grid) continue;
    auto const is_pattern = pattern == "auto" || pattern.find('P') != std::string::npos;
    grids.push_back({*grid, is_pattern ? pattern : "listed"});
  }
  if (grids.empty())
    runtime::throw_user("study file '{}': grids of '{}': none of {} is a grid of {} ranks",
                        study.file.string(), experiment.name, fmt::join(experiment.grids, ", "), ranks);
  return grids;
}

/// Short name of a data set for keys, such as "products" for "graphs/products.h5".
std::string short_name(std::string const& data) {
  auto name = data.find(':') == std::string::npos ? std::filesystem::path(data).stem().string()
                                                  : data.substr(0, data.find(':'));
  std::ranges::replace_if(
      name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_'; }, '_');
  return name;
}

std::string checksum_of(StudyPoint const& point, std::string const& emulate) {
  auto const text = fmt::format("{}\n{}\n{}\n{}\n{}", fmt::join(point.generation, "\n"), point.ranks,
                                fmt::join(point.arguments, "\n"), emulate, point.repeat);
  return fmt::format("{:08x}", graph::crc32_of(std::as_bytes(std::span(text))));
}

void add_generation(Experiment const& experiment, StudyPoint& point) {
  auto const vertices = experiment.vertices_per_rank * point.ranks;
  auto const edges = experiment.edges_per_rank * point.ranks;
  point.data = fmt::format("{} of {} vertices", experiment.generate, vertices);
  point.generation = {"partition",
                      "--generate",
                      experiment.generate,
                      "--vertices",
                      std::to_string(vertices),
                      "--edges",
                      std::to_string(edges),
                      "--features",
                      std::to_string(experiment.features),
                      "--classes",
                      std::to_string(experiment.classes)};
  point.generated = fmt::format("{}-{}-{}-{}-{}.h5", experiment.generate, vertices, edges,
                                experiment.features, experiment.classes);
}

/// Adds the data and the options of the training to the arguments. `data` is a graph or empty.
void add_arguments(Experiment const& experiment, std::string const& data, StudyPoint& point) {
  auto& arguments = point.arguments;
  if (experiment.command == "train-lm") {
    point.data = experiment.tokens;
    arguments.insert(arguments.end(), {"--tokens", experiment.tokens, "--grid", point.grid});
    if (experiment.is_weak)
      arguments.insert(arguments.end(),
                       {"--global-batch", std::to_string(experiment.sequences_per_rank * point.ranks)});
    return;
  }
  if (experiment.is_weak) {
    add_generation(experiment, point); // --graph is added later, when the folder is known
  } else {
    point.data = data;
    auto const is_set = data.find(':') != std::string::npos || data == "karate";
    arguments.insert(arguments.end(), {is_set ? "--dataset" : "--graph", data});
  }
  arguments.insert(arguments.end(),
                   {"--mode", point.mode, "--schedule", point.schedule, "--grid", point.grid});
}

/// Name of a curve: only the settings of which the experiment has several values.
std::string curve_of(Experiment const& experiment, StudyPoint const& point, std::string const& grid) {
  Words parts;
  auto const name = short_name(point.data);
  auto const num_alike = std::ranges::count(experiment.graphs, name, short_name);
  if (experiment.graphs.size() > 1) parts.push_back(num_alike > 1 ? point.data : name);
  if (experiment.command == "train" &&
      (experiment.schedules.size() > 1 || experiment.schedules.front() != "auto"))
    parts.push_back(point.schedule);
  if (experiment.modes.size() > 1) parts.push_back(point.mode);
  if (experiment.grids.size() > 1) parts.push_back("grid " + grid);
  return parts.empty() ? experiment.name : fmt::format("{}", fmt::join(parts, ", "));
}

/// One choice from each list of an experiment.
struct Choice {
  std::string data, mode, schedule;
  std::int64_t ranks = 1;
  Grid grid;
};

std::vector<Choice> choices_of(Study const& study, Experiment const& experiment) {
  auto const is_graph = experiment.command == "train";
  auto const data_sets = is_graph && !experiment.is_weak ? experiment.graphs : Words{""};
  auto const modes = is_graph ? experiment.modes : Words{""};
  auto const schedules = is_graph ? experiment.schedules : Words{""};
  auto num_points = static_cast<double>(experiment.repeats);
  for (auto const size :
       {data_sets.size(), modes.size(), schedules.size(), experiment.ranks.size(), experiment.grids.size()})
    num_points *= static_cast<double>(size);
  if (num_points > most_points)
    runtime::throw_user("study file '{}': the lists and repeats of '{}' make {} points; {} are the most",
                        study.file.string(), experiment.name, num_points, most_points);
  std::vector<Choice> choices;
  for (auto const& data : data_sets)
    for (auto const& mode : modes)
      for (auto const& schedule : schedules)
        for (auto const ranks : experiment.ranks)
          for (auto const& grid : grids_of(study, experiment, ranks))
            choices.push_back({data, mode, schedule, ranks, grid});
  return choices;
}

StudyPoint point_of(Study const& study, Experiment const& experiment, Choice const& choice,
                    std::int64_t repeat) {
  StudyPoint point;
  point.experiment = experiment.name;
  point.is_weak = experiment.is_weak;
  point.command = experiment.command;
  point.mode = choice.mode;
  point.schedule = choice.schedule;
  point.grid = choice.grid.text;
  point.ranks = choice.ranks;
  point.repeat = repeat;
  point.arguments = {experiment.command};
  add_arguments(experiment, choice.data, point);
  if (!point.generated.empty()) {
    point.generated = (study.folder.lexically_proximate(study.home()) / "graphs" / point.generated).string();
    point.generation.insert(point.generation.end(), {"-o", point.generated});
    point.arguments.insert(point.arguments.end(), {"--graph", point.generated});
  }
  for (auto const& options : {experiment.options, choice.schedule == "rows" ? experiment.rows_options : ""})
    std::ranges::move(words_of(options), std::back_inserter(point.arguments));
  point.curve = curve_of(experiment, point, choice.grid.of_curve);

  auto name = experiment.name;
  for (auto const& part : {short_name(point.generated.empty() ? point.data : point.generated),
                           choice.mode == "full" ? std::string() : choice.mode, choice.schedule, point.grid})
    if (!part.empty() && part != experiment.name) name += "-" + part;
  point.key = fmt::format("{}-p{}-{}-{}", name, point.ranks, repeat, checksum_of(point, study.jobs.emulate));
  return point;
}

} // namespace

std::vector<StudyPoint> points_of(Study const& study) {
  std::vector<StudyPoint> points;
  std::set<std::string> keys;
  for (auto const& experiment : study.experiments)
    for (auto const& choice : choices_of(study, experiment))
      for (std::int64_t repeat = 1; repeat <= experiment.repeats; ++repeat) {
        points.push_back(point_of(study, experiment, choice, repeat));
        if (!keys.insert(points.back().key).second)
          runtime::throw_user("study file '{}': '{}' lists {} twice", study.file.string(), experiment.name,
                              points.back().key);
      }
  return points;
}

} // namespace orthant::cli
