// SPDX-License-Identifier: Apache-2.0
#include "models/plan/spmm_times.hpp"

#include "runtime/error.hpp"
#include "runtime/files/table_file.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

namespace orthant::models {
namespace {

constexpr auto kind = "spmm_times";
constexpr std::int64_t format = 1;
constexpr std::int64_t most_width = std::int64_t{1} << 20;

/// Per non-zero.
double seconds_of(SpmmTimes::Point const& point) {
  return static_cast<double>(point.width) * point.seconds;
}

/// What is wrong with it; empty: nothing.
std::string fault_of(SpmmTimes const& times, std::string_view dtype) {
  if (times.points.empty()) return "it has no times";
  std::int64_t before = 0;
  for (auto const& [width, seconds] : times.points) {
    if (width <= before || width > most_width)
      return fmt::format("width {} after {}: widths increase, and are at most {}", width, before, most_width);
    if (!std::isfinite(seconds) || seconds <= 0)
      return fmt::format("{} seconds at width {}: times are above 0", seconds, width);
    before = width;
  }
  if (times.dtype != dtype)
    return fmt::format("its times are those of {}, and training computes in {}", times.dtype, dtype);
  return {};
}

SpmmTimes times_of(nlohmann::json const& json) {
  SpmmTimes times;
  for (auto const& point : json.at("times")) {
    auto const& width = point.at("width");
    times.points.push_back({width.is_number_integer() ? width.get<std::int64_t>() : 0,
                            point.at("seconds_per_nonzero_and_column").get<double>()});
  }
  times.processor = json.at("processor").get<std::string>();
  times.date = json.at("date").get<std::string>();
  times.dtype = json.at("dtype").get<std::string>();
  times.version = json.at("version").get<std::string>();
  return times;
}

} // namespace

double SpmmTimes::seconds(std::int64_t num_nonzeros, std::int64_t width) const {
  auto const nonzeros = static_cast<double>(num_nonzeros);
  auto const above = std::ranges::lower_bound(points, width, {}, &Point::width);
  if (above == points.end()) return nonzeros * static_cast<double>(width) * points.back().seconds;
  if (above == points.begin()) return nonzeros * seconds_of(points.front());
  auto const& below = *std::prev(above);
  auto const part =
      static_cast<double>(width - below.width) / static_cast<double>(above->width - below.width);
  return nonzeros * (seconds_of(below) + part * (seconds_of(*above) - seconds_of(below)));
}

SpmmTimes const& built_in_spmm_times() {
  static SpmmTimes const times{{{16, 0.13e-9}, {32, 0.1e-9}}, "", "", "", ""};
  return times;
}

double spmm_seconds(pmm::StepPlan const& step, SpmmTimes const& times) {
  auto sum = 0.0;
  for (auto const& product : products_of(step))
    if (product.is_sparse && product.n > 0) sum += times.seconds(product.num_nonzeros, product.n);
  return sum;
}

std::string text_of(SpmmTimes const& times) {
  auto points = nlohmann::ordered_json::array();
  for (auto const& [width, seconds] : times.points)
    points.push_back({{"width", width}, {"seconds_per_nonzero_and_column", seconds}});
  nlohmann::ordered_json const json{{"table", kind},
                                    {"format", format},
                                    {"processor", times.processor},
                                    {"date", times.date},
                                    {"dtype", times.dtype},
                                    {"version", times.version},
                                    {"times", std::move(points)}};
  return json.dump(1) + "\n";
}

SpmmTimes parse_spmm_times(std::string_view text, std::filesystem::path const& path, std::string_view dtype) {
  auto const refuse = [&](std::string const& fault) {
    runtime::throw_user("cannot use the table '{}': {}; orthant bench spmm --table writes one", path.string(),
                        fault);
  };
  SpmmTimes times;
  try {
    auto const json = nlohmann::json::parse(text);
    if (json.at("table") != kind || json.at("format") != format) refuse("it is not a table of this version");
    times = times_of(json);
  } catch (nlohmann::json::exception const&) {
    refuse("it is no table of times of sparse products");
  }
  if (auto const fault = fault_of(times, dtype); !fault.empty()) refuse(fault);
  return times;
}

SpmmTimes read_spmm_times(runtime::Communicator const& comm, std::filesystem::path const& path,
                          std::string_view dtype) {
  if (path.empty()) return built_in_spmm_times();
  auto const text = runtime::read_table_file(
      comm, path, [&](std::string_view read) { std::ignore = parse_spmm_times(read, path, dtype); });
  return parse_spmm_times(text, path, dtype);
}

} // namespace orthant::models
