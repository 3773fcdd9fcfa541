// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/operands/trained_features.hpp"

#include "models/parameters/device_copy.hpp"
#include "pmm/kernels/host_parts.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/numbers/random.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace orthant::models {
namespace {

using runtime::DefaultExec;

/// Layer number by which a table is drawn; layers count from 0, and -1 is the input projection.
constexpr auto table_number = static_cast<std::uint32_t>(-2);

/// Maps element k of this rank's part of X to its position in the shard.
struct ShardPlaces {
  std::int32_t const* rows; // null: all rows
  std::int64_t width;
  std::int64_t first_read;  // first element of the part in X
  std::int64_t first_shard; // first element of the shard in the block

  KOKKOS_FUNCTION std::int64_t operator()(std::int64_t k) const {
    if (rows == nullptr) return k;
    auto const place = first_read + k;
    return rows[place / width] * width + place % width - first_shard;
  }
  /// Number of elements from k on that are contiguous in the shard.
  [[nodiscard]] std::int64_t run(std::int64_t k, std::int64_t end) const {
    return rows == nullptr ? end - k : std::min(end - k, width - (first_read + k) % width);
  }
};

/// Calls copy(k, place, length) on all runs of [0, count): rows on host processors, single elements on a device.
template<class Copy>
void for_each_run(DefaultExec const& exec, char const* label, std::int64_t count, ShardPlaces const& places,
                  Copy const& copy) {
  if constexpr (pmm::runs_on_host)
    pmm::for_each_part(exec, label, count, [=](std::int64_t begin, std::int64_t end) {
      for (auto k = begin; k < end;) {
        auto const length = places.run(k, end);
        copy(k, places(k), length);
        k += length;
      }
    });
  else
    Kokkos::parallel_for(
        label, Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, count),
        KOKKOS_LAMBDA(std::int64_t k) { copy(k, places(k), 1); });
}

template<class From, class To>
struct CopyRun {
  From const* from;
  To* to;
  bool reads_places; // true: copies from the shard; false: to the shard

  KOKKOS_FUNCTION void operator()(std::int64_t k, std::int64_t place, std::int64_t length) const {
    auto const* const source = from + (reads_places ? place : k);
    auto* const target = to + (reads_places ? k : place);
    for (std::int64_t i = 0; i < length; ++i)
      target[i] = static_cast<To>(source[i]);
  }
};

/// Number of elements of these rows before element `end` of the block.
std::int64_t elements_before(std::span<std::int32_t const> rows, std::int64_t width, std::int64_t end) {
  if (width == 0) return 0;
  auto const row = end / width;
  auto const next = std::ranges::lower_bound(rows, row, {}, [](std::int32_t r) { return std::int64_t{r}; });
  auto const is_cut = next != rows.end() && *next == row;
  return (next - rows.begin()) * width + (is_cut ? end % width : 0);
}

/// Calls visit(block) for the blocks of the ranks along the third axis.
template<class Visit>
void for_each_shard(pmm::ProcessGrid const& grid, pmm::Placement const& shards, Visit const& visit) {
  auto const third = shards.layout.third();
  for (int place = 0; place < grid.size(third); ++place)
    visit(pmm::block_of(grid.shape(), member_of(grid.shape(), grid.coordinates(), third, place), shards));
}

template<class T>
int place_along_third(pmm::DistMatrix<T> const& shards) {
  return shards.grid().coordinate(shards.layout().third());
}

template<class T>
ShardPlaces places_of(pmm::DistMatrix<T> const& shards, FeatureRows const& rows) {
  return {rows.numbers ? rows.numbers->data() : nullptr, shards.block().columns.size(),
          rows.first_in(place_along_third(shards)), shards.block().first};
}

} // namespace

std::int64_t FeatureRows::first_in(int place) const {
  return std::accumulate(counts.begin(), counts.begin() + place, std::int64_t{0});
}

FeatureRows all_feature_rows(pmm::ProcessGrid const& grid, pmm::Placement const& shards) {
  FeatureRows rows;
  for_each_shard(grid, shards, [&](pmm::Block const& block) { rows.counts.push_back(block.num_stored); });
  return rows;
}

FeatureRows feature_rows(pmm::ProcessGrid const& grid, pmm::Placement const& shards,
                         std::vector<std::int32_t>& numbers) {
  FeatureRows rows;
  for_each_shard(grid, shards, [&](pmm::Block const& block) {
    auto const before = [&](std::int64_t end) { return elements_before(numbers, block.columns.size(), end); };
    rows.counts.push_back(before(block.first + block.num_stored) - before(block.first));
  });
  rows.numbers = lent("orthant::models::batch/feature_rows", numbers);
  return rows;
}

template<class T>
void gather_features(DefaultExec const& exec, pmm::DistMatrix<T> const& shards, FeatureRows const& rows,
                     pmm::DistMatrix<T> const& x) {
  constexpr auto label = "orthant::models::gather_features";
  auto const own = static_cast<std::size_t>(place_along_third(shards));
  auto const first = static_cast<std::size_t>(rows.first_in(static_cast<int>(own)));
  auto const count = rows.counts[own];
  auto const part = Kokkos::subview(x.storage(), std::pair(first, first + static_cast<std::size_t>(count)));
  auto const bytes = count * static_cast<std::int64_t>(sizeof(T));
  x.grid().passes().add({"gather_features", bytes, bytes});
  for_each_run(exec, label, count, places_of(shards, rows),
               CopyRun<T, T>{shards.storage().data(), part.data(), true});
  auto const third = shards.layout().third();
  if (x.grid().size(third) > 1 && x.block().size() > 0)
    runtime::all_gatherv(exec, x.grid().over(third), part, x.storage(), rows.counts);
}

template<class T, class Sum>
void spread_gradient(DefaultExec const& exec, pmm::DistMatrix<T> const& gradient, FeatureRows const& rows,
                     pmm::DistMatrix<Sum> const& shards_gradient) {
  constexpr auto label = "orthant::models::spread_gradient";
  auto const place = place_along_third(shards_gradient);
  auto const count = rows.counts[static_cast<std::size_t>(place)];
  auto const& to = shards_gradient.storage();
  gradient.grid().passes().add(
      {"spread_gradient", count * static_cast<std::int64_t>(sizeof(T)), runtime::array_bytes(to)});
  if (rows.numbers) Kokkos::deep_copy(exec, to, Sum(0));
  for_each_run(exec, label, count, places_of(shards_gradient, rows),
               CopyRun<T, Sum>{gradient.storage().data() + rows.first_in(place), to.data(), false});
}

template<class T>
runtime::Vector<std::int8_t> draw_table(graph::StoreFacts const& facts, std::vector<std::int64_t> const& ids,
                                        pmm::DistMatrix<T> const& features, std::uint64_t seed) {
  if (!facts.has_bare_types()) return {};
  auto const& block = features.block();
  runtime::RandomStream const stream(seed, runtime::Purpose::weights, 0, table_number);
  std::vector<std::int8_t> trains_row;
  auto const mirror = Kokkos::create_mirror_view(features.storage());
  Kokkos::deep_copy(mirror, features.storage());
  for (std::size_t row = 0; row < ids.size(); ++row) {
    auto const& type = facts.vertex_types[static_cast<std::size_t>(facts.type_of(ids[row]))];
    trains_row.push_back(type.num_features == 0 ? 1 : 0);
    if (type.num_features > 0) continue;
    auto const limit = std::sqrt(6.0 / static_cast<double>(type.count + facts.num_features));
    auto const width = static_cast<std::size_t>(block.columns.size());
    for (std::size_t i = 0; i < width; ++i) {
      auto const column = static_cast<std::uint64_t>(block.columns.begin) + i;
      auto const u = stream.template uniform<double>(static_cast<std::uint64_t>(ids[row]), column);
      mirror(row * width + i) = static_cast<T>(limit * (2 * u - 1));
    }
  }
  Kokkos::deep_copy(features.storage(), mirror);
  return to_vector<std::int8_t>("orthant::models::trains_row", trains_row);
}

template<class T>
void clear_fixed_rows(DefaultExec const& exec, pmm::DistMatrix<T> const& gradient,
                      runtime::Vector<std::int8_t> const& trains_row) {
  auto const& block = gradient.block();
  auto const first = block.first;
  auto const width = std::max<std::int64_t>(1, block.columns.size());
  auto const numbers = gradient.storage();
  gradient.grid().passes().add(
      {"clear_fixed_rows", 0, block.num_stored * static_cast<std::int64_t>(sizeof(T))});
  Kokkos::parallel_for(
      "orthant::models::clear_fixed_rows",
      Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, block.num_stored),
      KOKKOS_LAMBDA(std::int64_t k) {
        if (trains_row(static_cast<std::size_t>((first + k) / width)) == 0)
          numbers(static_cast<std::size_t>(k)) = T{0};
      });
}

void plan_gather_features(pmm::StepPlan& step, pmm::Placement const& x, std::int64_t num_own) {
  auto const bytes = step.scalar_bytes(num_own);
  step.add_pass({"gather_features", bytes, bytes});
  auto const num_elements = step.block(x).size();
  if (num_elements > 0)
    step.add_call(runtime::Operation::all_gather, x.layout.third(), step.scalar_bytes(num_elements));
}

void plan_spread_gradient(pmm::StepPlan& step, pmm::Placement const& shards, std::int64_t num_own,
                          runtime::Wire format) {
  step.add_pass({"spread_gradient", step.wire_bytes(num_own, format),
                 step.scalar_bytes(step.block(shards).num_padded)});
}

#define ORTHANT_INSTANTIATE(T, Sum)                                                                          \
  template void spread_gradient(DefaultExec const&, pmm::DistMatrix<T> const&, FeatureRows const&,           \
                                pmm::DistMatrix<Sum> const&);
ORTHANT_INSTANTIATE(float, float)
ORTHANT_INSTANTIATE(double, double)
ORTHANT_INSTANTIATE(runtime::Bf16Number, float)
ORTHANT_INSTANTIATE(runtime::Fp16Number, float)
#undef ORTHANT_INSTANTIATE
template void gather_features(DefaultExec const&, pmm::DistMatrix<float> const&, FeatureRows const&,
                              pmm::DistMatrix<float> const&);
template void gather_features(DefaultExec const&, pmm::DistMatrix<double> const&, FeatureRows const&,
                              pmm::DistMatrix<double> const&);

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template runtime::Vector<std::int8_t> draw_table(                                                          \
      graph::StoreFacts const&, std::vector<std::int64_t> const&, pmm::DistMatrix<T> const&, std::uint64_t); \
  template void clear_fixed_rows(DefaultExec const&, pmm::DistMatrix<T> const&,                              \
                                 runtime::Vector<std::int8_t> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models
