// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/slurm_check.hpp"

#include "runtime/error.hpp"

#include <charconv>
#include <cstdlib>
#include <fmt/format.h>
#include <string_view>

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
