// SPDX-License-Identifier: Apache-2.0
#include "cli/report/figure.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

namespace orthant::cli {
namespace {

/// Largest number of the form 1, 2 or 5 times a power of ten that is at most `step`.
double round_down(double step) {
  auto const power = std::pow(10, std::floor(std::log10(step)));
  for (auto const factor : {5, 2})
    if (factor * power <= step * (1 + 1e-9)) return factor * power;
  return power;
}

/// Ticks at 1, 2 and 5 times powers of ten between `begin` and `end`, or at the powers only if there are more than `most`.
std::vector<double> logarithmic_ticks(double begin, double end, int most) {
  std::vector<double> ticks, powers;
  auto const first = static_cast<int>(std::floor(std::log10(begin)));
  auto const last = static_cast<int>(std::ceil(std::log10(end)));
  for (auto exponent = first; exponent <= last; ++exponent)
    for (auto const factor : {1, 2, 5}) {
      auto const tick = factor * std::pow(10.0, exponent);
      if (tick < begin * (1 - 1e-9) || tick > end * (1 + 1e-9)) continue;
      ticks.push_back(tick);
      if (factor == 1) powers.push_back(tick);
    }
  return std::ssize(ticks) > most && powers.size() >= 2 ? powers : ticks;
}

/// With fewer logarithmic ticks an axis gets linear ones, which then lie at least 14 pixels apart in a panel of 200 pixels.
constexpr auto least_of_logarithmic = 3;

struct Unit {
  double size;
  char const* suffix;
};
constexpr std::array units{Unit{1e9, "G"}, Unit{1e6, "M"}, Unit{1e3, "k"}};

} // namespace

std::pair<double, double> range_of(std::vector<double> const& values) {
  if (values.empty()) return {0, 1};
  auto const [least, largest] = std::ranges::minmax(values);
  auto const magnitude = std::max(std::abs(least), std::abs(largest));
  if (largest - least > 1e-9 * magnitude) return {least, largest};
  auto const margin = magnitude == 0 ? 1 : magnitude / 10;
  return {least - margin, largest + margin};
}

Axis::Axis(double begin, double end, int least_ticks, Scale scale) : begin_(begin), end_(end), scale_(scale) {
  if (scale == Scale::logarithmic) {
    ticks_ = logarithmic_ticks(begin, end, 2 * least_ticks);
    if (std::ssize(ticks_) >= least_of_logarithmic) return;
    ticks_.clear(); // use linear ticks: a short logarithmic axis is nearly linear
    least_ticks = least_of_logarithmic;
  }
  step_ = round_down((end - begin) / least_ticks);
  auto const slack = 1e-9 * (end - begin);
  for (auto i = std::ceil((begin - slack) / step_); i * step_ <= end + slack; ++i)
    ticks_.push_back(i == 0 ? 0 : i * step_);
}

Axis::Axis(double begin, double end, std::vector<double> ticks, Scale scale)
    : begin_(begin),
      end_(end),
      step_(ticks.size() > 1 ? ticks[1] - ticks[0] : 1),
      scale_(scale),
      ticks_(std::move(ticks)) {}

double Axis::place(double value) const {
  if (scale_ == Scale::linear) return (value - begin_) / (end_ - begin_);
  return std::log(value / begin_) / std::log(end_ / begin_);
}

std::string Axis::label(double tick) const {
  if (scale_ == Scale::logarithmic) return fmt::format("{:.4g}", tick);
  auto const largest = std::max(std::abs(begin_), std::abs(end_));
  auto const unit = std::ranges::find_if(units, [&](Unit const& each) { return largest >= 10 * each.size; });
  auto const size = unit == units.end() ? 1 : unit->size;
  auto const num_decimals = std::max(0, static_cast<int>(std::ceil(-std::log10(step_ / size) - 1e-9)));
  if (num_decimals > 6 || largest > 1e13) return fmt::format("{:.3g}", tick);
  return fmt::format("{:.{}f}{}", tick / size, num_decimals,
                     unit == units.end() || tick == 0 ? "" : unit->suffix);
}

namespace {

using nlohmann::json, runtime::throw_user;

/// Numbers of one epoch or step, and of the evaluation after it.
struct Record {
  double position = 0; // its number, from 1
  double seconds = 0;  // training time up to its end
  json numbers;
};

struct Run {
  std::string name;
  std::string unit;     // "epoch" or "step"
  std::string training; // its name; empty without checkpoints
  std::vector<Record> records;
  double length = 0;              // of the whole training in units; 0: unknown
  std::string status = "running"; // or "done" or "stopped"
  json done;                      // the last line of the run; null while it runs
};

/// Runs of one file.
struct RunFile {
  std::vector<Run> runs;
  double num_seeds = 1;   // trainings that the last command makes, one run each
  bool has_ended = false; // the command that wrote the file has ended
};

std::optional<double> number(json const& object, std::string const& key) {
  auto const found = object.find(key); // end() if `object` is null
  if (found == object.end() || !found->is_number()) return std::nullopt;
  auto const value = found->get<double>();
  return std::abs(value) <= largest_plotted ? std::optional(value) : std::nullopt;
}

/// Text at `key`; empty if there is none.
std::string text_of(json const& object, std::string const& key) {
  auto const found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// True if this line, a `run`, continues the training of the last run.
bool continues(json const& line, std::vector<Run> const& runs) {
  return !runs.empty() && line.contains("resumed") && text_of(line, "training") == runs.back().training;
}

void begin_run(json const& line, RunFile& file) {
  auto& runs = file.runs;
  if (!continues(line, runs)) runs.emplace_back().training = text_of(line, "training");
  auto& run = runs.back();
  run.status = "running";
  run.done = nullptr;
  auto const found = line.find("configuration");
  auto const options = found == line.end() ? json() : *found;
  run.length = number(options, "epochs").value_or(number(options, "steps").value_or(0));
  file.num_seeds = number(options, "seeds").value_or(1);
  if (line.contains("split")) file.num_seeds = 2; // or more: --split all
  file.has_ended = false;
}

void add_line(json const& line, RunFile& file) {
  auto const event = text_of(line, "event");
  if (event == "run") begin_run(line, file);
  if (file.runs.empty()) return;
  auto& run = file.runs.back();
  if (event == "done" || event == "stopped") {
    run.status = event;
    run.done = line;
    file.has_ended = event == "stopped" || file.num_seeds <= 1;
  } else if (event == "seeds") {
    file.has_ended = true;
  } else if (event == "epoch" || event == "step") {
    auto const before = run.records.empty() ? 0 : run.records.back().seconds;
    run.records.push_back({number(line, event).value_or(static_cast<double>(run.records.size() + 1)),
                           before + number(line, "seconds").value_or(0), line});
    run.unit = event;
  } else if (event == "eval" && !run.records.empty()) {
    run.records.back().numbers.update(line);
  }
}

/// Reads the runs of a file that have epochs or steps. `nothing_yet` := why there are none: the file does not exist or has no records.
RunFile read_runs(std::string const& path, std::string const& name, std::string& nothing_yet) {
  RunFile result;
  auto& runs = result.runs;
  std::ifstream file(path);
  if (!file) {
    auto const message = fmt::format("cannot read the metrics '{}': {}", path, std::strerror(errno));
    if (errno != ENOENT) throw_user("{}", message);
    nothing_yet = message;
    return result;
  }
  std::string text;
  for (std::int64_t place = 1; std::getline(file, text); ++place) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    auto const line = json::parse(text, nullptr, false);
    if (line.is_discarded() && file.eof())
      break; // a line that is being written, or the last one of a run that was killed
    if (!line.is_object() || !line.contains("event"))
      throw_user("line {} of '{}' is not one of metrics; `train --metrics FILE` writes them", place, path);
    add_line(line, result);
  }
  if (file.bad()) throw_user("cannot read the metrics '{}': {}", path, std::strerror(errno));
  std::erase_if(runs, [](Run const& run) { return run.records.empty(); });
  if (runs.empty()) nothing_yet = fmt::format("'{}' has no epoch and no step to plot", path);
  for (std::size_t i = 0; i < runs.size(); ++i)
    runs[i].name = runs.size() == 1 ? name : fmt::format("{} ({})", name, i + 1);
  return result;
}

/// File names without folders and endings if these differ, otherwise the full paths.
std::vector<std::string> names_of(std::span<std::string const> paths) {
  std::vector<std::string> names;
  for (auto const& path : paths)
    names.push_back(std::filesystem::path(path).stem().string());
  auto sorted = names;
  std::ranges::sort(sorted);
  if (std::ranges::adjacent_find(sorted) != sorted.end()) names.assign(paths.begin(), paths.end());
  return names;
}

struct Field {
  std::string key, split;
  Stroke stroke;
  bool of_one_run = false; // not shown in figures of several runs
};

struct PanelFields {
  std::string title;
  double factor; // from the unit in the files to the unit in the title
  std::vector<Field> fields;
};

std::vector<PanelFields> fields_of(std::string const& unit) {
  std::vector<PanelFields> panels{
      {"loss, nats",
       1,
       {{"loss", "train", Stroke::solid},
        {"val_loss", "validation", Stroke::dashed},
        {"test_loss", "test", Stroke::dotted, true}}},
      {"accuracy, %",
       100,
       {{"train_acc", "train", Stroke::solid, true},
        {"val_acc", "validation", Stroke::dashed},
        {"test_acc", "test", Stroke::dotted, true}}},
      {"R2",
       1,
       {{"train_r2", "train", Stroke::solid, true},
        {"val_r2", "validation", Stroke::dashed},
        {"test_r2", "test", Stroke::dotted, true}}},
      {"ROC-AUC, %",
       100,
       {{"val_roc_auc", "validation", Stroke::dashed}, {"test_roc_auc", "test", Stroke::dotted, true}}}};
  if (unit == "epoch")
    panels.push_back({"seconds per epoch", 1, {{"seconds", "", Stroke::solid}}});
  else
    panels.push_back({"tokens per second", 1, {{"tokens_per_second", "", Stroke::solid}}});
  return panels;
}

std::vector<Point> points_of(Run const& run, XAxis x, std::string const& key, double factor) {
  std::vector<Point> points;
  for (auto const& record : run.records)
    if (auto const y = number(record.numbers, key))
      points.push_back({x == XAxis::steps ? record.position : record.seconds, factor * *y});
  return points;
}

/// Phases that take at least 1 % of the time, longest first: "forward 0.101, backward 0.085".
std::string phases_text(json const& phases) {
  std::vector<std::pair<double, std::string>> parts;
  auto total = 0.0;
  for (auto const& [name, seconds] : phases.items())
    if (seconds.is_number()) parts.emplace_back(seconds.get<double>(), name), total += parts.back().first;
  std::ranges::sort(parts, std::greater());
  std::string text;
  for (auto const& [seconds, name] : parts)
    if (seconds >= total / 100) text += fmt::format("{}{} {:.3g}", text.empty() ? "" : ", ", name, seconds);
  return text;
}

RunState state_of(Run const& run) {
  auto const& last = run.records.back();
  RunState state{run.name, run.status, {}};
  auto const add = [&](std::string name, std::string value) {
    state.facts.emplace_back(std::move(name), std::move(value));
  };
  add(run.unit, run.length > 0 ? fmt::format("{:.0f} of {:.0f}", last.position, run.length)
                               : fmt::format("{:.0f}", last.position));
  for (auto const& [key, name] :
       {std::pair("loss", std::string("loss")), std::pair("val_loss", std::string("validation loss")),
        std::pair("val_acc", std::string("validation accuracy")),
        std::pair("val_r2", std::string("validation R2")),
        std::pair("val_roc_auc", std::string("validation ROC-AUC")),
        std::pair("seconds", "seconds per " + run.unit),
        std::pair("tokens_per_second", std::string("tokens per second"))})
    if (auto const value = number(last.numbers, key)) add(name, fmt::format("{:.6g}", *value));
  if (auto const phases = last.numbers.find("phases"); phases != last.numbers.end())
    add("phases, s", phases_text(*phases));
  if (auto const bytes = number(last.numbers, "sent_bytes"))
    add("MiB sent", fmt::format("{:.1f}", *bytes / 1048576));
  if (auto const bytes = number(run.done, "peak_memory_bytes"))
    add("MiB of memory per rank", fmt::format("{:.1f}", *bytes / 1048576));
  return state;
}

Figure figure_of(std::vector<Run> const& runs, XAxis x) {
  Figure figure;
  if (runs.empty()) return figure;
  auto const& unit = runs.front().unit;
  for (auto const& run : runs)
    if (run.unit != unit)
      throw_user("{} has {}s and {} {}s: plot them one after the other", runs.front().name, unit, run.name,
                 run.unit);
  figure.x_title = x == XAxis::steps ? unit : "training time, s";
  for (auto const& run : runs)
    figure.runs.push_back(run.name);
  for (auto const& [title, factor, fields] : fields_of(unit)) {
    Panel panel{title, {}};
    for (std::size_t i = 0; i < runs.size(); ++i)
      for (auto const& field : fields) {
        if (field.of_one_run && runs.size() > 1) continue;
        auto points = points_of(runs[i], x, field.key, factor);
        if (!points.empty()) panel.curves.push_back({i, field.split, field.stroke, std::move(points)});
      }
    if (!panel.curves.empty()) figure.panels.push_back(std::move(panel));
  }
  return figure;
}

} // namespace

MetricsFigure read_metrics_figure(std::span<std::string const> paths, XAxis x) {
  MetricsFigure result;
  auto const names = names_of(paths);
  std::vector<Run> runs;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    auto file = read_runs(paths[i], names[i], result.nothing_yet);
    result.has_ended = result.has_ended && file.has_ended;
    std::ranges::move(file.runs, std::back_inserter(runs));
  }
  result.figure = figure_of(runs, x);
  for (auto const& run : runs)
    result.states.push_back(state_of(run));
  return result;
}

} // namespace orthant::cli
