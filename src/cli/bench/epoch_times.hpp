#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What the epochs of `orthant bench epoch` took: seconds, phases, and what was communicated.

#include "cli/bench/bench.hpp"
#include "runtime/report/metrics.hpp"

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace orthant::cli {

class EpochTimes {
 public:
  void add(runtime::EpochRecord const& record) {
    seconds_.push_back(record.seconds);
    auto explained = 0.0;
    for (auto const& phase : record.phases.phases()) {
      if (!phases_.contains(phase.name)) order_.push_back(phase.name);
      phases_[phase.name].push_back(phase.seconds);
      explained += phase.seconds;
    }
    shares_.push_back(explained / record.seconds);
    comm_bytes_ = record.comm_bytes;
    sent_bytes_ = record.sent_bytes;
    loss_ = record.loss;
  }

  /// Returns the median. Collective.
  double describe(nlohmann::ordered_json& line, runtime::Communicator const& world) const {
    auto const seconds = summarise(world, seconds_);
    line["seconds"] = seconds.median;
    line["min_seconds"] = seconds.minimum;
    auto& table = line["phases"] = nlohmann::ordered_json::object();
    for (auto const& name : order_) {
      auto const median = summarise(world, phases_.at(name)).median;
      if (median > 0) table[name] = median; // 0: of the first epoch alone, before a device's were recorded
    }
    line["phases_share"] = runtime::all_reduced(world, median_of(shares_), runtime::Reduction::min);
    line["comm_bytes"] = comm_bytes_;
    line["sent_bytes"] = sent_bytes_;
    line["loss"] = loss_;
    return seconds.median;
  }

 private:
  std::vector<double> seconds_;
  std::vector<double> shares_; // of an epoch that this rank's phases explain
  std::vector<std::string> order_;
  std::map<std::string, std::vector<double>> phases_;
  std::int64_t comm_bytes_ = 0;
  std::int64_t sent_bytes_ = 0;
  double loss_ = 0;
};

} // namespace orthant::cli
