// SPDX-License-Identifier: Apache-2.0
#include "pmm/spmm/local_spmm_device.hpp"

#include "pmm/kernels/long_sums.hpp"
#include "pmm/vendor/shortest_run.hpp"
#include "pmm/vendor/vendor_spmm.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <limits>
#include <vector>

namespace orthant::pmm::detail {
namespace {

using RowPolicy = Kokkos::RangePolicy<DefaultExec, std::int64_t>;

template<class T>
Vector<std::int32_t> short_offsets(DefaultExec const& exec, CsrMatrix<T> const& csr) {
  auto const offsets = csr.row_offsets;
  Vector<std::int32_t> shorter(
      Kokkos::view_alloc(exec, "orthant::pmm::library_offsets", Kokkos::WithoutInitializing),
      offsets.extent(0));
  Kokkos::parallel_for(
      "orthant::pmm::short_offsets", RowPolicy(exec, 0, csr.num_rows + 1), KOKKOS_LAMBDA(std::int64_t i) {
        auto const row = static_cast<std::size_t>(i);
        shorter(row) = static_cast<std::int32_t>(offsets(row));
      });
  return shorter;
}

/// a_k := r_i v_k s_j, where absent factors are 1
template<class T>
Vector<T> folded_values(DefaultExec const& exec, SparseBlock<T> const& block) {
  auto const csr = block.csr;
  auto const row_scale = block.row_scale;
  auto const column_scale = block.column_scale;
  Vector<T> values(Kokkos::view_alloc(exec, "orthant::pmm::library_values", Kokkos::WithoutInitializing),
                   csr.columns.extent(0));
  Kokkos::parallel_for(
      "orthant::pmm::folded_values", RowPolicy(exec, 0, csr.num_rows), KOKKOS_LAMBDA(std::int64_t i) {
        auto const row = static_cast<std::size_t>(i);
        auto const scale = row_scale.extent(0) == 0 ? T{1} : row_scale(row);
        for (auto k = csr.row_offsets(row); k < csr.row_offsets(row + 1); ++k) {
          auto const entry = static_cast<std::size_t>(k);
          auto value = csr.values.extent(0) == 0 ? scale : scale * csr.values(entry);
          if (column_scale.extent(0) != 0)
            value *= column_scale(static_cast<std::size_t>(csr.columns(entry)));
          values(entry) = value;
        }
      });
  return values;
}

/// True if a row is so long that its sum may stop growing in the library (long_sums.hpp). Waits.
template<class T>
bool has_stalling_row(CsrMatrix<T> const& csr) {
  if (!may_stall<T>(csr.num_nonzeros())) return false;
  auto const offsets = csr.row_offsets;
  runtime::Offset longest_row = 0;
  Kokkos::parallel_reduce(
      "orthant::pmm::longest_row", RowPolicy(DefaultExec(), 0, csr.num_rows),
      KOKKOS_LAMBDA(std::int64_t i, runtime::Offset & most) {
        auto const row = static_cast<std::size_t>(i);
        auto const length = offsets(row + 1) - offsets(row);
        if (length > most) most = length;
      },
      Kokkos::Max<runtime::Offset>(longest_row));
  return may_stall<T>(longest_row);
}

using Duration = std::chrono::steady_clock::duration;

} // namespace

template<class T>
struct LibrarySpmm<T>::Prepared {
  /// One algorithm of the library, prepared for a width.
  struct Candidate {
    vendor::SpmmAlgorithm algorithm{};
    std::shared_ptr<vendor::Spmm<T>> product; // null if not supported
    Duration time = Duration::max();
  };
  struct Choice {
    std::size_t width;
    Candidate library; // its product is null if Orthant's kernel is faster
  };
  SparseBlock<T> block;
  // Both are empty before the first measurement, and if the library is not used for any width.
  Vector<std::int32_t> offsets;
  Vector<T> values;
  std::vector<Choice> choices; // one per width

  [[nodiscard]] bool fits() const {
    auto const needed =
        block.csr.columns.extent(0) * sizeof(T) + block.csr.row_offsets.extent(0) * sizeof(std::int32_t);
    return values.extent(0) > 0 || needed < vendor::free_device_bytes() / 2;
  }

  [[nodiscard]] Candidate candidate(DefaultExec const& exec, vendor::SpmmAlgorithm algorithm,
                                    Matrix<T> const& b, Matrix<T> const& c) const {
    auto const& csr = block.csr;
    auto* const stream = runtime::compat::native_stream(exec);
    try {
      auto product = std::make_shared<vendor::Spmm<T>>(
          stream, algorithm,
          vendor::CsrOperand<T>{csr.num_rows, csr.num_columns, csr.num_nonzeros(), offsets.data(),
                                csr.columns.data(), values.data()},
          static_cast<std::int64_t>(b.extent(1)), b.data(), c.data());
      auto const time = shortest_run(exec, [&] { product->apply(stream, b.data(), c.data()); });
      return {algorithm, std::move(product), time};
    } catch (runtime::Error const&) {
      return {}; // this version of the library does not support the operands, or memory is too small
    }
  }

  [[nodiscard]] Candidate fastest(DefaultExec const& exec, Matrix<T> const& b, Matrix<T> const& c) {
    if (!fits()) return {};
    try {
      if (values.extent(0) == 0) {
        offsets = short_offsets(exec, block.csr);
        values = folded_values(exec, block);
      }
    } catch (std::exception const&) { // by Kokkos: another rank of the device has used the memory
      return {};
    }
    Candidate best;
    for (auto const algorithm : vendor::spmm_algorithms)
      if (auto next = candidate(exec, algorithm, b, c); next.time < best.time) best = std::move(next);
    return best;
  }

  /// Frees offsets and values if no width uses the library.
  void release_matrix() {
    if (std::any_of(choices.begin(), choices.end(),
                    [](Choice const& choice) { return choice.library.product != nullptr; }))
      return;
    offsets = {};
    values = {};
  }

  [[nodiscard]] Choice const* known(std::size_t width) const {
    auto const found = std::find_if(choices.begin(), choices.end(),
                                    [&](Choice const& choice) { return choice.width == width; });
    return found == choices.end() ? nullptr : &*found;
  }

  Choice const& choice(DefaultExec const& exec, Matrix<T> const& b, Matrix<T> const& c,
                       std::function<void()> const& own_kernel) {
    auto const width = b.extent(1);
    if (auto const* const made = known(width); made != nullptr) return *made;
    auto library = fastest(exec, b, c);
    if (library.product != nullptr && library.time >= shortest_run(exec, own_kernel)) library = {};
    choices.push_back({width, std::move(library)});
    release_matrix();
    return choices.back();
  }
};

template<class T>
std::shared_ptr<LibrarySpmm<T>> LibrarySpmm<T>::create(SparseBlock<T> const& block) {
  constexpr std::int64_t longest = std::numeric_limits<std::int32_t>::max();
  auto const& csr = block.csr;
  auto const is_taken = block.row_groups.extent(0) == 0 && block.self_columns.extent(0) == 0 &&
                        csr.num_nonzeros() > 0 && csr.num_nonzeros() <= longest && csr.num_rows < longest &&
                        !has_stalling_row(csr);
  return is_taken ? std::shared_ptr<LibrarySpmm>(new LibrarySpmm(block)) : nullptr;
}

template<class T>
LibrarySpmm<T>::LibrarySpmm(SparseBlock<T> const& block)
    : prepared_(std::make_unique<Prepared>(Prepared{block, {}, {}, {}})) {}

template<class T>
LibrarySpmm<T>::~LibrarySpmm() = default;

template<class T>
void LibrarySpmm<T>::apply(DefaultExec const& exec, Matrix<T> const& b, Matrix<T> const& c,
                           std::function<void()> const& own_kernel) {
  if (!b.span_is_contiguous() || !c.span_is_contiguous()) return own_kernel();
  auto const& choice = prepared_->choice(exec, b, c, own_kernel);
  if (choice.library.product == nullptr) return own_kernel();
  choice.library.product->apply(runtime::compat::native_stream(exec), b.data(), c.data());
}

template<class T>
std::string LibrarySpmm<T>::choice(std::size_t width) const {
  auto const* const made = prepared_->known(width);
  if (made == nullptr) return "";
  return made->library.product == nullptr ? "own" : vendor::name_of(made->library.algorithm);
}

template<class T>
SpmmWay LibrarySpmm<T>::fastest(DefaultExec const& exec, Matrix<T> const& b, Matrix<T> const& c) {
  auto const library = prepared_->fastest(exec, b, c);
  auto const offsets = prepared_->offsets; // captured below, so that they live as long as the method
  auto const values = prepared_->values;
  prepared_->release_matrix();
  if (library.product == nullptr) return {};
  return {vendor::name_of(library.algorithm), [product = library.product, offsets, values, exec, b, c] {
            product->apply(runtime::compat::native_stream(exec), b.data(), c.data());
          }};
}

template class LibrarySpmm<float>;
template class LibrarySpmm<double>;

} // namespace orthant::pmm::detail
