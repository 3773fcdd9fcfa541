// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/bench.hpp"
#include "cli/bench/roofline.hpp"
#include "cli/commands/build_info.hpp"
#include "cli/machine/machine_loops.hpp"
#include "pmm/gemm/dense_library.hpp"
#include "pmm/kernels/host_parts.hpp"
#include "runtime/arrays/allocation.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <random>

namespace orthant::cli {
namespace {

using pmm::GemmCase;
using pmm::GemmNumbers;
using pmm::GemmShape;
using pmm::Panel;
using pmm::Transpose;

/// Least relative gain for which a later library replaces an earlier one, so that two tables of one processor agree.
constexpr double least_gain = 0.03;

/// Products that represent a kind of product.
struct Kind {
  Transpose transpose_a, transpose_b;
  GemmShape shape;
  std::vector<pmm::GemmExtents> products;
};

/// Kinds of products of a training with widths 128 (hidden), 100 (features) and 47 (classes).
std::vector<Kind> kinds_of_training(std::int64_t rows) {
  constexpr auto no = Transpose::no;
  constexpr auto yes = Transpose::yes;
  std::vector<Kind> kinds;
  for (auto const transpose_b : {no, yes}) {
    kinds.push_back(
        {no, transpose_b, GemmShape::tall, {{rows, 128, 128}, {rows, 128, 100}, {rows, 128, 47}}});
    kinds.push_back({no, transpose_b, GemmShape::tall_narrow, {{rows, 47, 128}, {rows, 16, 64}}});
  }
  kinds.push_back({yes, no, GemmShape::long_sum, {{128, 128, rows}, {100, 128, rows}}});
  kinds.push_back({yes, no, GemmShape::long_sum_narrow, {{128, 47, rows}, {64, 16, rows}}});
  for (auto const& [a, b] : {std::pair(no, no), std::pair(no, yes), std::pair(yes, no)}) {
    kinds.push_back({a, b, GemmShape::small, {{48, 48, 48}, {200, 32, 32}}});
    kinds.push_back({a, b, GemmShape::other, {{768, 768, 768}, {1500, 256, 1433}}});
  }
  return kinds;
}

/// Arbitrary numbers, not denormal, the same on all ranks.
template<class T>
std::vector<T> some_numbers(std::int64_t length) {
  std::vector<T> numbers(static_cast<std::size_t>(length));
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = T(static_cast<runtime::SumOf<T>>(i * 37 % 101) / 64 - 0.75F);
  return numbers;
}

template<class T>
Panel<T> panel_of(std::vector<T>& numbers, std::int64_t rows, std::int64_t columns) {
  Panel<T> panel;
  panel.data = numbers.data();
  panel.num_rows = rows;
  panel.num_columns = panel.row_stride = columns;
  return panel;
}

/// Times one product by each library and adds the seconds to `seconds`; infinity for a library that does not support it.
template<class T>
void time_product(Context& context, Kind const& kind, pmm::GemmExtents const& extents, std::int64_t repeat,
                  std::map<std::string, double>& seconds) {
  auto const [m, n, k] = extents;
  auto a = some_numbers<T>(m * k);
  auto b = some_numbers<T>(k * n);
  std::vector<T> c(static_cast<std::size_t>(m * n));
  auto const is = [](Transpose transpose) { return transpose == Transpose::yes; };
  pmm::DenseProduct<T> const product{extents,
                                     1,
                                     kind.transpose_a,
                                     panel_of(a, is(kind.transpose_a) ? k : m, is(kind.transpose_a) ? m : k),
                                     kind.transpose_b,
                                     panel_of(b, is(kind.transpose_b) ? n : k, is(kind.transpose_b) ? k : n),
                                     0,
                                     panel_of(c, m, n)};
  runtime::DefaultExec const exec;
  std::vector<std::string> names;
  std::vector<std::function<void()>> works;
  for (auto const* const library : pmm::dense_libraries()) {
    // Ranks on other processors may lack a library. A library that lacks one product of a kind is not chosen for this kind.
    auto const has_it = static_cast<std::int64_t>(library->multiply(product));
    if (runtime::all_reduced(context.world(), has_it, runtime::Reduction::min) == 0) {
      seconds[std::string(library->name())] += std::numeric_limits<double>::infinity();
      continue;
    }
    names.emplace_back(library->name());
    works.emplace_back([library, &product] { library->multiply(product); });
  }
  if constexpr (runtime::is_16_bit<T>) {
    names.insert(names.begin(), std::string(pmm::widened_name));
    works.insert(works.begin(), [&] {
      pmm::detail::tiled_gemm(exec, product.alpha, product.transpose_a, product.a, product.transpose_b,
                              product.b, product.beta, product.c);
    });
  }
  auto const times = time_in_turn(context.world(), exec, works, repeat);
  for (std::size_t i = 0; i < names.size(); ++i)
    seconds[names[i]] += times[i].minimum;
}

template<class T>
void tune_numbers(Context& context, GemmNumbers numbers, std::vector<Kind> const& kinds, std::int64_t repeat,
                  pmm::GemmTable::Processors& found) {
  auto const head = begin_line(context, "gemm_tune");
  for (auto const& kind : kinds) {
    std::map<std::string, double> seconds;
    auto flops = 0.0;
    for (auto const& extents : kind.products) {
      time_product<T>(context, kind, extents, repeat, seconds);
      flops += 2.0 * static_cast<double>(extents.m * extents.n) * static_cast<double>(extents.k);
    }
    pmm::GemmTable::Choice choice;
    choice.kind = {numbers, kind.transpose_a, kind.transpose_b, kind.shape};
    choice.library = runtime::is_16_bit<T> ? pmm::widened_name : pmm::openblas_name;
    auto best = seconds.at(choice.library) * (1 - least_gain);
    for (auto const& [library, of_library] : seconds) {
      if (std::isinf(of_library)) continue;
      choice.gflop_per_s[library] =
          std::round(giga_per_second(flops * context.world().size(), of_library) * 10) / 10;
      if (of_library >= best) continue;
      best = of_library;
      choice.library = library;
    }
    auto line = head;
    line["products"] = name_of(choice.kind);
    line["library"] = choice.library;
    line["gflop_per_s"] = choice.gflop_per_s;
    print_line(context, line);
    found.choices.push_back(std::move(choice));
  }
}

} // namespace

pmm::GemmTable tune_gemm(Context& context, std::int64_t rows, std::int64_t repeat) {
  auto const processor = runtime::find_processor();
  pmm::GemmTable table;
  auto& found = table.processors.emplace_back();
  found.vendor = processor.vendor;
  found.family = processor.family;
  found.model = processor.model;
  found.vectors = processor.vectors;
  found.has_bf16_tiles = processor.has_bf16_tiles;
  found.name = processor.name;
  found.date = date_of_today();
  found.version = version();
  found.libraries = pmm::gemm_libraries();
  auto const kinds = kinds_of_training(rows);
  tune_numbers<float>(context, GemmNumbers::fp32, kinds, repeat, found);
  tune_numbers<double>(context, GemmNumbers::fp64, kinds, repeat, found);
  pmm::set_gemm_choice(table, processor); // tiles of 16-bit operands use the choice of fp32
  tune_numbers<runtime::Bf16Number>(context, GemmNumbers::bf16, kinds, repeat, found);
  pmm::set_gemm_choice(table, processor);
  return table;
}

namespace {

constexpr std::int64_t line_bytes = floats_per_line * std::int64_t{sizeof(float)};
constexpr std::int64_t most_lines = 8;                          // a longer row is gathered in parts
constexpr std::int64_t gathered_bytes = std::int64_t{64} << 20; // per thread and run
constexpr std::array<std::int64_t, 4> distances{0, 4, 12, 32};
constexpr std::int64_t repeats = 5;

} // namespace

double GatherRoof::measure(std::int64_t num_rows, std::int64_t lines) const {
  runtime::DefaultExec const exec;
  static auto const loop = supported_gather_loops().back();
  auto const num_threads = static_cast<std::int64_t>(exec.concurrency());
  auto const count = gathered_bytes / (lines * line_bytes);
  auto const rows = runtime::make_zeros<float>("orthant::cli::gathered",
                                               static_cast<std::size_t>(num_rows * lines * floats_per_line));
  Kokkos::deep_copy(exec, rows, 1.0F); // unwritten pages would share one physical page
  std::vector<std::int32_t> order(static_cast<std::size_t>(count + distances.back()));
  std::minstd_rand random;
  std::ranges::generate(
      order, [&] { return static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(num_rows)); });
  runtime::Vector<float> const sums("orthant::cli::gathered_sums", static_cast<std::size_t>(num_threads));

  std::vector<std::function<void()>> works;
  for (auto const ahead : distances)
    works.emplace_back([=, &order, run = loop.run] {
      pmm::for_each_part(
          exec, "orthant::cli::gather", num_threads, [=, &order](std::int64_t begin, std::int64_t end) {
            for (auto thread = begin; thread < end; ++thread)
              sums(static_cast<std::size_t>(thread)) = run(rows.data(), lines, order.data(), count, ahead);
          });
    });
  auto const seconds = time_in_turn(world_, exec, works, repeats);
  auto const least = std::ranges::min_element(seconds, {}, &RepeatSeconds::minimum)->minimum;
  auto const bytes = static_cast<double>(num_threads * count * lines * line_bytes);
  return bytes * world_.size() / least;
}

double GatherRoof::bytes_per_second(std::int64_t num_rows, std::int64_t row_bytes) {
  std::array largest{num_rows, row_bytes};
  runtime::all_reduce(runtime::host, world_, std::span(largest), runtime::Reduction::max);
  auto const [most_rows, most_bytes] = largest;
  if (most_rows == 0 || most_bytes == 0) return 0;
  auto& rate = measured_[{most_rows, most_bytes}];
  if (rate > 0) return rate;
  auto const whole_lines = static_cast<std::int64_t>(std::bit_floor(
      static_cast<std::uint64_t>(std::clamp(most_bytes / line_bytes, std::int64_t{1}, most_lines))));
  // The array is as large as the operand, and its rows are whole cache lines.
  auto const num_places = std::max(most_rows * most_bytes / (whole_lines * line_bytes), std::int64_t{1});
  rate = measure(num_places, whole_lines);
  return rate;
}

} // namespace orthant::cli
