// SPDX-License-Identifier: Apache-2.0
#include "models/lm/vocabulary_table.hpp"

namespace orthant::models {

using runtime::DefaultExec;

pmm::Placement whole_table(pmm::Placement table) {
  table.layout.storage = pmm::Storage::replicated;
  return table;
}

pmm::Placement table_addends(pmm::Placement table) {
  table.layout.storage = pmm::Storage::partial;
  return table;
}

void plan_gather_table(pmm::StepPlan& step, pmm::Placement const& table) {
  pmm::plan_read(step, table, {});
}

void plan_reduce_table(pmm::StepPlan& step, pmm::Placement const& table) {
  pmm::plan_write(step, table, {});
}

void plan_table_arrays(pmm::StepPlan& step, pmm::Placement const& table) {
  pmm::BlockRead const read(step.shape(), step.coordinates(), table);
  pmm::BlockWrite const write(step.shape(), step.coordinates(), table, {});
  pmm::WorkspacePlan work;
  work.reserve(pmm::Slot::right, read.num_gathered);
  work.reserve(pmm::Slot::result, write.num_partial);
  work.list(step);
}

template<class T>
VocabularyTable<T>::VocabularyTable(pmm::ProcessGrid const& grid, LinearParameters<T> const& parameters)
    : parameters_(parameters),
      reader_(grid, parameters.weight.placement(), pmm::Wire::native, workspace_, pmm::Slot::right),
      writer_(grid, parameters.weight.placement(), {}, workspace_) {
  auto const& table = parameters_.weight.placement();
  writer_.with_partial(DefaultExec(), parameters_.weight_gradient, [&](runtime::Matrix<T> const& addends) {
    addends_ =
        pmm::DistMatrix<T>(grid, table_addends(table), runtime::Vector<T>(addends.data(), addends.size()));
  });
  auto const whole =
      grid.size(pmm::Axis::z) == 1
          ? parameters_.weight.storage()
          : workspace_->lend(pmm::Slot::right,
                             pmm::BlockRead(grid.shape(), grid.coordinates(), table).num_gathered);
  whole_ = pmm::DistMatrix<T>(grid, whole_table(table), whole);
}

template<class T>
void VocabularyTable<T>::gather(DefaultExec const& exec) {
  reader_.start(exec, parameters_.weight);
  static_cast<void>(reader_.finish()); // into the memory of whole()
}

template<class T>
void VocabularyTable<T>::reduce(DefaultExec const& exec) {
  writer_.reduce(exec, parameters_.weight_gradient);
}

template class VocabularyTable<float>;
template class VocabularyTable<double>;

} // namespace orthant::models
