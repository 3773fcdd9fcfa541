// SPDX-License-Identifier: Apache-2.0
#include "runtime/error.hpp"

namespace orthant::runtime {
namespace {

/// Rank in MPI_COMM_WORLD, or -1 where MPI does not run.
int world_rank() {
  int initialised = 0;
  int finalised = 0;
  MPI_Initialized(&initialised);
  MPI_Finalized(&finalised);
  if (initialised == 0 || finalised != 0) return -1;
  int rank = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

std::string_view file_name(std::string_view path) {
  auto const slash = path.find_last_of('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

} // namespace

void throw_internal(std::string_view text, std::source_location where) {
  auto const rank = world_rank();
  auto const origin = rank < 0 ? std::string() : fmt::format("rank {}: ", rank);
  throw Error(fmt::format("{}{}:{}: {}", origin, file_name(where.file_name()), where.line(), text));
}

void check_mpi(int code, char const* call, std::source_location where) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw_internal(fmt::format("{} failed: {}", call, std::string_view(text, static_cast<std::size_t>(length))),
                 where);
}

} // namespace orthant::runtime
