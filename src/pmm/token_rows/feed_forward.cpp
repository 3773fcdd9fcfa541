// SPDX-License-Identifier: Apache-2.0
#include "pmm/token_rows/feed_forward.hpp"

#include "pmm/kernels/host_parts.hpp"
#include "pmm/kernels/packs.hpp"
#include "pmm/token_rows/feed_forward_kernels.hpp"
#include "pmm/token_rows/row_norm.hpp"
#include "pmm/token_rows/token_kernels_host.hpp"
#include "runtime/error.hpp"

namespace orthant::pmm {

using runtime::DefaultExec;
using runtime::LocalPass;
using runtime::Matrix;
using runtime::PassLedger;

namespace {

/// A pass that reads `num_read` and writes `num_written` arrays of `num_outputs` elements.
LocalPass pass_of(std::string_view name, std::int64_t num_outputs, std::int64_t scalar_bytes,
                  std::int64_t num_read, std::int64_t num_written) {
  auto const bytes = num_outputs * scalar_bytes;
  return {.name = name,
          .bytes_read = num_read * bytes,
          .bytes_written = num_written * bytes,
          .exponentials = num_outputs};
}
LocalPass gelu_pass(std::int64_t num_outputs, std::int64_t scalar_bytes) {
  return pass_of("gelu", num_outputs, scalar_bytes, 1, 1);
}
LocalPass gelu_backward_pass(std::int64_t num_outputs, std::int64_t scalar_bytes) {
  return pass_of("gelu_backward", num_outputs, scalar_bytes, 2, 1);
}
LocalPass swiglu_pass(std::int64_t num_outputs, std::int64_t scalar_bytes) {
  return pass_of("swiglu", num_outputs, scalar_bytes, 2, 1);
}
LocalPass swiglu_backward_pass(std::int64_t num_outputs, std::int64_t scalar_bytes) {
  return pass_of("swiglu_backward", num_outputs, scalar_bytes, 3, 2);
}

template<class T>
std::int64_t count_of(Matrix<T> const& x) {
  return static_cast<std::int64_t>(x.size());
}

template<class T>
void require_alike(char const* what, Matrix<T> const& x, Matrix<T> const& y) {
  ORTHANT_REQUIRE(x.extent(0) == y.extent(0) && x.extent(1) == y.extent(1), what, ": arrays of ", x.extent(0),
                  " x ", x.extent(1), " and ", y.extent(0), " x ", y.extent(1), " should be equal in size");
}

template<class T>
void require_pairs(char const* what, Matrix<T> const& z, Matrix<T> const& y) {
  ORTHANT_REQUIRE(z.extent(0) == y.extent(0) && z.extent(1) == 2 * y.extent(1), what, ": ", z.extent(0),
                  " x ", z.extent(1), " numbers are no pairs for ", y.extent(0), " x ", y.extent(1));
}

/// Runs `body` for every element on a device, and the kernel on parts of the task on a host.
template<class T, class Body>
void run(DefaultExec const& exec, char const* label, std::int64_t count,
         void (*host_tokens::HostTokenKernels<T>::*kernel)(host_tokens::HostFeedForward<T> const&,
                                                           std::int64_t, std::int64_t),
         host_tokens::HostFeedForward<T> const& task, Body const& body) {
  if constexpr (runs_on_host)
    for_each_part(exec, label, count,
                  [task, function = host_tokens::best_token_kernels<T>().*kernel](
                      std::int64_t begin, std::int64_t end) { function(task, begin, end); });
  else
    Kokkos::parallel_for(label, Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, count), body);
}

} // namespace

template<class T>
void gelu(DefaultExec const& exec, PassLedger& passes, Matrix<T> const& z, Matrix<T> const& y) {
  require_alike("gelu", z, y);
  passes.add(gelu_pass(count_of(z), sizeof(T)));
  run<T>(exec, "orthant::pmm::gelu", count_of(z), &host_tokens::HostTokenKernels<T>::gelu,
         {z.data(), nullptr, y.data()}, detail::GeluElement<T>{z.data(), y.data()});
}

template<class T>
void gelu_backward(DefaultExec const& exec, PassLedger& passes, Matrix<T> const& z, Matrix<T> const& dy,
                   Matrix<T> const& dz) {
  require_alike("gelu_backward", z, dy);
  require_alike("gelu_backward", z, dz);
  passes.add(gelu_backward_pass(count_of(z), sizeof(T)));
  run<T>(exec, "orthant::pmm::gelu_backward", count_of(z), &host_tokens::HostTokenKernels<T>::gelu_backward,
         {z.data(), dy.data(), dz.data()}, detail::GeluBackwardElement<T>{z.data(), dy.data(), dz.data()});
}

template<class T>
void swiglu(DefaultExec const& exec, PassLedger& passes, Matrix<T> const& z, Matrix<T> const& y) {
  require_pairs("swiglu", z, y);
  passes.add(swiglu_pass(count_of(y), sizeof(T)));
  run<T>(exec, "orthant::pmm::swiglu", count_of(y), &host_tokens::HostTokenKernels<T>::swiglu,
         {z.data(), nullptr, y.data()}, detail::SwigluElement<T>{z.data(), y.data()});
}

template<class T>
void swiglu_backward(DefaultExec const& exec, PassLedger& passes, Matrix<T> const& z, Matrix<T> const& dy,
                     Matrix<T> const& dz) {
  require_pairs("swiglu_backward", z, dy);
  require_alike("swiglu_backward", z, dz);
  passes.add(swiglu_backward_pass(count_of(dy), sizeof(T)));
  run<T>(exec, "orthant::pmm::swiglu_backward", count_of(dy),
         &host_tokens::HostTokenKernels<T>::swiglu_backward, {z.data(), dy.data(), dz.data()},
         detail::SwigluBackwardElement<T>{z.data(), dy.data(), dz.data()});
}

namespace {

/// Runs `body` for every element, on a host in the order of the elements.
template<class Body>
void for_each_element(DefaultExec const& exec, char const* label, std::int64_t count, Body const& body) {
  Kokkos::parallel_for(label, Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, count), body);
}

} // namespace

template<class T>
void activate(DefaultExec const& exec, PassLedger& passes, FeedForward kind, Matrix<T> const& z,
              Matrix<T> const& y) {
  if (kind == FeedForward::swiglu) return swiglu<T>(exec, passes, z, y);
  if (kind == FeedForward::gelu) return gelu<T>(exec, passes, z, y);
  require_alike("gelu_tanh", z, y);
  passes.add(gelu_pass(count_of(z), sizeof(T)));
  for_each_element(exec, "orthant::pmm::gelu_tanh", count_of(z),
                   detail::GeluTanhElement<T>{z.data(), y.data()});
}

template<class T>
void activate_backward(DefaultExec const& exec, PassLedger& passes, FeedForward kind, Matrix<T> const& z,
                       Matrix<T> const& dy, Matrix<T> const& dz) {
  if (kind == FeedForward::swiglu) return swiglu_backward<T>(exec, passes, z, dy, dz);
  if (kind == FeedForward::gelu) return gelu_backward<T>(exec, passes, z, dy, dz);
  require_alike("gelu_tanh_backward", z, dy);
  require_alike("gelu_tanh_backward", z, dz);
  passes.add(gelu_backward_pass(count_of(z), sizeof(T)));
  for_each_element(exec, "orthant::pmm::gelu_tanh_backward", count_of(z),
                   detail::GeluTanhBackwardElement<T>{z.data(), dy.data(), dz.data()});
}

void plan_gelu(StepPlan& step, std::int64_t num_outputs) {
  step.add_pass(gelu_pass(num_outputs, step.scalar_bytes(1)));
}
void plan_gelu_backward(StepPlan& step, std::int64_t num_outputs) {
  step.add_pass(gelu_backward_pass(num_outputs, step.scalar_bytes(1)));
}
void plan_swiglu(StepPlan& step, std::int64_t num_outputs) {
  step.add_pass(swiglu_pass(num_outputs, step.scalar_bytes(1)));
}
void plan_swiglu_backward(StepPlan& step, std::int64_t num_outputs) {
  step.add_pass(swiglu_backward_pass(num_outputs, step.scalar_bytes(1)));
}
void plan_activate(StepPlan& step, FeedForward kind, std::int64_t num_outputs) {
  kind == FeedForward::swiglu ? plan_swiglu(step, num_outputs) : plan_gelu(step, num_outputs);
}
void plan_activate_backward(StepPlan& step, FeedForward kind, std::int64_t num_outputs) {
  kind == FeedForward::swiglu ? plan_swiglu_backward(step, num_outputs)
                              : plan_gelu_backward(step, num_outputs);
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void activate(DefaultExec const&, PassLedger&, FeedForward, Matrix<T> const&, Matrix<T> const&);  \
  template void activate_backward(DefaultExec const&, PassLedger&, FeedForward, Matrix<T> const&,            \
                                  Matrix<T> const&, Matrix<T> const&);                                       \
  template void gelu(DefaultExec const&, PassLedger&, Matrix<T> const&, Matrix<T> const&);                   \
  template void gelu_backward(DefaultExec const&, PassLedger&, Matrix<T> const&, Matrix<T> const&,           \
                              Matrix<T> const&);                                                             \
  template void swiglu(DefaultExec const&, PassLedger&, Matrix<T> const&, Matrix<T> const&);                 \
  template void swiglu_backward(DefaultExec const&, PassLedger&, Matrix<T> const&, Matrix<T> const&,         \
                                Matrix<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

namespace {

/// A pass that reads `num_read` arrays and writes one. If `draws_mask`, it also reads the ids of the rows to draw the mask.
LocalPass pass_of(std::string_view name, RowBlock const& block, std::int64_t scalar_bytes,
                  std::int64_t num_read, bool draws_mask) {
  auto const count = block.rows * block.columns;
  auto const ids = draws_mask ? block.rows * std::int64_t{sizeof(std::int64_t)} : 0;
  return {.name = name,
          .bytes_read = num_read * count * scalar_bytes + ids,
          .bytes_written = count * scalar_bytes,
          .random_numbers = draws_mask ? count : 0};
}
LocalPass add_pass(RowBlock const& block, std::int64_t scalar_bytes, bool draws_mask) {
  return pass_of("add_dropped", block, scalar_bytes, 2, draws_mask);
}
LocalPass drop_pass(RowBlock const& block, std::int64_t scalar_bytes, bool draws_mask) {
  return pass_of("drop_rows", block, scalar_bytes, 1, draws_mask);
}

/// to := [base +] M from, four numbers at a time.
template<class T>
struct DropPack {
  PackedArray<T const> base; // null if there is none
  PackedArray<T const> from;
  PackedArray<T> to;
  Divisor num_columns;
  runtime::RandomStream stream;
  std::int64_t const* token_ids;
  std::int64_t first_column;
  std::uint64_t drop_threshold;
  T scale;

  KOKKOS_FUNCTION void operator()(std::int64_t first, std::int64_t count) const {
    auto pack = from.load(first, count);
    if (drop_threshold != 0) {
      Place place(first, num_columns);
      for (int k = 0; k < pack_size && k < count; ++k) {
        auto const row = static_cast<std::uint64_t>(token_ids[place.row]);
        auto const column = static_cast<std::uint64_t>(first_column + place.column);
        pack.number[k] = stream.bits32(row, column) < drop_threshold ? T{0} : pack.number[k] * scale;
        place.step(num_columns.value());
      }
    }
    if (!base.is_empty()) add(pack, base.load(first, count));
    to.store(first, count, pack);
  }
};

template<class T>
void require_fits(Matrix<T> const& from, RowDropout const& dropout, Matrix<T> const& to) {
  ORTHANT_REQUIRE(from.extent(0) == to.extent(0) && from.extent(1) == to.extent(1), "arrays of ",
                  from.extent(0), " x ", from.extent(1), " and ", to.extent(0), " x ", to.extent(1),
                  " should be equal in size");
  ORTHANT_REQUIRE(dropout.probability >= 0 && dropout.probability < 1, "dropout with probability ",
                  dropout.probability);
  ORTHANT_REQUIRE(dropout.probability == 0 || dropout.token_ids.extent(0) >= from.extent(0), "dropout of ",
                  from.extent(0), " rows needs the number of each token, and has ",
                  dropout.token_ids.extent(0));
}

template<class T>
void drop_elements(DefaultExec const& exec, char const* label, T const* base, Matrix<T> const& from,
                   RowDropout const& dropout, Matrix<T> const& to) {
  auto const threshold = runtime::bernoulli_threshold(dropout.probability); // at most 2^32
  auto const keep_scale = static_cast<T>(1 / (1 - dropout.probability));
  if constexpr (runs_on_host) {
    host_tokens::HostDrop<T> task;
    task.num_columns = static_cast<std::int64_t>(from.extent(1));
    task.base = base;
    task.from = from.data();
    task.to = to.data();
    if (threshold > 0) {
      task.token_ids = dropout.token_ids.data();
      task.first_column = static_cast<std::uint64_t>(dropout.first_column);
      task.key = dropout.stream.key();
      task.last_dropped = static_cast<std::uint32_t>(threshold - 1);
      task.keep_scale = keep_scale;
    }
    for_each_part(exec, label, static_cast<std::int64_t>(from.extent(0)),
                  [task, drop = host_tokens::best_token_kernels<T>().drop](
                      std::int64_t begin, std::int64_t end) { drop(task, begin, end); });
    return;
  }
  for_each_pack(exec, label, static_cast<std::int64_t>(from.size()),
                DropPack<T>{PackedArray<T const>(base), PackedArray<T const>(from.data()),
                            PackedArray<T>(to.data()), Divisor(static_cast<std::int64_t>(from.extent(1))),
                            dropout.stream, dropout.token_ids.data(), dropout.first_column, threshold,
                            keep_scale});
}

} // namespace

template<class T>
void add_dropped(DefaultExec const& exec, PassLedger& passes, Matrix<T> const& base, Matrix<T> const& from,
                 RowDropout const& dropout, Matrix<T> const& to) {
  require_fits(from, dropout, to);
  require_fits(base, dropout, to);
  passes.add(add_pass(row_block_of(from), sizeof(T), dropout.probability > 0));
  drop_elements(exec, "orthant::pmm::add_dropped", base.data(), from, dropout, to);
}

template<class T>
void drop_rows(DefaultExec const& exec, PassLedger& passes, Matrix<T> const& from, RowDropout const& dropout,
               Matrix<T> const& to) {
  require_fits(from, dropout, to);
  passes.add(drop_pass(row_block_of(from), sizeof(T), dropout.probability > 0));
  drop_elements(exec, "orthant::pmm::drop_rows", static_cast<T const*>(nullptr), from, dropout, to);
}

void plan_add_dropped(StepPlan& step, std::int64_t num_rows, std::int64_t num_columns, bool draws_mask) {
  step.add_pass(add_pass({num_rows, num_columns}, step.scalar_bytes(1), draws_mask));
}
void plan_drop_rows(StepPlan& step, std::int64_t num_rows, std::int64_t num_columns, bool draws_mask) {
  step.add_pass(drop_pass({num_rows, num_columns}, step.scalar_bytes(1), draws_mask));
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void add_dropped(DefaultExec const&, PassLedger&, Matrix<T> const&, Matrix<T> const&,             \
                            RowDropout const&, Matrix<T> const&);                                            \
  template void drop_rows(DefaultExec const&, PassLedger&, Matrix<T> const&, RowDropout const&,              \
                          Matrix<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::pmm
