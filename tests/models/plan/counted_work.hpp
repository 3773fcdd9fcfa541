#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The calls, passes, products and kernels of a process, counted, and held against a list of them.

#include "models/models_fixture.hpp"
#include "pmm/cost/step_plan.hpp"
#include "support/dist_checks.hpp"
#include "support/kernel_labels.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::testing {

/// What is counted from now on.
class CountedWork {
 public:
  explicit CountedWork(pmm::ProcessGrid const& grid)
      : grid_(grid),
        flops_before_(grid.world().instruments().flops),
        passes_(grid) {
    clear_ledgers(grid);
  }

  /// Expects the calls, the passes and the flops of the list, of both kinds of products if not told otherwise.
  void expect_listed(pmm::StepPlan const& list, bool has_dense_products = true) const;
  /// Expects that every kernel is of a product, of a collective, on single numbers, or of a pass that is counted.
  void expect_counted_kernels() const;

  [[nodiscard]] std::vector<runtime::LocalPass> const& passes() const { return passes_.list(); }

 private:
  pmm::ProcessGrid const& grid_;
  runtime::FlopCount flops_before_;
  CountedPasses passes_;
  KernelLabels kernels_;
};

inline void CountedWork::expect_listed(pmm::StepPlan const& list, bool has_dense_products) const {
  EXPECT_EQ(counted_calls(grid_), planned_calls(list));
  auto const planned_passes = passes_of(list);
  EXPECT_EQ(passes().size(), planned_passes.size());
  auto const [found, expected] = std::ranges::mismatch(passes(), planned_passes);
  if (found != passes().end() && expected != planned_passes.end()) {
    EXPECT_EQ(*found, *expected) << "pass " << found - passes().begin();
  }
  runtime::FlopCount planned;
  for (auto const& product : products_of(list))
    (product.is_sparse ? planned.sparse : planned.dense) += product.flops();
  auto const& flops = grid_.world().instruments().flops;
  EXPECT_EQ(flops.dense - flops_before_.dense, planned.dense);
  EXPECT_EQ(flops.sparse - flops_before_.sparse, planned.sparse);
  EXPECT_EQ(runtime::all_reduced(grid_.world(), planned.dense) > 0, has_dense_products);
  EXPECT_GT(runtime::all_reduced(grid_.world(), planned.sparse), 0);
}

inline void CountedWork::expect_counted_kernels() const {
  // A kernel of a pass in two steps is labelled "name/step".
  auto const before_slash = [](std::string_view label) {
    return std::string(label.substr(0, label.find('/')));
  };
  // Products, their operands and results, and then single numbers.
  std::set<std::string> names{"spmm", "local_gemm", "pair_sums", "pair_sums_transposed"};
  names.insert({"edge_dots", "edge_spmm", "edge_spmm_transposed", "edge_maximum", "edge_maximum_backward"});
  names.insert({"round_numbers", "widen_numbers", "BlockWriter"});
  names.insert({"add_to_sums", "begin_step", "finish_norms", "scale_loss", "set_count"});
  names.insert("local_squared_norm"); // of no numbers, if all of a rank's parameters are copies
  // On a device some passes are two kernels with names of their own.
  if (!pmm::runs_on_host) names.insert({"gemm_slabs", "sum_partial_rows", "sum_row_norm_gradient"});
  for (auto const& pass : passes())
    names.insert(before_slash(pass.name));
  for (auto const* const space : {"orthant::pmm::", "orthant::models::"})
    for (auto const& label : kernels_.all())
      if (label.starts_with(space)) {
        EXPECT_TRUE(names.contains(before_slash(label.substr(std::string_view(space).size())))) << label;
      }
}

} // namespace orthant::testing
