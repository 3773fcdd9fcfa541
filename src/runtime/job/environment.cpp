// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/environment.hpp"

#include "runtime/device/kokkos_compat.hpp"
#include "runtime/error.hpp"
#include "runtime/job/job_end.hpp"
#include "runtime/suggestion.hpp"

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <unistd.h>

namespace orthant::runtime {

std::optional<std::string> find_slurm_mistake(int mpi_size, Getenv const& getenv) {
  if (mpi_size != 1 || getenv("OMPI_COMM_WORLD_SIZE") != nullptr) return std::nullopt;
  auto const* const text = getenv("SLURM_STEP_NUM_TASKS");
  if (text == nullptr) return std::nullopt;
  int num_tasks = 0;
  auto const tasks = std::string_view(text);
  auto const parsed = std::from_chars(tasks.data(), tasks.data() + tasks.size(), num_tasks);
  if (parsed.ec != std::errc{} || num_tasks <= 1) return std::nullopt;
  return fmt::format(
      "Slurm started {} tasks, but to MPI each is a job of its own: start it with `srun --mpi=pmix` "
      "(`srun --mpi=list` shows what there is) or with mpirun",
      num_tasks);
}

void check_slurm_launch(int mpi_size) {
  auto const mistake = find_slurm_mistake(mpi_size, [](char const* name) { return std::getenv(name); });
  if (!mistake) return;
  auto const* const task = std::getenv("SLURM_PROCID");
  auto const is_first = task == nullptr || std::string_view(task) == "0";
  throw UserError(is_first ? *mistake : std::string());
}

} // namespace orthant::runtime

namespace orthant::runtime::detail {
namespace {

constexpr std::string_view prefix = "--kokkos-";

enum class Value : std::uint8_t { none, text, count, device };

struct Option {
  std::string_view name; // without the prefix
  Value value;
};

/// The options of Kokkos 3.4 to 5. num-devices may have a second number, hence text.
constexpr std::array options{Option{"num-threads", Value::count},
                             Option{"threads", Value::count},
                             Option{"numa", Value::count},
                             Option{"device-id", Value::device},
                             Option{"device", Value::device},
                             Option{"num-devices", Value::text},
                             Option{"ndevices", Value::text},
                             Option{"map-device-id-by", Value::text},
                             Option{"tools-libs", Value::text},
                             Option{"tools-library", Value::text},
                             Option{"tools-args", Value::text},
                             Option{"tools-help", Value::none},
                             Option{"disable-warnings", Value::none},
                             Option{"tune-internals", Value::none},
                             Option{"print-configuration", Value::none},
                             Option{"help", Value::none}};

void check_option(std::string_view argument, int num_devices) {
  auto const equals = argument.find('=');
  auto const name = argument.substr(prefix.size(), equals - prefix.size());
  auto const known = std::ranges::find(options, name, &Option::name);
  if (known == options.end()) {
    std::vector<std::string_view> names;
    for (auto const& option : options)
      names.push_back(option.name);
    throw_user("{}{} is not an option of Kokkos{} (there are {})", prefix, name,
               did_you_mean(name, names, prefix), fmt::join(names, ", "));
  }
  if (known->value == Value::none) return;

  auto const text = equals == std::string_view::npos ? std::string_view() : argument.substr(equals + 1);
  if (text.empty()) throw_user("{}{} needs a value: {}{}=..", prefix, name, prefix, name);
  if (known->value == Value::text) return;
  auto const lowest = known->value == Value::count ? 1 : 0;
  int number = 0;
  auto const parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || number < lowest)
    throw_user("{}: '{}' must be a whole number of at least {}", argument.substr(0, equals), text, lowest);
  if (known->value == Value::device && number >= num_devices)
    throw_user("{}: {}", argument,
               num_devices == 0
                   ? std::string("there is no device here")
                   : fmt::format("there are {} devices here, 0 to {}", num_devices, num_devices - 1));
}

/// Converts names that changed with Kokkos 3.7 to the names of this version.
std::string as_known_here(std::string const& argument) {
  constexpr std::array<std::array<std::string_view, 2>, 2> names{
      {{"--kokkos-threads=", "--kokkos-num-threads="}, {"--kokkos-tools-library=", "--kokkos-tools-libs="}}};
  constexpr auto here = KOKKOS_VERSION >= 30700 ? 1 : 0;
  for (auto const& name : names)
    if (argument.starts_with(name[1 - here]))
      return std::string(name[here]) + argument.substr(name[1 - here].size());
  return argument;
}

/// Kokkos's exception as one of our errors. If it concerns options or variables, it is a mistake of the user.
struct KokkosFailure {
  explicit KokkosFailure(std::exception const& error) : message(describe(error)) {
    if (auto const end = message.find(" Raised by Kokkos::initialize"); end != std::string::npos) {
      message.resize(end);
      status = exit_user;
    }
    if (message.starts_with("Error: ")) message.erase(0, 7);
    message.insert(0, "Kokkos does not start: ");
  }

  std::string message;
  int status = exit_internal;
};

/// The text that Kokkos has written, without its warnings, which are not the cause; all of it if there is nothing else.
std::string without_warnings(std::string const& text) {
  std::istringstream lines(text);
  std::string kept;
  for (std::string line; std::getline(lines, line);)
    if (!line.starts_with("Warning")) kept += line + '\n';
  return kept.find_first_not_of(" \n") == std::string::npos ? text : kept;
}

/// While it exists, text written to std::cerr is held back, and SIGABRT ends the job with that text.
class AbortCatcher {
 public:
  AbortCatcher() : cerr_(std::cerr.rdbuf(&held_)) {
    current = this;
    before_ = std::signal(SIGABRT, [](int) { current->end_with_text(); });
  }
  AbortCatcher(AbortCatcher const&) = delete;
  AbortCatcher& operator=(AbortCatcher const&) = delete;
  ~AbortCatcher() {
    std::signal(SIGABRT, before_);
    std::cerr.rdbuf(cerr_);
    if (!is_dropped_) std::fputs(held_.str().c_str(), stderr); // only warnings
  }
  void drop_text() { is_dropped_ = true; }

 private:
  void end_with_text() {
    std::signal(SIGABRT, SIG_DFL);
    ::alarm(5); // an allocation may wait forever for a lock that is held
    auto const text = held_.str();
    KokkosFailure const failure(std::runtime_error(text.empty() ? "it aborted" : without_warnings(text)));
    end_job(failure.status, failure.message.c_str());
  }

  static inline AbortCatcher* current = nullptr; // the only data that a signal handler can access
  std::stringbuf held_;
  std::streambuf* cerr_;
  void (*before_)(int) = SIG_DFL;
  bool is_dropped_ = false;
};

} // namespace

bool is_for_kokkos(std::string_view argument) {
  return argument.starts_with(prefix);
}

void check_kokkos_options(std::span<std::string const> arguments, int num_devices) {
  for (auto const& argument : arguments)
    check_option(argument, num_devices);
}

void start_kokkos(std::vector<std::string> const& arguments, int device) {
  std::vector<std::string> known;
  std::ranges::transform(arguments, std::back_inserter(known), as_known_here);
  AbortCatcher catcher;
  try {
    compat::initialize(known, device);
  } catch (std::exception const& error) {
    catcher.drop_text();
    KokkosFailure const failure(error);
    if (failure.status == exit_user) throw UserError(failure.message);
    throw Error(failure.message);
  }
}

} // namespace orthant::runtime::detail

namespace orthant::runtime {
namespace detail {

MpiSession::MpiSession(int thread_level) : num_exceptions_(std::uncaught_exceptions()) {
  int is_initialised = 0;
  MPI_Initialized(&is_initialised);
  if (is_initialised != 0) {
    MPI_Query_thread(&thread_level_);
  } else {
    check_mpi(MPI_Init_thread(nullptr, nullptr, thread_level, &thread_level_), "MPI_Init_thread");
    is_ours_ = true;
  }
}

MpiSession::~MpiSession() {
  int is_finalised = 0;
  MPI_Finalized(&is_finalised);
  if (is_ours_ && is_finalised == 0 && std::uncaught_exceptions() == num_exceptions_) MPI_Finalize();
}

void KokkosSession::start(std::vector<std::string> const& arguments, int device) {
  if (Kokkos::is_initialized()) return;
  start_kokkos(arguments, device);
  is_ours_ = true;
}

KokkosSession::~KokkosSession() {
  if (is_ours_ && Kokkos::is_initialized()) Kokkos::finalize();
}

} // namespace detail

namespace {

/// True if the user has chosen a device for Kokkos.
bool has_chosen_device(std::vector<std::string> const& arguments) {
  auto const chooses = [](std::string_view argument) {
    return argument.starts_with("--kokkos-device-id") || argument.starts_with("--kokkos-num-devices") ||
           argument.starts_with("--kokkos-ndevices") || argument.starts_with("--kokkos-map-device-id-by");
  };
  constexpr std::array variables{"KOKKOS_DEVICE_ID", "KOKKOS_NUM_DEVICES", "KOKKOS_RAND_DEVICES",
                                 "KOKKOS_VISIBLE_DEVICES", "KOKKOS_MAP_DEVICE_ID_BY"};
  return std::ranges::any_of(arguments, chooses) ||
         std::ranges::any_of(variables, [](char const* name) { return std::getenv(name) != nullptr; });
}

detail::MpiComm duplicate_world() {
  MPI_Comm copy = MPI_COMM_NULL;
  ORTHANT_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &copy));
  ORTHANT_MPI(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN));
  return detail::MpiComm(copy);
}

} // namespace

Environment::Environment(int argc, char const* const* argv, EnvironmentOptions options)
    : mpi_(options.thread_level),
      instruments_(std::make_shared<Instruments>()) {
  for (int i = 1; i < argc; ++i)
    (detail::is_for_kokkos(argv[i]) ? kokkos_arguments_ : arguments_).emplace_back(argv[i]);
  // Errors of MPI calls by libraries on these two communicators also return a code.
  ORTHANT_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  ORTHANT_MPI(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
  int size = 1;
  ORTHANT_MPI(MPI_Comm_size(MPI_COMM_WORLD, &size));
  if (options.checks_launch) check_slurm_launch(size);
  exit_comm_ = duplicate_world();
  world_.emplace(MPI_COMM_WORLD, "world", instruments_);
  watchdog_ = std::make_unique<Watchdog>(MPI_COMM_WORLD, instruments_, options.timeout_seconds);
  if (!watchdog_->talks_to_others() && world_->is_root() && world_->size() > 1)
    instruments_->log.warn("MPI gives {} only: should the job hang, each rank reports for itself",
                           name_of_thread_level(mpi_.thread_level()));
  binding_ = find_binding(world_->rank(), 0, -1);
  if (options.starts_kokkos) start_kokkos();
}

void Environment::start_kokkos() {
  if (has_started_kokkos_) return;
  auto const num_devices = num_visible_devices();
  detail::check_kokkos_options(kokkos_arguments_, num_devices);
  auto const node = [&] {
    WaitingScope const waiting(instruments_->position, "start of Kokkos");
    return world_->split_by_node();
  }();
  auto const choose = num_devices > 0 && !has_chosen_device(kokkos_arguments_);
  {
    WorkingScope const working(instruments_->position); // device drivers may take long
    kokkos_.start(kokkos_arguments_, choose ? node.rank() % num_devices : -1);
  }
  has_started_kokkos_ = true;
  binding_ = find_binding(world_->rank(), node.rank(), num_devices > 0 ? current_device() : -1);
  warn_of_shared_devices(node);
}

void Environment::warn_of_shared_devices(Communicator const& node) const {
  auto const bindings = gather_bindings(node, binding_);
  for (auto const& line : find_shared_devices(bindings))
    instruments_->log.warn("{}", line);
}

std::string_view name_of_thread_level(int level) {
  switch (level) {
  case MPI_THREAD_SINGLE:
    return "MPI_THREAD_SINGLE";
  case MPI_THREAD_FUNNELED:
    return "MPI_THREAD_FUNNELED";
  case MPI_THREAD_SERIALIZED:
    return "MPI_THREAD_SERIALIZED";
  case MPI_THREAD_MULTIPLE:
    return "MPI_THREAD_MULTIPLE";
  default:
    return "an unknown thread level";
  }
}

} // namespace orthant::runtime
