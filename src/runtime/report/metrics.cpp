// SPDX-License-Identifier: Apache-2.0
#include "runtime/report/metrics.hpp"

#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/files/staged_file.hpp"

#include <fstream>
#include <ios>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

namespace orthant::runtime {

using Json = nlohmann::ordered_json;

namespace {

/// Throws UserError if the file contains anything but lines of JSON objects. Only the first line is checked.
void require_metrics(std::filesystem::path const& path) {
  constexpr std::size_t most = std::size_t{1} << 20;
  std::string text(most, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(text.data(), static_cast<std::streamsize>(most));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.empty()) return;
  auto const end = text.find('\n');
  // A run that was interrupted may have left an incomplete first line.
  auto const is_metrics =
      end == std::string::npos
          ? text.starts_with("{\"event\"")
          : Json::parse(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false)
                .is_object();
  if (!is_metrics) throw_user("'{}' exists and holds no metrics; name another file", path.string());
}

/// True if the last run of the file was interrupted within a line.
bool ends_inside_a_line(std::filesystem::path const& path) {
  std::error_code error;
  auto const size =
      std::filesystem::is_regular_file(path, error) ? std::filesystem::file_size(path, error) : 0;
  if (error || size == 0) return false;
  std::ifstream file(path, std::ios::binary);
  file.seekg(-1, std::ios::end);
  return file.get() != '\n';
}

} // namespace

std::optional<double> EpochRecord::score(std::string_view name) const {
  for (auto const& [key, value] : scores)
    if (key == name) return value;
  return std::nullopt;
}

Json to_json(EpochRecord const& record) {
  Json json{{"epoch", record.epoch},           {"loss", record.loss},
            {"grad_norms", record.grad_norms}, {"lr", record.learning_rate},
            {"seconds", record.seconds},       {"comm_bytes", record.comm_bytes},
            {"sent_bytes", record.sent_bytes}, {"phases", record.phases.to_json()}};
  if (record.wire_error) json["wire_error"] = *record.wire_error;
  for (auto const& [name, value] : record.scores)
    json[name] = value;
  return json;
}

MetricsWriter::MetricsWriter(Communicator const& comm, std::string const& path, OlderMetrics older)
    : path_(path),
      is_on_(comm.is_root() && !path.empty()),
      is_virtual_(comm.instruments().clock.machine() != nullptr),
      older_(older),
      log_(&comm.instruments().log) {
  together(comm, [&] {
    if (!is_on_) return;
    auto const target = link_target(path_);
    std::error_code ignored;
    auto const status = std::filesystem::status(target, ignored);
    auto const is_regular = std::filesystem::is_regular_file(status);
    auto const was_there = std::filesystem::exists(status);
    if (is_regular) require_metrics(target);
    // Opening and closing a pipe would tell its reader that there are no more lines.
    if (was_there && !is_regular && !std::filesystem::is_directory(status)) return;
    open();
    file_.close();
    if (!was_there) std::filesystem::remove(target, ignored);
  });
}

void MetricsWriter::open() {
  file_ = WritableFile(path_, WritableFile::Mode::append, {"metrics", path_});
}

void MetricsWriter::write(std::string_view event, Json const& fields) {
  if (!is_on() || failure_) return;
  Json line{{"event", event}};
  line.update(fields);
  if (is_virtual_) line["clock"] = "virtual";
  try {
    if (!file_.is_open()) {
      open();
      std::error_code ignored;
      if (older_ == OlderMetrics::replaced && std::filesystem::is_regular_file(path_, ignored))
        file_.set_size(0);
      else if (ends_inside_a_line(path_))
        file_.append("\n");
    }
    // Text that is not valid UTF-8 (a path, for example) is made readable and not refused.
    file_.append(line.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n');
  } catch (UserError const& error) {
    failure_ = error.what();
    log_->warn("{}; the run goes on without metrics", *failure_);
  }
}

void MetricsWriter::write(EpochRecord const& record) {
  if (is_on()) write("epoch", to_json(record));
}

void MetricsWriter::close(Communicator const& comm) {
  together(comm, [&] {
    if (failure_) throw UserError(*failure_);
    file_.close();
    is_on_ = false;
  });
}

namespace {

/// Decides for each line of a file, in order, whether it stays.
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
    // A language model counts steps; each step is an epoch of its trainer.
    auto const is_step = event == "step" || event == "eval";
    auto const is_numbered = is_step || event == "epoch";
    if (is_numbered && json.value(is_step ? "step" : "epoch", Json()) >= epoch_) has_cut_ = true;
    return !has_cut_ || (!is_numbered && event != "done");
  }

 private:
  std::string const& training_;
  std::int64_t epoch_;
  bool is_ours_ = false; // true if the current lines belong to a run of this training
  bool has_cut_ = false; // true if lines of that run have been removed
};

void cut_file(std::filesystem::path const& path, std::string const& training, std::int64_t epoch) {
  std::ifstream old(path, std::ios::binary);
  if (!old) throw_user("cannot read the metrics file '{}'", path.string());
  Cut cut(training, epoch);
  std::string kept;
  auto is_cut = false;
  for (std::string line; std::getline(old, line);) {
    auto const is_complete = !old.eof(); // true if a line break follows
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

namespace {

/// The file, on rank 0. A failure is reported at the end, so that the other ranks do not hang.
class TraceFile {
 public:
  TraceFile(Communicator const& comm, std::string const& path) : comm_(comm) {
    attempt([&] {
      staged_ = StagedFile(path, "trace");
      staged_.file().append("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    });
  }
  void append(std::string_view text) {
    attempt([&] { staged_.file().append(text); });
  }
  /// Collective.
  void publish() {
    attempt([&] {
      staged_.file().append("\n]}\n");
      staged_.publish();
    });
    together(comm_, [&] {
      if (failure_) throw *failure_;
    });
  }

 private:
  template<class Action>
  void attempt(Action&& action) {
    if (failure_ || !comm_.is_root()) return;
    try {
      action();
    } catch (UserError const& error) {
      failure_ = error;
    }
  }

  Communicator const& comm_;
  std::optional<UserError> failure_;
  StagedFile staged_;
};

} // namespace

void write_trace(Communicator const& comm, Trace const& trace, std::string const& path) {
  auto const recorded = trace.num_records();
  // Time zero is the start of the first rank.
  constexpr auto off = std::numeric_limits<std::int64_t>::max();
  auto const zero = all_reduced(comm, trace.is_on() ? trace.origin_of_system_ns() : off, Reduction::min);
  auto mine = together(comm, [&] {
    return trace.events_of(comm.rank(), recorded, trace.is_on() ? trace.origin_of_system_ns() - zero : 0);
  });
  if (!comm.is_root()) mine.insert(0, ",\n");

  TraceFile file(comm, path);
  gather_text(comm, std::move(mine), [&](std::string_view piece) { file.append(piece); });
  file.publish();
}

void write_timelines(Communicator const& comm, std::deque<Trace> const& traces, std::string const& path) {
  TraceFile file(comm, path);
  auto rank = 0;
  for (auto const& trace : traces) {
    if (rank > 0) file.append(",\n");
    file.append(trace.events_of(rank++, trace.num_records(), 0));
  }
  file.publish();
}

} // namespace orthant::runtime
