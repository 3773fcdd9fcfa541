// SPDX-License-Identifier: Apache-2.0
#include "pmm/experts/dispatch.hpp"

#include "pmm/kernels/host_parts.hpp"
#include "pmm/kernels/list_teams.hpp"

#include <algorithm>
#include <utility>

namespace orthant::pmm {
namespace {

using runtime::DefaultExec, runtime::LocalPass, runtime::Matrix, runtime::PassLedger, runtime::Vector;

constexpr std::int64_t index_bytes = sizeof(std::int64_t);

/// The first `count` elements.
template<class T>
Vector<T> part_of(Vector<T> const& numbers, std::int64_t count) {
  return Vector<T>(numbers.data(), static_cast<std::size_t>(count));
}

Vector<std::int64_t> to_kernels(runtime::GrowingVector<std::int64_t>& memory,
                                std::vector<std::int64_t> const& values) {
  auto const view = part_of(memory.reserve(std::ssize(values)), std::ssize(values));
  Kokkos::deep_copy(view, Kokkos::View<std::int64_t const*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>(
                              values.data(), values.size()));
  return view;
}

/// Calls body(i, j) for all elements of a row-major array. On a device, neighboring lanes process neighboring columns.
template<class Body>
struct EachColumn {
  Body body;
  std::int64_t columns;
  KOKKOS_FUNCTION void operator()(RowTeam const& team, std::int64_t i) const {
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, columns), [&](std::int64_t j) { body(i, j); });
  }
};
template<class Body>
void for_each_number(DefaultExec const& exec, char const* label, std::int64_t rows, std::int64_t columns,
                     Body const& body) {
  if constexpr (runs_on_host)
    for_each_part(exec, label, rows, [body, columns](std::int64_t begin, std::int64_t end) {
      for (auto i = begin; i < end; ++i)
        for (std::int64_t j = 0; j < columns; ++j)
          body(i, j);
    });
  else
    for_each_row(exec, label, rows, columns, EachColumn<Body>{body, columns});
}

/// to_c := w_ik from_i for each choice (i, k) that is sent as row c.
template<class T>
struct PackArguments {
  T const* from;
  T const* weights; // null if all are 1
  std::int64_t const* choices;
  std::int64_t num_choices;
  std::int64_t columns;
  T* to;
  KOKKOS_FUNCTION void operator()(std::int64_t c, std::int64_t j) const {
    auto const choice = choices[c];
    auto const number = from[choice / num_choices * columns + j];
    to[c * columns + j] = weights == nullptr ? number : weights[choice] * number;
  }
};

/// to_r := from_{place of r} if `gathers`, else to_{place of r} := from_r.
template<class T>
struct Permute {
  T const* from;
  std::int64_t const* places;
  bool gathers;
  std::int64_t columns;
  T* to;
  KOKKOS_FUNCTION void operator()(std::int64_t r, std::int64_t j) const {
    auto const in_order = r * columns + j;
    auto const elsewhere = places[r] * columns + j;
    if (gathers)
      to[in_order] = from[elsewhere];
    else
      to[elsewhere] = from[in_order];
  }
};

/// x_i := (or += if `adds`) sum_k w_ik s_{place of (i, k)}, added in the order of k.
template<class T>
struct Combine {
  T const* s;
  T const* weights; // null if all are 1
  std::int64_t const* places;
  std::int64_t num_choices;
  std::int64_t first_row; // first own row
  std::int64_t columns;
  bool adds;
  T* x;
  KOKKOS_FUNCTION void operator()(std::int64_t i, std::int64_t j) const {
    auto const row = first_row + i;
    T sum = 0;
    for (std::int64_t k = 0; k < num_choices; ++k) {
      auto const place = places[i * num_choices + k];
      if (place < 0) continue;
      auto const number = s[place * columns + j];
      sum += weights == nullptr ? number : weights[row * num_choices + k] * number;
    }
    auto& number = x[row * columns + j];
    number = adds ? number + sum : sum;
  }
};

/// Products of own choices: each is the dot product of a row of s and a row of x.
template<class T>
struct Dot {
  T const* s;
  T const* x;
  std::int64_t const* places;
  std::int64_t num_choices;
  std::int64_t first_row;
  std::int64_t columns;
  T* products;

  [[nodiscard]] KOKKOS_FUNCTION T term(std::int64_t choice, std::int64_t j) const {
    return s[places[choice] * columns + j] * x[(first_row + choice / num_choices) * columns + j];
  }
  KOKKOS_FUNCTION void operator()(RowTeam const& team, std::int64_t choice) const {
    if (places[choice] < 0) return;
    T sum = 0;
    Kokkos::parallel_reduce(
        Kokkos::ThreadVectorRange(team, columns), [&](std::int64_t j, T& part) { part += term(choice, j); },
        sum);
    Kokkos::single(Kokkos::PerThread(team), [&] { products[first_row * num_choices + choice] = sum; });
  }
  void on_host(std::int64_t choice) const {
    if (places[choice] < 0) return;
    T sum = 0;
    for (std::int64_t j = 0; j < columns; ++j)
      sum += term(choice, j);
    products[first_row * num_choices + choice] = sum;
  }
};

std::vector<std::int64_t> times(std::vector<std::int64_t> counts, std::int64_t columns) {
  for (auto& count : counts)
    count *= columns;
  return counts;
}

// Passes of a dispatch. `scalar` is the size of an element in bytes.
LocalPass pack_pass(DispatchSizes const& sizes, std::int64_t columns, bool has_weights, std::int64_t scalar) {
  auto const numbers = sizes.num_sent * columns * scalar;
  return {"dispatch/pack", numbers + sizes.num_sent * (index_bytes + (has_weights ? scalar : 0)), numbers};
}
LocalPass permute_pass(DispatchSizes const& sizes, std::int64_t columns, std::int64_t scalar) {
  auto const numbers = sizes.num_arrived * columns * scalar;
  return {"dispatch/permute", numbers + sizes.num_arrived * index_bytes, numbers};
}
LocalPass combine_pass(DispatchSizes const& sizes, std::int64_t columns, bool has_weights, Update update,
                       std::int64_t scalar) {
  auto const written = sizes.num_own_rows * columns * scalar;
  return {"dispatch/combine",
          sizes.num_sent * (columns + (has_weights ? 1 : 0)) * scalar +
              sizes.num_own_rows * sizes.num_choices * index_bytes + (update == Update::add ? written : 0),
          written};
}
LocalPass dot_pass(DispatchSizes const& sizes, std::int64_t columns, std::int64_t scalar) {
  return {"dispatch/dot",
          2 * sizes.num_sent * columns * scalar + sizes.num_own_rows * sizes.num_choices * index_bytes,
          sizes.num_rows * sizes.num_choices * scalar};
}

std::int64_t most_rows(DispatchSizes const& sizes) {
  return std::max({sizes.num_sent, sizes.num_received, sizes.num_arrived});
}

} // namespace

template<class T>
Dispatch<T>::Dispatch(ProcessGrid const& grid, DispatchAxes const& axes, std::int64_t num_groups,
                      std::shared_ptr<DispatchBuffers<T>> buffers)
    : grid_(grid),
      lists_(grid, axes, num_groups),
      buffers_(std::move(buffers)) {}

template<class T>
void Dispatch<T>::set_groups(std::span<std::int32_t const> groups, std::int64_t num_choices) {
  lists_.set(groups, num_choices);
  sent_choice_ = to_kernels(sent_choices_, lists_.sent_choices());
  place_ = to_kernels(places_, lists_.places());
  arrival_ = to_kernels(arrivals_, lists_.arrivals());
}

template<class T>
void Dispatch<T>::start_send(DefaultExec const& exec, Matrix<T> const& x, Vector<T> const& weights,
                             Matrix<T> const& y) {
  auto const& sizes = this->sizes();
  auto const& axes = lists_.axes();
  auto const columns = static_cast<std::int64_t>(x.extent(1));
  auto const moves = travels(grid_.shape(), axes);
  auto const most = most_rows(sizes) * columns;
  auto const packed = moves ? buffers_->sent.reserve(most) : Vector<T>(y.data(), y.size());
  grid_.passes().add(pack_pass(sizes, columns, weights.extent(0) > 0, sizeof(T)));
  for_each_number(exec, "orthant::pmm::dispatch/pack", sizes.num_sent, columns,
                  PackArguments<T>{x.data(), weights.extent(0) > 0 ? weights.data() : nullptr,
                                   sent_choice_.data(), sizes.num_choices, columns, packed.data()});
  if (grid_.size(axes.owners) == 1) return;
  auto const& owners = grid_.over(axes.owners);
  auto const from = part_of(packed, sizes.num_sent * columns);
  auto const to = part_of(buffers_->received.reserve(most), sizes.num_received * columns);
  sent_numbers_ = times(lists_.send_counts(), columns);
  received_numbers_ = times(lists_.receive_counts(), columns);
  if (buffers_->travels_behind_work.value_or(can_hide_messages(owners)))
    under_way_ = runtime::start_all_to_allv(exec, owners, from, sent_numbers_, to, received_numbers_);
  else
    runtime::all_to_allv(exec, owners, from, sent_numbers_, to, received_numbers_);
}

template<class T>
void Dispatch<T>::finish_send(DefaultExec const& exec, Matrix<T> const& y) {
  auto const& sizes = this->sizes();
  auto const& axes = lists_.axes();
  if (!travels(grid_.shape(), axes)) return;
  under_way_.wait();
  auto const columns = static_cast<std::int64_t>(y.extent(1));
  auto const most = most_rows(sizes) * columns;
  auto here = buffers_->sent.reserve(most);
  auto there = buffers_->received.reserve(most);
  if (grid_.size(axes.owners) > 1) std::swap(here, there);
  if (grid_.size(axes.copies) > 1) {
    runtime::all_gatherv(exec, grid_.over(axes.copies), part_of(here, sizes.num_received * columns),
                         part_of(there, sizes.num_arrived * columns), times(lists_.gather_counts(), columns));
    std::swap(here, there);
  }
  grid_.passes().add(permute_pass(sizes, columns, sizeof(T)));
  for_each_number(exec, "orthant::pmm::dispatch/permute", sizes.num_arrived, columns,
                  Permute<T>{here.data(), arrival_.data(), true, columns, y.data()});
}

template<class T>
void Dispatch<T>::give_back(DefaultExec const& exec, Matrix<T> const& y, Matrix<T> const& s) {
  if (y.data() == s.data() && !travels(grid_.shape(), lists_.axes())) return;
  auto const& sizes = this->sizes();
  auto const& axes = lists_.axes();
  auto const columns = static_cast<std::int64_t>(y.extent(1));
  auto const has_owners = grid_.size(axes.owners) > 1;
  auto const has_copies = grid_.size(axes.copies) > 1;
  auto const target = Vector<T>(s.data(), s.size());
  auto const most = most_rows(sizes) * columns;
  auto const permuted = has_owners || has_copies ? buffers_->sent.reserve(most) : target;
  grid_.passes().add(permute_pass(sizes, columns, sizeof(T)));
  for_each_number(exec, "orthant::pmm::dispatch/permute", sizes.num_arrived, columns,
                  Permute<T>{y.data(), arrival_.data(), false, columns, permuted.data()});
  auto received = permuted;
  if (has_copies) {
    received = has_owners ? buffers_->received.reserve(most) : target;
    runtime::reduce_scatterv(exec, grid_.over(axes.copies), part_of(permuted, sizes.num_arrived * columns),
                             part_of(received, sizes.num_received * columns),
                             times(lists_.gather_counts(), columns));
  }
  if (has_owners)
    runtime::all_to_allv(exec, grid_.over(axes.owners), part_of(received, sizes.num_received * columns),
                         times(lists_.receive_counts(), columns), target,
                         times(lists_.send_counts(), columns));
}

template<class T>
void Dispatch<T>::combine(DefaultExec const& exec, Matrix<T> const& s, Vector<T> const& weights,
                          Matrix<T> const& x, Update update) {
  auto const& sizes = this->sizes();
  auto const columns = static_cast<std::int64_t>(x.extent(1));
  auto const own = lists_.own_rows();
  grid_.passes().add(combine_pass(sizes, columns, weights.extent(0) > 0, update, sizeof(T)));
  for_each_number(exec, "orthant::pmm::dispatch/combine", own.size(), columns,
                  Combine<T>{s.data(), weights.extent(0) > 0 ? weights.data() : nullptr, place_.data(),
                             sizes.num_choices, own.begin, columns, update == Update::add, x.data()});
  auto const& copies = grid_.over(lists_.axes().copies);
  if (copies.size() == 1) return;
  std::vector<std::int64_t> counts;
  for (int rank = 0; rank < copies.size(); ++rank)
    counts.push_back(runtime::balanced_range(sizes.num_rows, copies.size(), rank).size() * columns);
  Vector<T> const part(x.data() + own.begin * columns, static_cast<std::size_t>(own.size() * columns));
  runtime::all_gatherv(exec, copies, part, Vector<T>(x.data(), x.size()), counts); // in place
}

template<class T>
void Dispatch<T>::dot(DefaultExec const& exec, Matrix<T> const& s, Matrix<T> const& x,
                      Vector<T> const& products) const {
  auto const& sizes = this->sizes();
  auto const columns = static_cast<std::int64_t>(x.extent(1));
  auto const own = lists_.own_rows();
  grid_.passes().add(dot_pass(sizes, columns, sizeof(T)));
  Kokkos::deep_copy(exec, part_of(products, sizes.num_rows * sizes.num_choices), T{0});
  Dot<T> const body{s.data(),  x.data(), place_.data(),  sizes.num_choices,
                    own.begin, columns,  products.data()};
  constexpr auto label = "orthant::pmm::dispatch/dot";
  auto const num_own = own.size() * sizes.num_choices;
  if constexpr (runs_on_host)
    for_each_part(exec, label, num_own, [body](std::int64_t begin, std::int64_t end) {
      for (auto choice = begin; choice < end; ++choice)
        body.on_host(choice);
    });
  else
    for_each_row(exec, label, num_own, columns, body);
}

void plan_send(StepPlan& step, DispatchAxes const& axes, DispatchSizes const& sizes, std::int64_t columns,
               bool has_weights) {
  plan_start_send(step, axes, sizes, columns, has_weights);
  plan_finish_send(step, axes, sizes, columns);
}

void plan_start_send(StepPlan& step, DispatchAxes const& axes, DispatchSizes const& sizes,
                     std::int64_t columns, bool has_weights) {
  step.add_pass(pack_pass(sizes, columns, has_weights, step.scalar_bytes(1)));
  step.add_call(runtime::Operation::all_to_all, axes.owners, step.scalar_bytes(sizes.num_sent_away * columns),
                step.scalar_bytes(sizes.num_received * columns));
}

void plan_finish_send(StepPlan& step, DispatchAxes const& axes, DispatchSizes const& sizes,
                      std::int64_t columns) {
  step.add_call(runtime::Operation::all_gather, axes.copies, step.scalar_bytes(sizes.num_arrived * columns));
  if (travels(step.shape(), axes)) step.add_pass(permute_pass(sizes, columns, step.scalar_bytes(1)));
}

void plan_give_back(StepPlan& step, DispatchAxes const& axes, DispatchSizes const& sizes,
                    std::int64_t columns) {
  if (travels(step.shape(), axes)) step.add_pass(permute_pass(sizes, columns, step.scalar_bytes(1)));
  step.add_call(runtime::Operation::reduce_scatter, axes.copies,
                step.scalar_bytes(sizes.num_arrived * columns),
                step.scalar_bytes(sizes.num_received * columns));
  step.add_call(runtime::Operation::all_to_all, axes.owners,
                step.scalar_bytes(sizes.num_received_away * columns),
                step.scalar_bytes(sizes.num_sent * columns));
}

void plan_combine(StepPlan& step, DispatchAxes const& axes, DispatchSizes const& sizes, std::int64_t columns,
                  bool has_weights, Update update) {
  step.add_pass(combine_pass(sizes, columns, has_weights, update, step.scalar_bytes(1)));
  step.add_call(runtime::Operation::all_gather, axes.copies, step.scalar_bytes(sizes.num_rows * columns));
}

void plan_dot(StepPlan& step, DispatchSizes const& sizes, std::int64_t columns) {
  step.add_pass(dot_pass(sizes, columns, step.scalar_bytes(1)));
}

void plan_dispatch_arrays(StepPlan& step, DispatchSizes const& sizes) {
  step.add_array("orthant::pmm::Dispatch/sent_choices", sizes.num_sent * index_bytes);
  step.add_array("orthant::pmm::Dispatch/places", sizes.num_own_rows * sizes.num_choices * index_bytes);
  step.add_array("orthant::pmm::Dispatch/arrivals", sizes.num_arrived * index_bytes);
}

void plan_dispatch_buffers(StepPlan& step, DispatchAxes const& axes, DispatchSizes const& sizes,
                           std::int64_t columns) {
  auto const bytes = step.scalar_bytes(most_rows(sizes) * columns);
  if (!travels(step.shape(), axes)) return;
  step.add_array("orthant::pmm::Dispatch/sent", bytes);
  step.add_array("orthant::pmm::Dispatch/received", bytes);
}

template class Dispatch<float>;
template class Dispatch<double>;

} // namespace orthant::pmm
