// SPDX-License-Identifier: Apache-2.0
//
// The backends of docs/extend/backend.md: sums of a ring of messages, and a dense product of three loops.
#include "pmm/gemm/dense_library.hpp"
#include "runtime/comm/backend.hpp"
#include "runtime/comm/collectives.hpp"

#include <gtest/gtest.h>
#include <limits>
#include <numeric>
#include <vector>

namespace orthant::testing {

// [docs:ring]
/// Sums of doubles in host memory by messages between neighbors of a ring (Patarasuk & Yuan, 2009). The numbers are cut in
/// one part per rank. In the first half of the steps each part travels once around and collects the addends of all ranks, in
/// the second half its sum travels to all of them.
class RingBackend final : public runtime::detail::Backend {
 public:
  using Call = runtime::detail::Call;
  using Mode = runtime::detail::Mode;

  bool takes(Call const& call, Mode /*mode*/) const override {
    return call.operation == runtime::Operation::all_reduce &&
           call.type == runtime::detail::DataType::float64 && call.reduction == runtime::Reduction::sum &&
           call.wire == runtime::Wire::native && !call.on_device &&
           call.receive_count <= std::numeric_limits<int>::max();
  }
  bool is_ordered_by_stream() const override { return false; }

  /// Waits in both modes, so nothing remains to be waited for.
  std::unique_ptr<runtime::detail::Exchange> begin(runtime::Communicator const& comm, Call const& call,
                                                   Mode /*mode*/) override {
    auto* const numbers = static_cast<double*>(call.receive); // in place
    auto const size = comm.size();
    auto const part_at = [&](int place) {
      return runtime::balanced_range(call.receive_count, size, (place % size + size) % size);
    };
    for (int step = 0; step < 2 * (size - 1); ++step) {
      auto const is_sum = step < size - 1;
      auto const first = is_sum ? comm.rank() - step : comm.rank() + 1 - (step - (size - 1));
      auto const sent = part_at(first);
      auto const received = part_at(first - 1);
      addends_.resize(static_cast<std::size_t>(received.size()));
      ORTHANT_MPI(MPI_Sendrecv(numbers + sent.begin, static_cast<int>(sent.size()), MPI_DOUBLE,
                               (comm.rank() + 1) % size, tag, addends_.data(),
                               static_cast<int>(received.size()), MPI_DOUBLE, (comm.rank() + size - 1) % size,
                               tag, comm.mpi(), MPI_STATUS_IGNORE));
      for (std::size_t i = 0; i < addends_.size(); ++i) {
        auto& number = numbers[received.begin + static_cast<std::int64_t>(i)];
        number = is_sum ? number + addends_[i] : addends_[i];
      }
    }
    return nullptr;
  }

 private:
  static constexpr int tag = runtime::detail::max_user_tag + 600; // above those of the library's own backends
  std::vector<double> addends_;
};
// [docs:end]

// [docs:dense]
/// C := alpha A B + beta C in fp32 by three loops, for operands that are not transposed.
class LoopLibrary final : public pmm::DenseLibrary {
 public:
  [[nodiscard]] std::string_view name() const override { return "loops"; }
  [[nodiscard]] std::string version() const override { return "three loops 1.0"; }

  using DenseLibrary::multiply; // the other numbers are left to other libraries
  bool multiply(pmm::DenseProduct<float> const& product) const override {
    if (product.transpose_a == pmm::Transpose::yes || product.transpose_b == pmm::Transpose::yes)
      return false;
    auto const& [a, b, c] = std::tie(product.a, product.b, product.c);
    for (std::int64_t i = 0; i < product.extents.m; ++i) {
      auto* const row = c.data + i * c.row_stride;
      for (std::int64_t j = 0; j < product.extents.n; ++j)
        row[j] = product.beta == 0 ? 0 : product.beta * row[j]; // C is not read if beta is 0
      for (std::int64_t l = 0; l < product.extents.k; ++l) {
        auto const factor = product.alpha * a.data[i * a.row_stride + l];
        for (std::int64_t j = 0; j < product.extents.n; ++j)
          row[j] += factor * b.data[l * b.row_stride + j];
      }
    }
    return true;
  }
};
// [docs:end]

namespace {

// [docs:use]
TEST(RingBackend, AddsUpLikeMpi) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  world.use_backend(std::make_unique<RingBackend>());
  for (auto const count : {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{1000}}) {
    std::vector<double> numbers(count);
    std::iota(numbers.begin(), numbers.end(), world.rank());

    runtime::all_reduce(runtime::host, world, numbers);

    for (std::size_t i = 0; i < count; ++i) // sum over ranks r of i + r
      EXPECT_EQ(numbers[i], world.size() * static_cast<double>(i) + world.size() * (world.size() - 1) / 2);
  }
}
// [docs:end]

TEST(RingBackend, LeavesOtherCallsToMpi) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  world.use_backend(std::make_unique<RingBackend>());
  std::vector<float> floats(3, 1);
  std::vector<double> largest(3, world.rank()), summed(3, 1);

  auto request = runtime::start_all_reduce(runtime::host, world, summed);
  runtime::all_reduce(runtime::host, world, floats);
  runtime::all_reduce(runtime::host, world, largest, runtime::Reduction::max);
  request.wait();

  EXPECT_EQ(floats, std::vector<float>(3, static_cast<float>(world.size())));
  EXPECT_EQ(largest, std::vector<double>(3, world.size() - 1));
  EXPECT_EQ(summed, std::vector<double>(3, world.size()));
}

template<class T>
pmm::Panel<T> panel_of(std::vector<T>& numbers, std::int64_t num_rows, std::int64_t num_columns) {
  pmm::Panel<T> panel;
  panel.data = numbers.data();
  panel.num_rows = num_rows;
  panel.num_columns = panel.row_stride = num_columns;
  return panel;
}

TEST(LoopLibrary, MultipliesAsTheFirstLibraryDoes) {
  constexpr std::int64_t m = 5, n = 4, k = 3;
  std::vector<float> a(m * k), b(k * n), c(m * n, 1), expected(m * n, 1);
  std::iota(a.begin(), a.end(), -7.0F); // whole numbers, so that sums are exact
  std::iota(b.begin(), b.end(), -5.0F);
  pmm::DenseProduct<float> product{
      {m, n, k},         2, pmm::Transpose::no, panel_of(a, m, k), pmm::Transpose::no,
      panel_of(b, k, n), 3, panel_of(c, m, n)};
  EXPECT_TRUE(LoopLibrary().multiply(product));
  product.c = panel_of(expected, m, n);
  EXPECT_TRUE(pmm::dense_libraries().front()->multiply(product));
  EXPECT_EQ(c, expected);

  product.transpose_a = pmm::Transpose::yes;
  EXPECT_FALSE(LoopLibrary().multiply(product));
  EXPECT_FALSE(LoopLibrary().multiply(pmm::DenseProduct<double>{}));
}

} // namespace
} // namespace orthant::testing
