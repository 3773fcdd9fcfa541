// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/trace.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>

namespace orthant::runtime {
namespace {

std::string json_string(std::string_view text) {
  using nlohmann::json;
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

/// The viewers draw the slices of one lane nested. Slices that overlap without nesting (collectives in progress at the same time) therefore
/// need additional lanes: chooses the first lane in which a slice nests, for slices in ascending order of their begin.
class NestingLanes {
 public:
  std::size_t place(std::int64_t begin, std::int64_t end) {
    for (std::size_t i = 0;; ++i) {
      if (i == open_.size()) open_.emplace_back();
      auto& ends = open_[i];
      while (!ends.empty() && ends.back() <= begin)
        ends.pop_back();
      if (!ends.empty() && ends.back() < end) continue;
      ends.push_back(end);
      return i;
    }
  }

 private:
  std::vector<std::vector<std::int64_t>> open_; // by lane: ends of the slices that enclose `begin`
};

} // namespace

void Trace::start(std::size_t capacity, std::optional<Clock::time_point> origin) {
  std::lock_guard const lock(mutex_);
  records_.clear();
  records_.reserve(capacity);
  names_.reserve(64);
  num_dropped_ = 0;
  origin_ = origin.value_or(Clock::now());
  auto const system = std::chrono::system_clock::now().time_since_epoch();
  origin_of_system_ns_ = origin ? 0 : std::chrono::duration_cast<std::chrono::nanoseconds>(system).count();
  is_on_ = true;
}

void Trace::add(std::string_view name, std::string_view lane, Clock::time_point begin, Clock::time_point end,
                std::int64_t bytes) {
  using std::chrono::duration_cast;
  using std::chrono::nanoseconds;
  if (!is_on_) return;
  std::lock_guard const lock(mutex_);
  if (records_.size() == records_.capacity()) {
    ++num_dropped_;
    return;
  }
  records_.push_back({index_of(name), index_of(lane), duration_cast<nanoseconds>(begin - origin_).count(),
                      duration_cast<nanoseconds>(end - begin).count(), bytes});
}

std::int64_t Trace::num_records() const {
  std::lock_guard const lock(mutex_);
  return static_cast<std::int64_t>(records_.size());
}

std::int64_t Trace::num_dropped() const {
  std::lock_guard const lock(mutex_);
  return num_dropped_;
}

std::uint32_t Trace::index_of(std::string_view name) {
  auto const found = std::find(names_.begin(), names_.end(), name);
  auto const index = static_cast<std::uint32_t>(found - names_.begin());
  if (found == names_.end()) names_.emplace_back(name);
  return index;
}

std::string Trace::events_of(int rank, std::int64_t num_records, std::int64_t shift_ns) const {
  std::lock_guard const lock(mutex_);
  // Enclosing slices come before enclosed ones.
  std::vector<std::size_t> order(static_cast<std::size_t>(num_records));
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t i, std::size_t j) {
    auto const& x = records_[i];
    auto const& y = records_[j];
    return x.begin_ns != y.begin_ns ? x.begin_ns < y.begin_ns : x.duration_ns > y.duration_ns;
  });

  std::string text;
  auto const out = std::back_inserter(text);
  fmt::format_to(
      out,
      "{{\"ph\":\"M\",\"pid\":{0},\"name\":\"process_name\",\"args\":{{\"name\":\"rank {0}\"}}}},\n"
      "{{\"ph\":\"M\",\"pid\":{0},\"name\":\"process_sort_index\",\"args\":{{\"sort_index\":{0}}}}}",
      rank);
  if (num_dropped_ > 0)
    fmt::format_to(
        out,
        ",\n{{\"ph\":\"M\",\"pid\":{},\"name\":\"process_labels\",\"args\":{{\"labels\":\"{} later "
        "records dropped\"}}}}",
        rank, num_dropped_);

  std::vector<std::string> quoted_names;
  for (auto const& name : names_)
    quoted_names.push_back(json_string(name));
  std::vector<NestingLanes> lanes(names_.size());
  std::vector<std::vector<int>> threads(names_.size()); // [lane][place]: thread number in the file
  int num_threads = 0;
  for (auto const i : order) {
    auto const& record = records_[i];
    auto const place = lanes[record.lane].place(record.begin_ns, record.begin_ns + record.duration_ns);
    auto& numbers = threads[record.lane];
    if (place == numbers.size()) {
      numbers.push_back(num_threads++);
      auto const& lane = names_[record.lane];
      fmt::format_to(
          out, ",\n{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"thread_name\",\"args\":{{\"name\":{}}}}}",
          rank, numbers.back(), json_string(place == 0 ? lane : fmt::format("{} ({})", lane, place + 1)));
    }
    fmt::format_to(out, ",\n{{\"ph\":\"X\",\"pid\":{},\"tid\":{},\"name\":{},\"ts\":{:.3f},\"dur\":{:.3f}",
                   rank, numbers[place], quoted_names[record.name],
                   static_cast<double>(record.begin_ns + shift_ns) * 1e-3,
                   static_cast<double>(record.duration_ns) * 1e-3);
    if (record.bytes >= 0) fmt::format_to(out, ",\"args\":{{\"bytes\":{}}}", record.bytes);
    text += '}';
  }
  return text;
}

} // namespace orthant::runtime
