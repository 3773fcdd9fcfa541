// SPDX-License-Identifier: Apache-2.0
#include "fuzz/single_rank.hpp"

#include <cstdlib>
#include <optional>

namespace orthant::fuzz {

runtime::Communicator const& single_rank() {
  static std::optional<runtime::Communicator> comm;
  if (!comm) {
    MPI_Init(nullptr, nullptr);
    comm.emplace(MPI_COMM_SELF, "world");
    std::atexit([] {
      comm.reset();
      MPI_Finalize();
    });
  }
  return *comm;
}

} // namespace orthant::fuzz
