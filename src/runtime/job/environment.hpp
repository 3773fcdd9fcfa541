#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Start and end of a program: MPI with the thread level it needs, the Slurm check, the device by node-local
// rank, Kokkos, the instruments, the world communicator and the watchdog. Everything ends in the reverse
// order, so communicators go before Kokkos and Kokkos before MPI.

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

// Recognises a job that Slurm started as many single processes: srun without the plugin that the MPI library
// needs leaves every task a world of its own, and each would run the whole job and write the same files.

/// Value of an environment variable, nullptr where it is not set.
using Getenv = std::function<char const*(char const*)>;

/// What is wrong and what would be right, or nothing. SLURM_NTASKS is of no use here: batch scripts and
/// mpirun inside an allocation set it too.
[[nodiscard]] std::optional<std::string> find_slurm_mistake(int mpi_size, Getenv const& getenv);

/// Throws UserError where there is such a mistake; its text is empty on all tasks but the first, so that it
/// is printed once.
void check_slurm_launch(int mpi_size);

} // namespace orthant::runtime

namespace orthant::runtime::detail {

// The start of Kokkos as Orthant wants it: wrong options are refused, and what Kokkos itself says of a
// failure (several lines and, from 3.7 on, SIGABRT) becomes one error like any other.

/// True for --kokkos-* options, which go to Kokkos.
[[nodiscard]] bool is_for_kokkos(std::string_view argument);

/// Throws UserError if an option is none of Kokkos's (which ignores or only warns of those), if a number is
/// none, or if a device is chosen that this rank does not see: it sees `num_devices`.
void check_kokkos_options(std::span<std::string const> arguments, int num_devices);

/// Calls Kokkos::initialize with --kokkos-* options and the index of this rank's device (-1: Kokkos chooses).
/// Throws UserError if Kokkos refuses an option or a KOKKOS_* variable, Error if it cannot start. If it
/// aborts, this rank prints the same and ends the job.
void start_kokkos(std::vector<std::string> const& arguments, int device);

} // namespace orthant::runtime::detail

namespace orthant::runtime {

struct EnvironmentOptions {
  /// The watchdog's thread talks to other watchdogs, hence MULTIPLE. With less, each rank reports for itself.
  int thread_level = MPI_THREAD_MULTIPLE;
  double timeout_seconds = default_timeout_seconds;
  /// False leaves Kokkos to start_kokkos(): help texts and mistakes on the command line need no device.
  bool starts_kokkos = true;
  /// False lets single processes go on that Slurm started in place of one job: somebody looks into it.
  bool checks_launch = true;
};

namespace detail {
/// MPI from Init to Finalize; leaves alone an MPI that somebody else started. While an exception unwinds, MPI
/// is not finalized: MPI_Finalize would wait for ranks that may wait for this one. The process then leaves
/// with an error, and its launcher ends the others.
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
  int num_exceptions_; // under way at the start
};

/// Kokkos likewise.
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

/// One per program, made by run_main, or first in main. Construction and destruction are collective over all
/// ranks. Under run_main a rank that fails alone ends the job with its error.
class Environment {
 public:
  /// argv's --kokkos-* options go to Kokkos. Throws UserError if Slurm started single processes.
  Environment(int argc, char const* const* argv, EnvironmentOptions options = {});
  Environment(Environment const&) = delete;
  Environment& operator=(Environment const&) = delete;
  ~Environment() = default;

  /// Starts Kokkos on this rank's device: the one the user chose, else its node-local rank modulo the devices
  /// it sees. Does nothing the second time. Collective. Throws UserError on a rank where an option of Kokkos
  /// is wrong, Error if Kokkos cannot start.
  void start_kokkos();

  [[nodiscard]] Communicator const& world() const { return *world_; }
  [[nodiscard]] std::shared_ptr<Instruments> const& instruments() const { return instruments_; }
  /// argv without the program's name and without what is Kokkos's.
  [[nodiscard]] std::vector<std::string> const& arguments() const { return arguments_; }
  [[nodiscard]] int thread_level() const { return mpi_.thread_level(); }
  /// Where this rank runs; complete after start_kokkos().
  [[nodiscard]] Binding const& binding() const { return binding_; }
  /// Seconds inside one collective after which the watchdog ends the job; 0 for never. Equal on all ranks.
  void set_timeout(double seconds) { watchdog_->set_timeout(seconds); }
  [[nodiscard]] Watchdog const& watchdog() const { return *watchdog_; }
  /// Reserved for the agreement at a program's end.
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
