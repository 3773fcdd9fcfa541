// SPDX-License-Identifier: Apache-2.0
#include "cli/study/study_file.hpp"

#include "pmm/grid/process_grid.hpp"
#include "runtime/error.hpp"
#include "runtime/files/text_file.hpp"
#include "runtime/files/toml.hpp"
#include "runtime/suggestion.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <iterator>
#include <set>

namespace orthant::cli {
namespace {

constexpr std::int64_t most_ranks = std::int64_t{1} << 20;
constexpr std::int64_t most_repeats = 1000;
constexpr std::int64_t most_per_rank = std::int64_t{1} << 40;

using Words = std::vector<std::string>;

/// One table of the file. Keys that were read are known; require_known() refuses all others.
class Table {
 public:
  Table(toml::table const& table, std::string name, std::string path)
      : table_(table),
        name_(std::move(name)),
        path_(std::move(path)) {}

  [[noreturn]] void refuse(std::string const& key, std::string const& fault) const {
    runtime::throw_user("study file '{}': {}{}: {}", path_, key, name_.empty() ? "" : " of " + name_, fault);
  }

  void take(std::string const& key, std::string& value) {
    if (auto const* const node = find(key)) value = word(*node, key);
  }
  void take(std::string const& key, std::int64_t& value, std::int64_t least, std::int64_t most) {
    if (auto const* const node = find(key)) value = whole(*node, key, least, most);
  }
  void take(std::string const& key, Words& values) {
    auto const* const list = list_of(key);
    if (list == nullptr) return;
    values.clear();
    for (auto const& node : *list)
      values.push_back(word(node, key));
  }
  void take(std::string const& key, std::vector<std::int64_t>& values, std::int64_t least,
            std::int64_t most) {
    auto const* const list = list_of(key);
    if (list == nullptr) return;
    values.clear();
    for (auto const& node : *list)
      values.push_back(whole(node, key, least, most));
  }
  /// Marks a key as known that is read elsewhere.
  void pass(std::string const& key) { known_.push_back(key); }

  void require_known() const {
    for (auto const& [key, node] : table_)
      if (std::ranges::find(known_, key.str()) == known_.end())
        refuse(std::string(key.str()),
               fmt::format("there is no such key{}", runtime::did_you_mean(key.str(), known_)));
  }
  [[nodiscard]] bool has(std::string_view key) const { return table_.contains(key); }

 private:
  toml::node const* find(std::string const& key) {
    known_.push_back(key);
    return table_.get(key);
  }
  toml::array const* list_of(std::string const& key) {
    auto const* const node = find(key);
    if (node == nullptr) return nullptr;
    if (!node->is_array() || node->as_array()->empty())
      refuse(key, "it must be a list, in [ ], of at least one");
    return node->as_array();
  }
  std::string word(toml::node const& node, std::string const& key) const {
    if (!node.is_string()) refuse(key, "it must be text, in quotes");
    return node.as_string()->get();
  }
  std::int64_t whole(toml::node const& node, std::string const& key, std::int64_t least,
                     std::int64_t most) const {
    if (!node.is_integer()) refuse(key, "it must be a whole number");
    auto const value = node.as_integer()->get();
    if (value < least || value > most)
      refuse(key, fmt::format("{} must be at least {} and at most {}", value, least, most));
    return value;
  }

  toml::table const& table_;
  std::string name_, path_;
  Words known_;
};

void require_one_of(Table const& table, std::string const& key, Words const& values, Words const& words) {
  for (auto const& value : values)
    if (std::ranges::find(words, value) == words.end())
      table.refuse(key, fmt::format("'{}' is none of {}{}", value, fmt::join(words, ", "),
                                    runtime::did_you_mean(value, words)));
}

/// Throws UserError if the name has characters that must not occur in file names.
void require_name(Table const& table, std::string const& name) {
  auto const is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  if (name.empty() || !std::ranges::all_of(name, is_plain) || name.front() == '-')
    table.refuse("name", fmt::format("'{}' must be of letters, digits, - and _, and not begin with -", name));
}

StudyJobs read_jobs(toml::table const& file, std::string const& path) {
  StudyJobs jobs;
  auto const* const found = file.get_as<toml::table>("jobs");
  if (found == nullptr) return jobs;
  Table table(*found, "[jobs]", path);
  table.take("machine", jobs.machine);
  table.take("predict", jobs.predict);
  table.take("emulate", jobs.emulate);
  table.take("launcher", jobs.launcher);
  table.take("program", jobs.program);
  table.take("options", jobs.options);
  table.take("ranks_per_node", jobs.ranks_per_node, 1, most_ranks);
  table.require_known();
  if (jobs.machine.empty()) table.refuse("machine", "name a template, such as generic, or a script");
  return jobs;
}

void read_training(Table& table, Experiment& experiment) {
  if (experiment.command == "train") {
    table.take("schedules", experiment.schedules);
    table.take("modes", experiment.modes);
    table.take("rows_options", experiment.rows_options);
    require_one_of(table, "schedules", experiment.schedules, {"auto", "pmm3d", "rows"});
    require_one_of(table, "modes", experiment.modes, {"full", "minibatch"});
    if (experiment.is_weak) {
      table.take("generate", experiment.generate);
      table.take("vertices_per_rank", experiment.vertices_per_rank, 1, most_per_rank);
      table.take("edges_per_rank", experiment.edges_per_rank, 1, most_per_rank);
      table.take("features", experiment.features, 1, most_ranks);
      table.take("classes", experiment.classes, 1, most_ranks);
      require_one_of(table, "generate", {experiment.generate}, {"rmat", "sbm"});
      if (experiment.vertices_per_rank == 0 || experiment.edges_per_rank == 0)
        table.refuse("vertices_per_rank", "a graph that grows needs vertices_per_rank and edges_per_rank");
    } else {
      table.take("graphs", experiment.graphs);
      if (experiment.graphs.empty())
        table.refuse("graphs", "name stores, or data sets such as \"rmat:edges=1e6\"");
    }
  } else {
    table.take("tokens", experiment.tokens);
    if (experiment.tokens.empty()) table.refuse("tokens", "train-lm needs a token file");
    if (experiment.is_weak) {
      table.take("sequences_per_rank", experiment.sequences_per_rank, 1, most_per_rank);
      if (experiment.sequences_per_rank == 0)
        table.refuse("sequences_per_rank", "a global batch that grows needs it");
    }
  }
}

Experiment read_experiment(toml::table const& found, bool is_weak, std::string const& path) {
  Experiment experiment;
  experiment.is_weak = is_weak;
  auto const* const heading = is_weak ? "[[weak]]" : "[[strong]]";
  Table unnamed(found, heading, path);
  unnamed.take("name", experiment.name);
  require_name(unnamed, experiment.name);
  Table table(found, fmt::format("{} '{}'", heading, experiment.name), path);
  table.pass("name");
  table.take("command", experiment.command);
  require_one_of(table, "command", {experiment.command}, {"train", "train-lm"});
  table.take("ranks", experiment.ranks, 1, most_ranks);
  if (experiment.ranks.empty()) table.refuse("ranks", "name numbers of ranks, such as [1, 2, 4]");
  table.take("grids", experiment.grids);
  table.take("repeats", experiment.repeats, 1, most_repeats);
  table.take("options", experiment.options);
  read_training(table, experiment);
  table.require_known();
  return experiment;
}

std::vector<Experiment> read_experiments(toml::table const& file, std::string const& path) {
  std::vector<Experiment> experiments;
  std::set<std::string> names;
  for (auto const* const key : {"strong", "weak"}) {
    auto const* const node = file.get(key);
    if (node == nullptr) continue;
    if (!node->is_array_of_tables())
      runtime::throw_user("study file '{}': {}: it must be tables with the heading [[{}]]", path, key, key);
    for (auto const& each : *node->as_array()) {
      experiments.push_back(read_experiment(*each.as_table(), std::string_view(key) == "weak", path));
      if (!names.insert(experiments.back().name).second)
        runtime::throw_user("study file '{}': two experiments are called '{}'", path,
                            experiments.back().name);
    }
  }
  if (experiments.empty())
    runtime::throw_user("study file '{}': it has no experiment; write a table [[strong]] or [[weak]]", path);
  return experiments;
}

} // namespace

Study parse_study(std::string_view text, std::filesystem::path const& file) {
  auto const path = file.string();
  try {
    auto const table = toml::parse(runtime::without_byte_order_mark(text, path), path);
    Table top(table, "", path);
    Study study;
    study.file = std::filesystem::absolute(file);
    top.take("name", study.name);
    require_name(top, study.name);
    auto folder = study.name + ".study";
    top.take("folder", folder);
    study.folder = study.home() / folder;
    for (auto const* const key : {"jobs", "strong", "weak"})
      top.pass(key);
    if (top.has("jobs") && table.get_as<toml::table>("jobs") == nullptr)
      top.refuse("jobs", "it must be a table, [jobs]");
    top.require_known();
    study.jobs = read_jobs(table, path);
    study.experiments = read_experiments(table, path);
    return study;
  } catch (toml::parse_error const& error) {
    runtime::throw_user("study file '{}', line {}: not valid TOML: {}", path, error.source().begin.line,
                        error.description());
  }
}

Study read_study(std::filesystem::path const& file) {
  std::ifstream stream(file, std::ios::binary);
  std::string const text{std::istreambuf_iterator<char>(stream), {}};
  if (!stream || std::filesystem::is_directory(file))
    runtime::throw_user("cannot read the study file '{}': {}", file.string(),
                        std::strerror(stream ? EISDIR : errno));
  return parse_study(text, file);
}

std::string example_study(std::string_view name, std::string_view machine) {
  return fmt::format(R"toml(# A scaling study of Orthant (docs/studies.md).
#
#   orthant study submit {0}.toml       submits what is still to do; --here runs it on this machine (seconds of points on more
#                                      ranks than cores mean nothing, and are marked)
#   orthant study status {0}.toml
#   orthant study collect {0}.toml      reads the metrics of all points
#   orthant study report {0}.toml       tables, figures and a page
#
# Paths are relative to this file.
name = "{0}"
folder = "{0}.study"             # points, logs, results and report

[jobs]
machine = "{1}"                  # template of the batch jobs: generic, perlmutter, frontier, alps, tuolumne, or a script
ranks_per_node = 4
predict = "host"                 # seconds predicted by this machine's constants, as of plan --machine; "": none
# options = ["--time=00:30:00", "--account=m0000_g"]   # of sbatch or flux batch
# launcher = "mpirun -n"         # what stands before the number of ranks; by default that of the template
# emulate = "perlmutter"         # ranks take the clocks of this machine: the seconds are virtual, and marked

# One problem on growing numbers of ranks: every combination of ranks, grids, schedules, graphs and modes.
[[strong]]
name = "graph"
command = "train"                # or train-lm
graphs = ["rmat:vertices=20000,edges=400000,features=64,classes=16"]   # or stores, such as "products.h5"
ranks = [1, 2, 4]
grids = ["auto"]                 # or "1x2x2x1"; P is what the other axes leave of the ranks: "1xPx1x1"
schedules = ["pmm3d", "rows"]
modes = ["full"]                 # or minibatch
repeats = 1
options = "--epochs 6 --eval-every 0 --hidden 64"

# Problems that grow with the ranks: `partition --generate` makes each graph before it is trained on.
[[weak]]
name = "growing"
command = "train"
generate = "rmat"                # or sbm
vertices_per_rank = 5000
edges_per_rank = 100000
features = 64
classes = 16
ranks = [1, 2, 4]
schedules = ["rows"]
options = "--epochs 6 --eval-every 0 --hidden 64"

# [[strong]]
# name = "language-model"
# command = "train-lm"
# tokens = "text.h5"             # of `orthant tokenize`
# ranks = [1, 2, 4]
# grids = ["1xPx1x1", "Px1x1x1"] # tensor and data axes; weak scaling: sequences_per_rank = 4
# options = "--preset nanogpt-cpu --steps 12 --warmup-steps 2 --eval-every 0"
)toml",
                     name, machine);
}

} // namespace orthant::cli
