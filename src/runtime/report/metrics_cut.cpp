// SPDX-License-Identifier: Apache-2.0
#include "runtime/report/metrics_cut.hpp"

#include "runtime/comm/together.hpp"
#include "runtime/files/staged_file.hpp"

#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

namespace orthant::runtime {
namespace {

using Json = nlohmann::ordered_json;

/// Which lines of a file stay, one after the other.
class Cut {
 public:
  Cut(std::string const& training, std::int64_t epoch) : training_(training), epoch_(epoch) {}

  [[nodiscard]] bool keeps(std::string const& line, bool is_complete) {
    auto const json = Json::parse(line, nullptr, false);
    auto const event = json.is_object() ? json.value("event", Json()) : Json();
    if (event == "run") {
      is_ours_ = json.value("training", Json()) == training_;
      has_cut_ = false;
    }
    if (!is_ours_) return true;
    if (!is_complete) return false;
    // A language model counts steps, and each is an epoch of its trainer.
    auto const is_step = event == "step" || event == "eval";
    auto const is_numbered = is_step || event == "epoch";
    if (is_numbered && json.value(is_step ? "step" : "epoch", Json()) >= epoch_) has_cut_ = true;
    return !has_cut_ || (!is_numbered && event != "done");
  }

 private:
  std::string const& training_;
  std::int64_t epoch_;
  bool is_ours_ = false; // the run that the lines belong to
  bool has_cut_ = false; // of that run
};

void cut_file(std::filesystem::path const& path, std::string const& training, std::int64_t epoch) {
  std::ifstream old(path, std::ios::binary);
  if (!old) throw_user("cannot read the metrics file '{}'", path.string());
  Cut cut(training, epoch);
  std::string kept;
  auto is_cut = false;
  for (std::string line; std::getline(old, line);) {
    auto const is_complete = !old.eof(); // behind it is a line break
    if (cut.keeps(line, is_complete))
      kept += is_complete ? line + '\n' : line;
    else
      is_cut = true;
  }
  if (!is_cut) return;
  StagedFile file(path, "metrics");
  file.file().append(kept);
  file.publish();
}

bool has_run_of(std::filesystem::path const& path, std::string const& training) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw_user("cannot read the metrics file '{}'", path.string());
  for (std::string line; std::getline(file, line);) {
    if (line.find("\"training\"") == std::string::npos) continue;
    auto const json = Json::parse(line, nullptr, false);
    if (json.is_object() && json.value("event", Json()) == "run" &&
        json.value("training", Json()) == training)
      return true;
  }
  return false;
}

} // namespace

std::filesystem::path set_aside_other_metrics(Communicator const& comm, std::filesystem::path const& path,
                                              std::string const& training) {
  std::filesystem::path name;
  together(comm, [&] {
    std::error_code ignored;
    if (comm.is_root() && std::filesystem::is_regular_file(path, ignored) && !has_run_of(path, training))
      name = set_aside_if_any(path);
  });
  return name;
}

void cut_metrics(Communicator const& comm, std::filesystem::path const& path, std::string const& training,
                 std::int64_t epoch) {
  together(comm, [&] {
    if (!comm.is_root() || path.empty()) return;
    std::error_code ignored;
    auto const target = link_target(path);
    if (std::filesystem::is_regular_file(target, ignored)) cut_file(target, training, epoch);
  });
}

} // namespace orthant::runtime
