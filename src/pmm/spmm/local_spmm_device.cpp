// SPDX-License-Identifier: Apache-2.0
#include "pmm/spmm/local_spmm_device.hpp"

#include "pmm/spmm/local_spmm_rows.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

namespace orthant::pmm::detail {
namespace {

constexpr int most_lanes = 32;
constexpr int block_strip_bytes = most_lanes * 16;
constexpr int lanes_per_team = 128; // small, because a team takes as long as its slowest row

/// The compiler keeps all gathers of a step in flight only if launch bounds set the number of registers: 64 for eight teams per
/// multiprocessor, 80 for six teams if there are weights (five teams for doubles).
template<int teams>
using TeamPolicy = Kokkos::TeamPolicy<DefaultExec, Kokkos::LaunchBounds<lanes_per_team, teams>>;
constexpr int teams_of_patterns = 8;
template<class T>
constexpr int teams_of_weights = sizeof(T) == sizeof(float) ? 6 : 5;

/// True if B should first be copied to rows of whole packs, multiplied by the column scales. The copy moves twice the bytes of B. It avoids
/// gathers of single numbers if rows of B are not aligned. If there are scales, it also saves a 32-byte sector of cache traffic per
/// non-zero and strip, of which only 4 or 8 bytes are used; this matters for narrow rows. Not possible with row groups, whose scales
/// differ between rows, and with self loops, which need the original B.
template<class T, class Operand, class Result>
bool pays_to_copy(RowsProduct<T, Operand, Result> const& p, bool is_aligned, std::int64_t num_nonzeros) {
  if (runtime::is_16_bit<Operand> && is_aligned) return false; // scales must not be rounded
  if (p.row_groups != nullptr || p.self_columns != nullptr) return false;
  constexpr std::int64_t gathers_of_a_row = 8;
  if (!is_aligned) return num_nonzeros >= gathers_of_a_row * p.num_columns;
  constexpr std::int64_t bytes_worth_a_sector = 4; // bytes of B per saved sector; saves three times the cost
  auto const num_strips = (p.width * static_cast<int>(sizeof(T)) + block_strip_bytes - 1) / block_strip_bytes;
  return p.column_scale != nullptr && bytes_worth_a_sector * num_nonzeros * num_strips >=
                                          p.num_columns * p.width * static_cast<std::int64_t>(sizeof(T));
}

/// Number of lanes of a thread: the number of packs rounded up to a power of two, from 4 to most_lanes.
int lanes_of(std::int64_t num_packs) {
  auto lanes = 4;
  while (lanes < num_packs && lanes < most_lanes)
    lanes *= 2;
  return lanes;
}

/// Runs `functor` on `count` threads with `lanes` vector lanes each. On a host, a thread has one lane and a team has one thread.
template<int teams, class Functor>
void run_threads(std::string const& label, DefaultExec const& exec, std::int64_t count, int lanes,
                 Functor const& functor) {
  TeamPolicy<teams> const single(exec, 1, 1, lanes);
  auto const team_size =
      std::min(lanes_per_team / lanes, single.team_size_max(functor, Kokkos::ParallelForTag()));
  auto const num_teams = (count + team_size - 1) / team_size;
  ORTHANT_REQUIRE(num_teams <= std::numeric_limits<int>::max(), "a product of ", count, " rows");
  Kokkos::parallel_for(label, TeamPolicy<teams>(exec, static_cast<int>(num_teams), team_size, lanes),
                       functor);
}

/// Copies B to rows of whole packs, padded with zeros and multiplied by the column scales. One thread per row.
template<class Operand>
struct AlignRows {
  static constexpr int pack = widest_pack<Operand>;
  using Sum = runtime::SumOf<Operand>;

  Operand const* b;
  Sum const* scale; // null if all are 1
  Operand* aligned;
  std::int64_t num_rows;
  std::int64_t width;
  std::int64_t stride;

  KOKKOS_FUNCTION void operator()(TeamPolicy<teams_of_patterns>::member_type const& team) const {
    auto const row = static_cast<std::int64_t>(team.league_rank()) * team.team_size() + team.team_rank();
    if (row >= num_rows) return;
    auto const factor = scale == nullptr ? Sum{1} : scale[row];
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, static_cast<int>(stride) / pack), [&](int lane) {
      StoredNumbers<Operand, pack> numbers;
      auto const first = static_cast<std::int64_t>(lane) * pack;
      for (int i = 0; i < pack; ++i)
        numbers.set(i, first + i < width ? factor * b[row * width + first + i] : Sum{0});
      *reinterpret_cast<StoredNumbers<Operand, pack>*>(aligned + row * stride + first) = numbers;
    });
  }
};

template<int pack, class T, class Operand, class Result>
void multiply_strip(DefaultExec const& exec, RowsProduct<T, Operand, Result> const& strip) {
  auto const lanes = lanes_of((strip.width + pack - 1) / pack);
  auto const* const label = "orthant::pmm::spmm";
  if (strip.values != nullptr)
    run_threads<teams_of_weights<T>>(label, exec, strip.num_pieces, lanes,
                                     MultiplyRows<T, Operand, Result, pack, Weights::any>{strip});
  else if (strip.column_scale != nullptr)
    run_threads<teams_of_weights<T>>(label, exec, strip.num_pieces, lanes,
                                     MultiplyRows<T, Operand, Result, pack, Weights::of_columns>{strip});
  else
    run_threads<teams_of_patterns>(label, exec, strip.num_pieces, lanes,
                                   MultiplyRows<T, Operand, Result, pack, Weights::none>{strip});
}

template<int pack, class T, class Operand, class Result>
void multiply(DefaultExec const& exec, RowsProduct<T, Operand, Result> const& product) {
  constexpr auto strip_width = most_lanes * pack;
  for (std::int32_t column = 0; column < product.width; column += strip_width)
    multiply_strip<pack>(exec, product.strip(column, std::min(strip_width, product.width - column)));
}

template<int pack, class T, class Operand, class Result>
void add_pieces(std::string const& label, DefaultExec const& exec,
                RowsProduct<T, Operand, Result> const& product, Vector<PieceSum> const& sums) {
  if (sums.extent(0) == 0) return;
  using Policy =
      Kokkos::RangePolicy<DefaultExec, std::int64_t, Kokkos::LaunchBounds<lanes_per_team, teams_of_patterns>>;
  auto const lanes_per_row = (product.width + pack - 1) / pack;
  Kokkos::parallel_for(label, Policy(exec, 0, static_cast<std::int64_t>(sums.extent(0)) * lanes_per_row),
                       AddPieces<T, Operand, Result, pack>{product, sums.data(), lanes_per_row});
}

template<int pack, class T>
bool begins_packs(T const* data, std::int64_t width) {
  return width % pack == 0 && may_hold<StoredNumbers<T, pack>>(data);
}

template<class T>
T const* pointer_or_null(Vector<T> const& view) {
  return view.extent(0) == 0 ? nullptr : view.data();
}

template<class T>
Vector<T> on_device(std::vector<T> const& numbers, std::string const& label) {
  Vector<T> view(Kokkos::view_alloc(label, Kokkos::WithoutInitializing), numbers.size());
  Kokkos::deep_copy(view, Kokkos::View<T const*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>(numbers.data(),
                                                                                             numbers.size()));
  return view;
}

/// weights_k := v_k s_{j_k}
template<class T>
struct WeighEntries {
  std::int32_t const* columns;
  T const* values; // null if all are 1
  T const* scale;
  T* weights;
  KOKKOS_FUNCTION void operator()(std::int64_t k) const {
    weights[k] = (values == nullptr ? T{1} : values[k]) * scale[columns[k]];
  }
};

template<class Operand>
std::size_t aligned_width(std::size_t width) {
  constexpr auto pack = static_cast<std::size_t>(widest_pack<Operand>);
  return (width + pack - 1) / pack * pack;
}

} // namespace

template<class T>
typename DeviceSpmm<T>::Plan& DeviceSpmm<T>::plan_of(DefaultExec const& exec, Range rows) {
  auto const known = std::find_if(plans_.begin(), plans_.end(), [&](Plan const& plan) {
    return plan.rows.begin == rows.begin && plan.rows.end == rows.end;
  });
  if (known != plans_.end()) return *known;
  runtime::compat::fence(exec, "orthant::pmm::spmm/offsets are read");
  auto const offsets = Kokkos::create_mirror_view_and_copy(
      Kokkos::HostSpace{}, Kokkos::subview(block_.csr.row_offsets,
                                           std::pair<std::int64_t, std::int64_t>(rows.begin, rows.end + 1)));
  auto const plan = plan_rows(std::span(offsets.data(), offsets.extent(0)), rows);
  plans_.push_back({rows, on_device(plan.pieces, "orthant::pmm::row_pieces"),

                    on_device(plan.groups, "orthant::pmm::piece_groups"),
                    on_device(plan.long_rows, "orthant::pmm::long_rows"), plan.num_places,
                    offsets(offsets.extent(0) - 1) - offsets(0)});
  return plans_.back();
}

template<class T>
Matrix<T> const& DeviceSpmm<T>::sums_of(Plan& plan, std::size_t width) {
  auto const known = std::find_if(plan.sums.begin(), plan.sums.end(),
                                  [&](Matrix<T> const& sums) { return sums.extent(1) == width; });
  if (known != plan.sums.end()) return *known;
  plan.sums.push_back(Matrix<T>(Kokkos::view_alloc("orthant::pmm::piece_sums", Kokkos::WithoutInitializing),
                                static_cast<std::size_t>(plan.num_places), width));
  return plan.sums.back();
}

/// Copies B, and makes the product read the copy.
template<class T>
template<class Operand, class Result>
void DeviceSpmm<T>::copy_b(DefaultExec const& exec, RowsProduct<T, Operand, Result>& product) {
  auto const width = aligned_width<Operand>(static_cast<std::size_t>(product.width));
  auto const num_words =
      static_cast<std::size_t>(product.num_columns) * width * sizeof(Operand) / sizeof(std::uint64_t);
  auto known = std::find_if(copies_.begin(), copies_.end(),
                            [&](auto const& copy) { return copy.extent(0) == num_words; });
  if (known == copies_.end()) {
    copies_.push_back(Vector<std::uint64_t>(
        Kokkos::view_alloc("orthant::pmm::aligned_b", Kokkos::WithoutInitializing), num_words));
    known = copies_.end() - 1;
  }
  auto* const copy = reinterpret_cast<Operand*>(known->data());
  run_threads<teams_of_patterns>("orthant::pmm::spmm/align", exec, product.num_columns,
                                 lanes_of(static_cast<std::int64_t>(width) / widest_pack<Operand>),
                                 AlignRows<Operand>{product.b, product.column_scale, copy,
                                                    product.num_columns, product.width,
                                                    static_cast<std::int64_t>(width)});
  product.b = copy;
  product.b_stride = static_cast<std::uint32_t>(width);
  product.column_scale = nullptr;
}

/// Returns the weights v_k s_{j_k} of the non-zeros, which are computed at the first call.
template<class T>
T const* DeviceSpmm<T>::weights(DefaultExec const& exec) {
  auto const& csr = block_.csr;
  if (weights_.extent(0) == csr.columns.extent(0)) return weights_.data();
  weights_ = Vector<T>(Kokkos::view_alloc(exec, "orthant::pmm::weights", Kokkos::WithoutInitializing),
                       csr.columns.extent(0));
  Kokkos::parallel_for("orthant::pmm::spmm/weights",
                       Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, csr.num_nonzeros()),
                       WeighEntries<T>{csr.columns.data(), pointer_or_null(csr.values),
                                       block_.column_scale.data(), weights_.data()});
  return weights_.data();
}

template<class T>
template<class Operand, class Result>
void DeviceSpmm<T>::apply(DefaultExec const& exec, Range rows, Matrix<Operand> const& b,
                          Matrix<Result> const& c) {
  constexpr auto pack = widest_pack<Operand>;
  auto const& csr = block_.csr;
  auto const width = static_cast<std::int32_t>(b.extent(1));
  RowsProduct<T, Operand, Result> product;
  product.row_offsets = csr.row_offsets.data();
  product.columns = csr.columns.data();
  product.values = pointer_or_null(csr.values);
  product.row_scale = pointer_or_null(block_.row_scale);
  product.column_scale = pointer_or_null(block_.column_scale);
  product.row_groups = pointer_or_null(block_.row_groups);
  product.self_columns = pointer_or_null(block_.self_columns);
  product.self_scale = pointer_or_null(block_.self_scale);
  product.num_columns = csr.num_columns;
  product.first_row = rows.begin;
  product.num_pieces = rows.size();
  product.b = b.data();
  product.c = c.data();
  product.b_stride = static_cast<std::uint32_t>(width);
  product.c_stride = product.width = width;
  auto is_aligned = begins_packs<pack>(b.data(), width);

  Plan const* plan = nullptr;
  if (contents_ == Contents::fixed && rows.end <= std::numeric_limits<std::int32_t>::max()) {
    auto& kept = plan_of(exec, rows);
    plan = &kept;
    product.pieces = kept.pieces.data();
    product.num_pieces = static_cast<std::int64_t>(kept.pieces.extent(0));
    auto const sums_width = aligned_width<Operand>(b.extent(1));
    if (kept.num_places > 0) product.sums = sums_of(kept, sums_width).data();
    product.sums_stride = static_cast<std::int32_t>(sums_width);
    if constexpr (runtime::is_16_bit<Operand>)
      if (product.column_scale != nullptr && product.row_groups == nullptr) {
        product.values = weights(exec);
        product.column_scale = nullptr;
      }
    if (pays_to_copy(product, is_aligned, kept.num_nonzeros)) {
      copy_b(exec, product);
      is_aligned = true;
    }
  }
  product.c_is_aligned = !is_aligned || begins_packs<pack>(c.data(), width);
  if (is_aligned)
    multiply_and_add<pack>(exec, product, plan);
  else
    multiply_and_add<1>(exec, product, plan);
}

/// Computes the product, and adds the pieces of long rows. Without a plan, no row was cut.
template<class T>
template<int pack, class Operand, class Result>
void DeviceSpmm<T>::multiply_and_add(DefaultExec const& exec, RowsProduct<T, Operand, Result> const& product,
                                     Plan const* plan) const {
  multiply<pack>(exec, product);
  if (plan == nullptr) return;
  add_pieces<pack>("orthant::pmm::spmm/groups of pieces", exec, product, plan->groups);
  add_pieces<pack>("orthant::pmm::spmm/long rows", exec, product, plan->long_rows);
}

template class DeviceSpmm<float>;
template class DeviceSpmm<double>;
#define ORTHANT_INSTANTIATE(T, Operand, Result)                                                              \
  template void DeviceSpmm<T>::apply(DefaultExec const&, Range, Matrix<Operand> const&,                      \
                                     Matrix<Result> const&);
ORTHANT_INSTANTIATE(float, float, float)
ORTHANT_INSTANTIATE(double, double, double)
ORTHANT_INSTANTIATE(float, runtime::Bf16Number, float)
ORTHANT_INSTANTIATE(float, runtime::Fp16Number, float)
ORTHANT_INSTANTIATE(float, runtime::Bf16Number, runtime::Bf16Number)
ORTHANT_INSTANTIATE(float, runtime::Fp16Number, runtime::Fp16Number)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::pmm::detail
