// SPDX-License-Identifier: Apache-2.0
#include "pmm/spmm/local_spmm_host_ways.hpp"

#include "pmm/kernels/host_parts.hpp"
#include "runtime/observe/run_clock.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <limits>
#include <map>
#include <mutex>
#include <tuple>

namespace orthant::pmm::detail {
namespace {

using runtime::DefaultExec;
using runtime::Range;

// Two cache lines: narrower strips read the columns of the block more often, and wider ones do not fit in the L2 cache. Measured on an
// Intel processor with 2 MiB of L2 cache, 48,980 vertices and 51 non-zeros per row: 128 floats take 29 ms in strips of two lines, 31 to 35
// in strips of one or four lines, 37 in whole rows, and 52 with rows fetched ahead.
constexpr std::size_t strip_bytes = 128;
constexpr std::int64_t most_copied_bytes = std::int64_t{16} << 20;
// The copy reads and writes each row of B once, whereas a product gathers it nnz / columns times on average.
constexpr std::int64_t least_gathers_per_row = 4;

constexpr std::array every_way{HostWay::fetched_ahead, HostWay::fetched_near, HostWay::strips,
                               HostWay::strips_fetched_near};

template<class T, class B>
std::int64_t num_nonzeros(HostSpmm<T, B> const& product, Range rows) {
  return product.row_offsets[rows.end] - product.row_offsets[rows.begin];
}

/// Strips of strip_bytes. The last one also takes the remaining columns, so that no strip is narrower.
struct Strips {
  std::size_t width;
  std::size_t count;
  Strips(std::size_t num_columns, std::size_t number_bytes)
      : width(strip_bytes / number_bytes),
        count(std::max<std::size_t>(num_columns / width, 1)) {}
  [[nodiscard]] std::size_t widest(std::size_t num_columns) const {
    return num_columns - (count - 1) * width;
  }
};

/// Stride of the copy, whose rows begin at cache lines.
std::int64_t copied_stride(std::size_t width, std::size_t number_bytes) {
  auto const per_line = 64 / number_bytes;
  return static_cast<std::int64_t>((width + per_line - 1) / per_line * per_line);
}

/// Bytes of the copy of an operand with rows of `stride` numbers; 0 if a copy is not worthwhile.
std::int64_t bytes_of_copy(std::int64_t num_columns, std::size_t width, std::size_t number_bytes,
                           std::int64_t stride, std::int64_t num_nonzeros) {
  Strips const strips(width, number_bytes);
  auto const copied = copied_stride(strips.widest(width), number_bytes);
  auto const bytes = num_columns * copied * static_cast<std::int64_t>(number_bytes);
  auto const pays = num_nonzeros / least_gathers_per_row >= num_columns;
  auto const changes_nothing = strips.count == 1 && copied == stride;
  return pays && bytes <= most_copied_bytes && !changes_nothing ? bytes : 0;
}

template<class T, class B>
void multiply_whole_rows(DefaultExec const& exec, HostSpmm<T, B> const& product, Range rows) {
  [[maybe_unused]] static auto const multiply_rows = supported_spmm_rows<T, B>().back();
  // Rows differ in length, so several threads get more tasks than threads.
  auto const concurrency = static_cast<std::int64_t>(exec.concurrency());
  auto const num_tasks = concurrency == 1 ? 1 : std::min(rows.size(), 16 * concurrency);
  if constexpr (runs_on_host)
    Kokkos::parallel_for(
        "orthant::pmm::spmm",
        Kokkos::RangePolicy<DefaultExec, std::int64_t, Kokkos::Schedule<Kokkos::Dynamic>>(exec, 0, num_tasks),
        [=](std::int64_t task) {
          auto const mine = runtime::balanced_range(rows.size(), num_tasks, task);
          multiply_rows(product, rows.begin + mine.begin, rows.begin + mine.end);
        });
}

template<class T, class B>
void multiply_in_strips(DefaultExec const& exec, HostSpmm<T, B> const& product, Range rows) {
  Strips const strips(product.width, sizeof(B));
  auto const most = static_cast<std::size_t>(copied_stride(strips.widest(product.width), sizeof(B)));
  auto* const copy = thread_memory<B>(static_cast<std::size_t>(product.num_columns) * most);
  for (std::size_t strip = 0; strip < strips.count; ++strip) {
    auto const first = strip * strips.width;
    auto const width = strip + 1 < strips.count ? strips.width : product.width - first;
    auto const stride = copied_stride(width, sizeof(B));
    auto const* const b = product.b + first;
    for_each_part(exec, "orthant::pmm::spmm", product.num_columns,
                  [=, from_stride = product.b_stride](std::int64_t begin, std::int64_t end) {
                    for (auto row = begin; row < end; ++row)
                      std::copy_n(b + row * from_stride, width, copy + row * stride);
                  });
    auto part = product;
    part.b = copy;
    part.b_stride = stride;
    if (part.rounded_c == nullptr)
      part.c += first;
    else
      part.rounded_c += first;
    part.width = width;
    multiply_whole_rows(exec, part, rows);
  }
}

/// Measured times of each method for products of one size.
class Trial {
 public:
  /// Method for the next product: the fastest if all have been timed often enough, otherwise the one with the fewest times.
  [[nodiscard]] HostWay next(std::span<HostWay const> ways) const {
    return *std::ranges::min_element(ways, {}, [&](HostWay way) {
      auto const& tried = tried_[static_cast<std::size_t>(way)];
      return is_over(ways) ? tried.seconds : tried.count;
    });
  }
  [[nodiscard]] bool is_over(std::span<HostWay const> ways) const {
    return std::ranges::all_of(
        ways, [this](HostWay way) { return tried_[static_cast<std::size_t>(way)].count >= tries_per_way; });
  }
  void add(HostWay way, double seconds) {
    auto& tried = tried_[static_cast<std::size_t>(way)];
    ++tried.count;
    tried.seconds = std::min(tried.seconds, seconds);
  }

 private:
  static constexpr int tries_per_way = 3;
  struct Tried {
    int count = 0;
    double seconds = std::numeric_limits<double>::infinity();
  };
  std::array<Tried, every_way.size()> tried_{};
};

/// All trials of the program, by size.
class Trials {
 public:
  /// Bytes of a number, width, bit width of the number of columns, and bit width of the number of non-zeros.
  using Size = std::tuple<std::size_t, std::size_t, int, int>;

  template<class T, class B>
  static Size size_of(HostSpmm<T, B> const& product, Range rows) {
    auto const magnitude = [](std::int64_t count) {
      return std::bit_width(static_cast<std::uint64_t>(count));
    };
    return {sizeof(B), product.width, magnitude(product.num_columns), magnitude(num_nonzeros(product, rows))};
  }
  Trial of(Size const& size) {
    std::scoped_lock const lock(mutex_);
    return trials_[size];
  }
  void add(Size const& size, HostWay way, double seconds) {
    std::scoped_lock const lock(mutex_);
    trials_[size].add(way, seconds);
  }

 private:
  std::mutex mutex_;
  std::map<Size, Trial> trials_;
};

Trials& trials() {
  static Trials all;
  return all;
}

} // namespace

std::string name_of(HostWay way) {
  switch (way) {
  case HostWay::fetched_ahead:
    return "rows fetched ahead";
  case HostWay::fetched_near:
    return "rows fetched near";
  case HostWay::strips:
    return "strips";
  case HostWay::strips_fetched_near:
    break;
  }
  return "strips fetched near";
}

template<class T, class B>
std::span<HostWay const> ways_of(HostSpmm<T, B> const& product, Range rows) {
  auto const copied = bytes_of_copy(product.num_columns, product.width, sizeof(B), product.b_stride,
                                    num_nonzeros(product, rows));
  std::span<HostWay const> const ways(every_way);
  return copied > 0 ? ways : ways.first(2);
}

std::int64_t copied_bytes(std::int64_t num_columns, std::int64_t width, std::int64_t number_bytes,
                          std::int64_t num_nonzeros) {
  return bytes_of_copy(num_columns, static_cast<std::size_t>(width), static_cast<std::size_t>(number_bytes),
                       width, num_nonzeros);
}

template<class T, class B>
void run_host_spmm(DefaultExec const& exec, HostSpmm<T, B> const& product, Range rows, HostWay way) {
  auto taken = product;
  auto const fetches_near = way == HostWay::fetched_near || way == HostWay::strips_fetched_near;
  taken.prefetch = way == HostWay::fetched_ahead ? Prefetch::far_and_near
                   : fetches_near                ? Prefetch::near
                                                 : Prefetch::none;
  if (way == HostWay::strips || way == HostWay::strips_fetched_near)
    multiply_in_strips(exec, taken, rows);
  else
    multiply_whole_rows(exec, taken, rows);
}

template<class T, class B>
void run_host_spmm(DefaultExec const& exec, HostSpmm<T, B> const& product, Range rows) {
  auto const ways = ways_of(product, rows);
  auto const size = Trials::size_of(product, rows);
  auto const trial = trials().of(size);
  auto const way = trial.next(ways);
  if (trial.is_over(ways)) return run_host_spmm(exec, product, rows, way);
  runtime::compat::fence(exec, "orthant::pmm::spmm/the clock is read");
  // For a single thread, uses its processor time, which does not depend on other processes on its core.
  auto const is_alone = exec.concurrency() == 1;
  auto const now = [is_alone] {
    std::chrono::duration<double> const since_start = std::chrono::steady_clock::now().time_since_epoch();
    return is_alone ? runtime::thread_processor_seconds() : since_start.count();
  };
  auto const begin = now();
  run_host_spmm(exec, product, rows, way);
  runtime::compat::fence(exec, "orthant::pmm::spmm/the clock is read");
  auto const seconds = now() - begin;
  // Stores the time per non-zero, because ranges of rows of one size can have different numbers of non-zeros.
  auto const work = std::max<std::int64_t>(num_nonzeros(product, rows), 1);
  trials().add(size, way, seconds / static_cast<double>(work));
}

template<class T, class B>
std::string chosen_way(HostSpmm<T, B> const& product, Range rows) {
  auto const ways = ways_of(product, rows);
  auto const trial = trials().of(Trials::size_of(product, rows));
  return trial.is_over(ways) ? name_of(trial.next(ways)) : "";
}

#define ORTHANT_HOST_SPMM(T, B)                                                                              \
  template std::span<HostWay const> ways_of(HostSpmm<T, B> const&, Range);                                   \
  template void run_host_spmm(DefaultExec const&, HostSpmm<T, B> const&, Range, HostWay);                    \
  template void run_host_spmm(DefaultExec const&, HostSpmm<T, B> const&, Range);                             \
  template std::string chosen_way(HostSpmm<T, B> const&, Range);
ORTHANT_HOST_SPMM(float, float)
ORTHANT_HOST_SPMM(double, double)
ORTHANT_HOST_SPMM(float, runtime::Bf16Number)
ORTHANT_HOST_SPMM(float, runtime::Fp16Number)
#undef ORTHANT_HOST_SPMM

} // namespace orthant::pmm::detail
