// SPDX-License-Identifier: Apache-2.0
#include "runtime/report/timer.hpp"

#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace orthant::runtime {

void PhaseTimes::add(std::string_view name, double seconds) {
  auto found =
      std::find_if(phases_.begin(), phases_.end(), [&](auto const& phase) { return phase.name == name; });
  if (found == phases_.end()) found = phases_.insert(found, Phase{std::string(name), 0, 0});
  found->seconds += seconds;
  ++found->calls;
}

void PhaseTimes::read_stamps() {
  if (clock_ == nullptr) return;
  for (auto const& stamps : stamps_)
    add(stamps.name, clock_->seconds(stamps.begin, stamps.end));
  stamps_.clear();
  clock_->clear();
}

PhaseTimes PhaseTimes::without_clock() const {
  PhaseTimes result;
  result.phases_ = phases_;
  return result;
}

void PhaseTimes::clear() {
  for (auto& phase : phases_) {
    phase.seconds = 0;
    phase.calls = 0;
  }
}

double PhaseTimes::seconds(std::string_view name) const {
  for (auto const& phase : phases_)
    if (phase.name == name) return phase.seconds;
  return 0;
}

nlohmann::ordered_json PhaseTimes::to_json() const {
  auto json = nlohmann::ordered_json::object();
  for (auto const& phase : phases_)
    if (phase.calls > 0) json[phase.name] = phase.seconds;
  return json;
}

double ScopedTimer::stop() {
  if (seconds_) return *seconds_;
  auto const end = clock_.now();
  region_.reset();
  seconds_ = std::chrono::duration<double>(end - begin_).count();
  if (phases_.clock() == nullptr) {
    phases_.add(name_, *seconds_);
  } else {
    try {
      phases_.add_stamps(name_, begin_stamp_, phases_.clock()->stamp());
    } catch (Error const&) { // ignored, as this may be a destructor; the next wait reports it
    }
  }
  trace_.add(name_, "regions", begin_, end);
  return *seconds_;
}

} // namespace orthant::runtime
