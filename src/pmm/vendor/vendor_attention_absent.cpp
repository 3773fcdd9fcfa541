// SPDX-License-Identifier: Apache-2.0
#include "pmm/vendor/vendor_attention.hpp"

namespace orthant::pmm::vendor {

std::unique_ptr<FusedAttention> FusedAttention::create(void*, AttentionShape const&) {
  return nullptr;
}

} // namespace orthant::pmm::vendor
