// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/environment.hpp"

#include "runtime/error.hpp"
#include "runtime/job/kokkos_start.hpp"
#include "runtime/job/slurm_check.hpp"

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>

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

/// True if the user told Kokkos which device to take.
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
  // What libraries do on these two returns its code to us, too.
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
    WorkingScope const working(instruments_->position); // drivers of devices take their time
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
