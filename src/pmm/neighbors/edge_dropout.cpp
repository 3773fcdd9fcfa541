// SPDX-License-Identifier: Apache-2.0
#include "pmm/neighbors/edge_dropout.hpp"

#include <utility>

namespace orthant::pmm {
namespace {

LocalPass pass_of(std::int64_t num_nonzeros, bool has_values, bool draws, std::int64_t scalar_bytes) {
  auto const values = num_nonzeros * scalar_bytes;
  auto const columns = num_nonzeros * static_cast<std::int64_t>(sizeof(LocalColumn));
  return {"drop_entries", columns + (has_values ? values : 0), values, 0, draws ? num_nonzeros : 0};
}

template<class T>
struct Entries {
  Offset const* offsets;
  LocalColumn const* columns;
  T const* whole; // null if all values are 1
  std::int64_t const* row_ids;
  std::int64_t const* column_ids;
  double probability;
  T scale;
  runtime::RandomStream stream;
  T* values;

  KOKKOS_FUNCTION void operator()(std::int64_t row, std::int64_t) const {
    auto const here = static_cast<std::uint64_t>(row_ids[row]);
    for (auto e = offsets[row]; e < offsets[row + 1]; ++e) {
      auto const there = static_cast<std::uint64_t>(column_ids[columns[e]]);
      auto const value = whole == nullptr ? T{1} : whole[e];
      if (probability == 0 || here == there)
        values[e] = value;
      else if (stream.bernoulli(probability, here < there ? here : there, here < there ? there : here))
        values[e] = T{0};
      else
        values[e] = value * scale;
    }
  }
};

} // namespace

template<class T>
SparseBlock<T> with_dropped_values(SparseBlock<T> block, Vector<std::int64_t> const& row_ids,
                                   Vector<std::int64_t> const& column_ids,
                                   std::vector<DroppedBlock<T>>& all) {
  Vector<T> const values("orthant::pmm::dropped_values", block.csr.columns.extent(0));
  return with_dropped_values(std::move(block), values, row_ids, column_ids, all);
}

template<class T>
SparseBlock<T>
with_dropped_values(SparseBlock<T> block, Vector<T> const& values, Vector<std::int64_t> const& row_ids,
                    Vector<std::int64_t> const& column_ids, std::vector<DroppedBlock<T>>& all) {
  all.push_back({block.csr, values, row_ids, column_ids});
  block.csr.values = values;
  return block;
}

void plan_dropped_values(StepPlan& step, std::int64_t num_nonzeros) {
  step.add_array("orthant::pmm::dropped_values", step.scalar_bytes(num_nonzeros));
}

template<class T>
void drop_entries(DefaultExec const& exec, runtime::PassLedger& passes, DroppedBlock<T> const& block,
                  double probability, runtime::RandomStream const& stream) {
  auto const& csr = block.whole;
  auto const has_values = csr.values.extent(0) > 0;
  passes.add(pass_of(csr.num_nonzeros(), has_values, probability > 0, sizeof(T)));
  for_each_row_and_head(exec, "orthant::pmm::drop_entries", csr.num_rows, 1,
                        Entries<T>{csr.row_offsets.data(), csr.columns.data(),
                                   has_values ? csr.values.data() : nullptr, block.row_ids.data(),
                                   block.column_ids.data(), probability,
                                   static_cast<T>(1 / (1 - probability)), stream, block.values.data()});
}

void plan_drop_entries(StepPlan& step, std::int64_t num_nonzeros, bool has_values, bool draws) {
  step.add_pass(pass_of(num_nonzeros, has_values, draws, step.scalar_bytes(1)));
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template SparseBlock<T> with_dropped_values(SparseBlock<T>, Vector<std::int64_t> const&,                   \
                                              Vector<std::int64_t> const&, std::vector<DroppedBlock<T>>&);   \
  template SparseBlock<T> with_dropped_values(SparseBlock<T>, Vector<T> const&, Vector<std::int64_t> const&, \
                                              Vector<std::int64_t> const&, std::vector<DroppedBlock<T>>&);   \
  template void drop_entries(DefaultExec const&, runtime::PassLedger&, DroppedBlock<T> const&, double,       \
                             runtime::RandomStream const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::pmm
