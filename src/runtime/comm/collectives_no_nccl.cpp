// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/nccl_group.hpp"
#include "runtime/error.hpp"

namespace orthant::runtime::detail {

NcclGroup* create_nccl_group(MPI_Comm) {
  return nullptr;
}
void destroy_nccl_group(NcclGroup*) noexcept {}
bool can_enqueue(Call const&) {
  return false;
}
void enqueue(NcclGroup&, Call const&) {
  ORTHANT_REQUIRE(false, "NCCL is not built in");
}

} // namespace orthant::runtime::detail
