// SPDX-License-Identifier: Apache-2.0
#include "runtime/error.hpp"

namespace orthant::runtime {
namespace {

bool mpi_runs() {
  int initialised = 0;
  int finalised = 0;
  MPI_Initialized(&initialised);
  MPI_Finalized(&finalised);
  return initialised != 0 && finalised == 0;
}

/// Rank in MPI_COMM_WORLD, or -1 if MPI does not run.
int world_rank() {
  int rank = -1;
  if (mpi_runs()) MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

std::string_view file_name(std::string_view path) {
  auto const slash = path.find_last_of('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

} // namespace

std::string describe(std::exception const& error) {
  if (dynamic_cast<Error const*>(&error) != nullptr) return error.what(); // our own text is already one line
  std::string line;
  for (char const* at = error.what(); *at != '\0'; ++at) {
    auto const is_space = *at == ' ' || *at == '\n' || *at == '\t' || *at == '\r';
    if (!is_space)
      line += *at;
    else if (!line.empty() && line.back() != ' ')
      line += ' ';
  }
  // Text that Kokkos appends to its exceptions.
  if (auto const end = line.find(" Traceback functionality"); end != std::string::npos) line.resize(end);
  while (line.ends_with(' '))
    line.pop_back();
  return line;
}

void throw_internal(std::string_view text, std::source_location where) {
  auto const rank = world_rank();
  auto const origin = rank < 0 ? std::string() : fmt::format("rank {}: ", rank);
  throw Error(fmt::format("{}{}:{}: {}", origin, file_name(where.file_name()), where.line(), text));
}

void check_mpi(int code, char const* call, std::source_location where) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  if (!mpi_runs()) throw_internal(fmt::format("{} failed: code {}", call, code), where); // MPI has no text
  MPI_Error_string(code, text, &length);
  throw_internal(fmt::format("{} failed: {}", call, std::string_view(text, static_cast<std::size_t>(length))),
                 where);
}

} // namespace orthant::runtime
