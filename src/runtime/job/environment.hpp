#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Start and end of a program: MPI with the thread level that it needs, the Slurm check, the device by node-local rank, Kokkos, the
// instruments, the world communicator and the watchdog. Everything ends in reverse order, so that communicators end before Kokkos, and
// Kokkos before MPI.

#include "runtime/comm/communicator.hpp"
#include "runtime/machine/binding.hpp"
#include "runtime/observe/trace.hpp"
#include "runtime/report/watchdog.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::runtime {

// Recognizes a job that Slurm started as many single processes. If srun lacks the plugin that the MPI library needs, every task has an
// MPI_COMM_WORLD of its own: each would run the whole job and write the same files.

/// Value of an environment variable, or nullptr if it is not set.
using Getenv = std::function<char const*(char const*)>;

/// The mistake and its correction, or nothing. SLURM_NTASKS does not help here: batch scripts and mpirun inside an allocation also set it.
[[nodiscard]] std::optional<std::string> find_slurm_mistake(int mpi_size, Getenv const& getenv);

/// Throws UserError if Slurm started single processes. Its text is empty on all tasks but the first, so that it is printed once.
void check_slurm_launch(int mpi_size);

} // namespace orthant::runtime

namespace orthant::runtime::detail {

// Starts Kokkos with checks: wrong options are refused, and a failure of Kokkos (several lines of output and, since 3.7, SIGABRT) becomes a
// normal error.

/// True for --kokkos-* options, which are passed to Kokkos.
[[nodiscard]] bool is_for_kokkos(std::string_view argument);

/// Throws UserError if an argument is not an option of Kokkos (Kokkos only ignores it or warns), if a value is not a number, or if the
/// chosen device is not among the `num_devices` that this rank sees.
void check_kokkos_options(std::span<std::string const> arguments, int num_devices);

/// Calls Kokkos::initialize with --kokkos-* options and the index of this rank's device (-1: Kokkos chooses). Throws UserError if Kokkos
/// refuses an option or a KOKKOS_* variable, and Error if it cannot start. If Kokkos aborts, this rank prints the same message and ends the
/// job.
void start_kokkos(std::vector<std::string> const& arguments, int device);

} // namespace orthant::runtime::detail

namespace orthant::runtime {

struct EnvironmentOptions {
  /// MULTIPLE because the watchdog's thread exchanges messages with other watchdogs. With a lower level, each rank reports only for itself.
  int thread_level = MPI_THREAD_MULTIPLE;
  double timeout_seconds = default_timeout_seconds;
  /// If false, Kokkos starts only with start_kokkos(): help texts and mistakes on the command line need no device.
  bool starts_kokkos = true;
  /// If false, single processes that Slurm started in place of one job may continue, for example to diagnose the mistake.
  bool checks_launch = true;
};

namespace detail {
/// MPI from Init to Finalize. If MPI was already initialized, it is left alone. While an exception unwinds, MPI is not finalized:
/// MPI_Finalize could wait for ranks that wait for this one. The process then exits with an error, and its launcher ends the others.
class MpiSession {
 public:
  explicit MpiSession(int thread_level);
  MpiSession(MpiSession const&) = delete;
  MpiSession& operator=(MpiSession const&) = delete;
  ~MpiSession();
  [[nodiscard]] int thread_level() const { return thread_level_; }

 private:
  bool is_ours_ = false;
  int thread_level_ = MPI_THREAD_SINGLE;
  int num_exceptions_; // in progress when the session began
};

/// Kokkos from its start to finalize(). If Kokkos was already initialized, it is left alone.
class KokkosSession {
 public:
  KokkosSession() = default;
  KokkosSession(KokkosSession const&) = delete;
  KokkosSession& operator=(KokkosSession const&) = delete;
  ~KokkosSession();
  void start(std::vector<std::string> const& arguments, int device);

 private:
  bool is_ours_ = false;
};
} // namespace detail

/// One per program, created by run_main, or first in main. Construction and destruction are collective over all ranks. Under run_main, a
/// rank that fails alone ends the job with its error.
class Environment {
 public:
  /// Passes the --kokkos-* options of argv to Kokkos. Throws UserError if Slurm started single processes.
  Environment(int argc, char const* const* argv, EnvironmentOptions options = {});
  Environment(Environment const&) = delete;
  Environment& operator=(Environment const&) = delete;
  ~Environment() = default;

  /// Starts Kokkos on this rank's device: the one that the user chose, otherwise the node-local rank modulo the number of visible devices.
  /// Further calls do nothing. Collective. Throws UserError on a rank whose Kokkos options are wrong, and Error if Kokkos cannot start.
  void start_kokkos();

  [[nodiscard]] Communicator const& world() const { return *world_; }
  [[nodiscard]] std::shared_ptr<Instruments> const& instruments() const { return instruments_; }
  /// argv without the program's name and without Kokkos options.
  [[nodiscard]] std::vector<std::string> const& arguments() const { return arguments_; }
  [[nodiscard]] int thread_level() const { return mpi_.thread_level(); }
  /// Host, cores and device of this rank; complete after start_kokkos().
  [[nodiscard]] Binding const& binding() const { return binding_; }
  /// Seconds inside one collective after which the watchdog ends the job; 0 disables this. Must be equal on all ranks.
  void set_timeout(double seconds) { watchdog_->set_timeout(seconds); }
  [[nodiscard]] Watchdog const& watchdog() const { return *watchdog_; }
  /// Reserved for leave_together() at the end of a program.
  [[nodiscard]] MPI_Comm exit_comm() const { return exit_comm_.get(); }

 private:
  void warn_of_shared_devices(Communicator const& node) const;

  detail::MpiSession mpi_;
  std::vector<std::string> arguments_;
  std::vector<std::string> kokkos_arguments_;
  std::shared_ptr<Instruments> instruments_;
  detail::MpiComm exit_comm_;
  detail::KokkosSession kokkos_;
  bool has_started_kokkos_ = false;
  std::optional<Communicator> world_;
  std::unique_ptr<Watchdog> watchdog_;
  Binding binding_;
};

/// "MPI_THREAD_MULTIPLE" and so on.
[[nodiscard]] std::string_view name_of_thread_level(int level);

} // namespace orthant::runtime
