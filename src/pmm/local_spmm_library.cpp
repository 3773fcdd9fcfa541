// SPDX-License-Identifier: Apache-2.0
#include "pmm/local_spmm_library.hpp"
#include "pmm/vendor_spmm.hpp"

#include <algorithm>
#include <chrono>
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

/// a_k := r_i v_k s_j, each 1 where it is absent
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

/// The shortest of some runs, after one that does not count.
template<class Run>
std::chrono::steady_clock::duration shortest(DefaultExec const& exec, Run const& run) {
  constexpr int num_runs = 3;
  run();
  auto best = std::chrono::steady_clock::duration::max();
  for (int i = 0; i < num_runs; ++i) {
    runtime::compat::fence(exec, "orthant::pmm::spmm/before it is timed");
    auto const start = std::chrono::steady_clock::now();
    run();
    runtime::compat::fence(exec, "orthant::pmm::spmm/timed");
    best = std::min(best, std::chrono::steady_clock::now() - start);
  }
  return best;
}

} // namespace

template<class T>
struct LibrarySpmm<T>::Prepared {
  struct Choice {
    std::size_t width;
    std::unique_ptr<vendor::Spmm<T>> library; // null: the own kernel
  };
  SparseBlock<T> block;
  Vector<std::int32_t> offsets; // both empty until the library is tried, and again where it lost
  Vector<T> values;
  std::vector<Choice> choices; // one a width

  [[nodiscard]] bool fits() const {
    auto const needed =
        block.csr.columns.extent(0) * sizeof(T) + block.csr.row_offsets.extent(0) * sizeof(std::int32_t);
    return values.extent(0) > 0 || needed < vendor::free_device_bytes() / 2;
  }

  [[nodiscard]] std::unique_ptr<vendor::Spmm<T>> faster(DefaultExec const& exec, Matrix<T> const& b,
                                                        Matrix<T> const& c,
                                                        std::function<void()> const& own_kernel) {
    if (!fits()) return nullptr;
    auto const& csr = block.csr;
    if (values.extent(0) == 0) {
      offsets = short_offsets(exec, csr);
      values = folded_values(exec, block);
    }
    auto* const stream = runtime::compat::native_stream(exec);
    auto library = std::make_unique<vendor::Spmm<T>>(
        stream,
        vendor::CsrOperand<T>{csr.num_rows, csr.num_columns, csr.num_nonzeros(), offsets.data(),
                              csr.columns.data(), values.data()},
        static_cast<std::int64_t>(b.extent(1)), b.data(), c.data());
    auto const own = shortest(exec, own_kernel);
    auto const theirs = shortest(exec, [&] { library->apply(stream, b.data(), c.data()); });
    return theirs < own ? std::move(library) : nullptr;
  }

  Choice const& choice(DefaultExec const& exec, Matrix<T> const& b, Matrix<T> const& c,
                       std::function<void()> const& own_kernel) {
    auto const width = b.extent(1);
    auto const known = std::find_if(choices.begin(), choices.end(),
                                    [&](Choice const& choice) { return choice.width == width; });
    if (known != choices.end()) return *known;
    choices.push_back({width, faster(exec, b, c, own_kernel)});
    auto const is_used = std::any_of(choices.begin(), choices.end(),
                                     [](Choice const& choice) { return choice.library != nullptr; });
    if (!is_used) {
      offsets = {};
      values = {};
    }
    return choices.back();
  }
};

template<class T>
std::shared_ptr<LibrarySpmm<T>> LibrarySpmm<T>::create(SparseBlock<T> const& block) {
  constexpr std::int64_t longest = std::numeric_limits<std::int32_t>::max();
  auto const& csr = block.csr;
  auto const is_taken = block.row_groups.extent(0) == 0 && block.self_columns.extent(0) == 0 &&
                        csr.num_nonzeros() > 0 && csr.num_nonzeros() <= longest && csr.num_rows < longest;
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
  if (choice.library == nullptr) return own_kernel();
  choice.library->apply(runtime::compat::native_stream(exec), b.data(), c.data());
}

template class LibrarySpmm<float>;
template class LibrarySpmm<double>;

} // namespace orthant::pmm::detail
