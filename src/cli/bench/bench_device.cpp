// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/bench.hpp"
#include "cli/bench/roofline.hpp"

namespace orthant::cli {

double GatherRoof::bytes_per_second(std::int64_t, std::int64_t) {
  return 0;
}

pmm::GemmTable tune_gemm(Context&, std::int64_t, std::int64_t) {
  runtime::throw_user("--tune: on {} the vendor's library multiplies everything; there is no choice",
                      runtime::DefaultExec::name());
}

} // namespace orthant::cli
