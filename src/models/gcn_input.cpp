// SPDX-License-Identifier: Apache-2.0
#include "models/gcn_input.hpp"

namespace orthant::models {
namespace {

/// The same pattern with a value array of its own, to be filled.
template<class T>
pmm::SparseBlock<T> with_own_values(pmm::SparseBlock<T> block) {
  block.csr.values =
      runtime::Vector<T>(Kokkos::view_alloc(Kokkos::WithoutInitializing, "orthant::models::dropped_values"),
                         block.csr.columns.extent(0));
  return block;
}

} // namespace

template<class T>
GcnInput<T>::GcnInput(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                      pmm::Placement const& placement, FeatureNorm norm, double dropout_probability)
    : is_sparse_(store.facts().feature_kind == graph::FeatureKind::sparse),
      keys_(read_block_keys(grid, store, placement)) {
  auto const is_dropped = dropout_probability > 0;
  if (is_sparse_) {
    sparse_ = read_sparse_features<T>(grid, store, placement, norm);
    if (is_dropped)
      dropped_sparse_ =
          pmm::DistSparse<T>(grid, placement, pmm::LocalSpmm<T>(with_own_values(sparse_.forward().block())),
                             pmm::LocalSpmm<T>(with_own_values(sparse_.adjoint().block())));
    return;
  }
  auto whole = placement;
  whole.layout.storage = pmm::Storage::replicated;
  dense_ = read_dense_features<T>(grid, store, whole, norm);
  if (placement.layout.storage == pmm::Storage::flat_sharded) {
    pmm::DistMatrix<T> shard(grid, placement, "orthant::models::trained_features");
    auto const first = static_cast<std::size_t>(shard.block().first);
    auto const count = static_cast<std::size_t>(shard.block().num_stored);
    Kokkos::deep_copy(Kokkos::subview(shard.storage(), std::pair(std::size_t{0}, count)),
                      Kokkos::subview(dense_.storage(), std::pair(first, first + count)));
    dense_ = shard;
  }
  if (is_dropped) dropped_dense_ = pmm::DistMatrix<T>(grid, placement, "orthant::models::dropped_features");
}

template<class T>
void GcnInput<T>::prepare(runtime::DefaultExec const& exec, Dropout const& dropout) {
  uses_dropped_ = dropout.probability > 0;
  if (!uses_dropped_) return;
  if (is_sparse_) {
    apply_dropout_to_entries(exec, sparse_.forward().block().csr, CsrRows::vertices, dropout, keys_,
                             dropped_sparse_.forward().block().csr.values);
    apply_dropout_to_entries(exec, sparse_.adjoint().block().csr, CsrRows::features, dropout, keys_,
                             dropped_sparse_.adjoint().block().csr.values);
  } else if (dense_.layout().storage == pmm::Storage::replicated) {
    apply_dropout(exec, dense_.local(), dropout, keys_, dropped_dense_.local());
  } else {
    auto const& block = dense_.block();
    auto const stored = std::pair(std::size_t{0}, static_cast<std::size_t>(block.num_stored));
    apply_dropout_to_piece<T>(exec, Kokkos::subview(dense_.storage(), stored), dropout, keys_, block.first,
                              block.columns.size(), Kokkos::subview(dropped_dense_.storage(), stored));
  }
}

template<class T>
void GcnInput<T>::backward(runtime::DefaultExec const& exec, Dropout const& dropout,
                           pmm::DistMatrix<T> const& gradient) const {
  if (dropout.probability == 0) return;
  auto const& block = gradient.block();
  auto const stored = Kokkos::subview(gradient.storage(),
                                      std::pair(std::size_t{0}, static_cast<std::size_t>(block.num_stored)));
  apply_dropout_to_piece<T>(exec, stored, dropout, keys_, block.first, block.columns.size(), stored);
}

template class GcnInput<float>;
template class GcnInput<double>;

} // namespace orthant::models
