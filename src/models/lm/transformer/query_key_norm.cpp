// SPDX-License-Identifier: Apache-2.0
#include "models/lm/transformer/query_key_norm.hpp"

#include "models/lm/transformer/shared_key_values.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/device/kokkos_compat.hpp"

#include <algorithm>

namespace orthant::models {
namespace {

using runtime::DefaultExec, runtime::Range;

constexpr std::int64_t num_row_parts = 64; // of the rows, for the sums of the scales' gradients

template<class T>
KOKKOS_INLINE_FUNCTION T inverse_rms(T const* head, std::int64_t width, T epsilon) {
  T squares = 0;
  for (std::int64_t j = 0; j < width; ++j)
    squares += head[j] * head[j];
  return T{1} / runtime::compat::sqrt(squares / static_cast<T>(width) + epsilon);
}

template<class T>
struct NormHeads {
  pmm::Panel<T> x, before;
  T const* scale;
  std::int64_t width;
  T epsilon;

  KOKKOS_FUNCTION void operator()(std::int64_t row) const {
    for (std::int64_t first = 0; first < x.num_columns; first += width) {
      auto* const head = x.data + row * x.row_stride + first;
      auto* const kept = before.data + row * before.row_stride + first;
      auto const r = inverse_rms(head, width, epsilon);
      for (std::int64_t j = 0; j < width; ++j) {
        kept[j] = head[j];
        head[j] *= scale[j] * r;
      }
    }
  }
};

/// Sums of dy_j r x_j over the rows of a part.
template<class T>
struct SumScales {
  pmm::Panel<T> gradient, before;
  std::int64_t width;
  T epsilon;
  T* sums; // [parts x width]

  KOKKOS_FUNCTION void operator()(std::int64_t part) const {
    auto* const sum = sums + part * width;
    for (std::int64_t j = 0; j < width; ++j)
      sum[j] = 0;
    auto const end = (part + 1) * before.num_rows / num_row_parts;
    for (auto row = part * before.num_rows / num_row_parts; row < end; ++row)
      for (std::int64_t first = 0; first < before.num_columns; first += width) {
        auto const* const head = before.data + row * before.row_stride + first;
        auto const* const dy = gradient.data + row * gradient.row_stride + first;
        auto const r = inverse_rms(head, width, epsilon);
        for (std::int64_t j = 0; j < width; ++j)
          sum[j] += dy[j] * r * head[j];
      }
  }
};

template<class T>
struct AddParts {
  T const* sums;
  std::int64_t width;
  T* scale_gradient;

  KOKKOS_FUNCTION void operator()(std::int64_t j) const {
    T sum = 0;
    for (std::int64_t part = 0; part < num_row_parts; ++part)
      sum += sums[part * width + j];
    scale_gradient[j] += sum;
  }
};

template<class T>
struct NormHeadsBackward {
  pmm::Panel<T> gradient, before;
  T const* scale;
  std::int64_t width;
  T epsilon;

  KOKKOS_FUNCTION void operator()(std::int64_t row) const {
    for (std::int64_t first = 0; first < before.num_columns; first += width) {
      auto const* const head = before.data + row * before.row_stride + first;
      auto* const dy = gradient.data + row * gradient.row_stride + first;
      auto const r = inverse_rms(head, width, epsilon);
      T mean = 0;
      for (std::int64_t j = 0; j < width; ++j)
        mean += scale[j] * dy[j] * r * head[j];
      mean /= static_cast<T>(width);
      for (std::int64_t j = 0; j < width; ++j)
        dy[j] = r * (scale[j] * dy[j] - r * head[j] * mean);
    }
  }
};

/// Columns of the queries, and of the keys that this rank has, in group i of its columns.
struct GroupColumns {
  Range queries, keys;
};
GroupColumns columns_of_group(TransformerPlan const& plan, pmm::Block const& qkv, std::int64_t i) {
  auto const width = plan.settings.head_dim();
  auto const first = i * plan.group_width();
  auto const end = first + plan.local_heads_per_group() * width;
  return {{first, end}, {end, end + (holds_key_values(plan, qkv) ? width : 0)}};
}

/// Queries and keys of this rank, in numbers.
std::int64_t num_normed(pmm::StepPlan& step, TransformerPlan const& plan) {
  auto const block = step.block(plan.qkv.output);
  std::int64_t columns = 0;
  for (std::int64_t i = 0; i < groups_of(block, plan).size(); ++i) {
    auto const [queries, keys] = columns_of_group(plan, block, i);
    columns += queries.size() + keys.size();
  }
  return columns * block.rows.size();
}

} // namespace

std::int64_t num_head_norm_sums(TransformerSettings const& settings) {
  return settings.query_key_norm == QueryKeyNorm::head ? num_row_parts * settings.head_dim() : 0;
}

void plan_head_norms(pmm::StepPlan& step, TransformerPlan const& plan) {
  if (plan.settings.query_key_norm != QueryKeyNorm::head) return;
  auto const bytes = step.scalar_bytes(num_normed(step, plan));
  step.add_pass({"norm_heads", bytes, 2 * bytes});
}

void plan_head_norms_backward(pmm::StepPlan& step, TransformerPlan const& plan) {
  if (plan.settings.query_key_norm != QueryKeyNorm::head) return;
  auto const bytes = step.scalar_bytes(num_normed(step, plan));
  step.add_pass({"norm_heads_backward", 4 * bytes, bytes});
  constexpr int num_scales = 2; // of queries and of keys
  for (int i = 0; i < num_scales; ++i)
    step.add_call(runtime::Operation::all_reduce, pmm::Axis::x, step.scalar_bytes(plan.settings.head_dim()));
}

template<class T>
HeadNorms<T>::HeadNorms(pmm::ProcessGrid const& grid, TransformerPlan const& plan,
                        QueryKeyParameters<T> parameters, pmm::DistMatrix<T> before, runtime::Vector<T> sums)
    : grid_(grid),
      plan_(plan),
      parameters_(std::move(parameters)),
      before_(std::move(before)),
      sums_(std::move(sums)) {}

/// Calls body(parameters, panel of `qkv`, panel of `before`) for the queries and the keys of each group.
template<class T>
template<class Body>
void HeadNorms<T>::for_each_panel(pmm::DistMatrix<T> const& qkv, Body const& body) const {
  pmm::Panel<T> const of_qkv(qkv.local()), of_before(before_.local());
  for (std::int64_t i = 0; i < groups_of(qkv.block(), plan_).size(); ++i) {
    auto const [queries, keys] = columns_of_group(plan_, qkv.block(), i);
    body(parameters_.queries, of_qkv.columns(queries), of_before.columns(queries));
    if (keys.size() > 0) body(parameters_.keys, of_qkv.columns(keys), of_before.columns(keys));
  }
}

template<class T>
void HeadNorms<T>::forward(DefaultExec const& exec, pmm::DistMatrix<T> const& qkv) const {
  if (plan_.settings.query_key_norm != QueryKeyNorm::head) return;
  auto const width = plan_.settings.head_dim();
  auto const epsilon = static_cast<T>(plan_.settings.norm_epsilon);
  std::int64_t bytes = 0;
  for_each_panel(qkv, [&](auto const& norm, auto const& x, auto const& before) {
    bytes += x.num_rows * x.num_columns * std::int64_t{sizeof(T)};
    Kokkos::parallel_for("orthant::models::norm_heads",
                         Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, x.num_rows),
                         NormHeads<T>{x, before, norm.scale.local().data(), width, epsilon});
  });
  grid_.passes().add({"norm_heads", bytes, 2 * bytes});
}

template<class T>
void HeadNorms<T>::backward(DefaultExec const& exec, pmm::DistMatrix<T> const& qkv_gradient) const {
  if (plan_.settings.query_key_norm != QueryKeyNorm::head) return;
  auto const width = plan_.settings.head_dim();
  auto const epsilon = static_cast<T>(plan_.settings.norm_epsilon);
  using Rows = Kokkos::RangePolicy<DefaultExec, std::int64_t>;
  for (auto const* const norm : {&parameters_.queries, &parameters_.keys})
    Kokkos::deep_copy(exec, norm->scale_gradient.local(), T{0});
  std::int64_t bytes = 0;
  for_each_panel(qkv_gradient, [&](auto const& norm, auto const& gradient, auto const& before) {
    bytes += before.num_rows * before.num_columns * std::int64_t{sizeof(T)};
    Kokkos::parallel_for("orthant::models::norm_heads_backward/sums", Rows(exec, 0, num_row_parts),
                         SumScales<T>{gradient, before, width, epsilon, sums_.data()});
    Kokkos::parallel_for("orthant::models::norm_heads_backward/parts", Rows(exec, 0, width),
                         AddParts<T>{sums_.data(), width, norm.scale_gradient.local().data()});
    Kokkos::parallel_for("orthant::models::norm_heads_backward", Rows(exec, 0, before.num_rows),
                         NormHeadsBackward<T>{gradient, before, norm.scale.local().data(), width, epsilon});
  });
  grid_.passes().add({"norm_heads_backward", 4 * bytes, bytes});
  for (auto const* const norm : {&parameters_.queries, &parameters_.keys})
    runtime::all_reduce(exec, grid_.over(pmm::Axis::x), norm->scale_gradient.local());
}

template class HeadNorms<float>;
template class HeadNorms<double>;

namespace {

using pmm::Axis, pmm::Panel, pmm::RowNorm, pmm::RowParts, runtime::Vector;

runtime::LocalPass pack_pass(std::int64_t bytes) {
  return {"pack_heads", bytes, bytes};
}
runtime::LocalPass unpack_pass(std::int64_t bytes) {
  return {"unpack_heads", bytes, bytes};
}

template<class T>
Vector<T> slice(Vector<T> const& numbers, std::int64_t begin, std::int64_t length) {
  return Kokkos::subview(
      numbers, std::pair(static_cast<std::size_t>(begin), static_cast<std::size_t>(begin + length)));
}

/// Calls work(block of the queries), and work(block of the keys) if this rank has keys.
template<class Work>
void for_each_block(JointNormLengths const& lengths, Work const& work) {
  for (auto const columns : {lengths.query_columns, lengths.key_columns})
    if (columns > 0) work(pmm::RowBlock{lengths.rows, columns});
}

} // namespace

void plan_joint_norms(pmm::StepPlan& step, TransformerPlan const& plan) {
  if (plan.settings.query_key_norm != QueryKeyNorm::all) return;
  JointNormLengths const lengths(step.shape(), step.coordinates(), plan);
  auto const parts = step.shape().x == 1 ? RowParts::whole : RowParts::summed;
  for_each_block(lengths, [&](pmm::RowBlock const& block) {
    step.add_pass(pack_pass(step.scalar_bytes(block.rows * block.columns)));
    if (parts == RowParts::summed) plan_sum_row_moments(step, RowNorm::rms, block);
  });
  step.add_call(runtime::Operation::all_reduce, Axis::x, step.scalar_bytes(2 * lengths.rows));
  for_each_block(lengths, [&](pmm::RowBlock const& block) {
    plan_apply_row_norm(step, RowNorm::rms, parts, false, block);
    step.add_pass(unpack_pass(step.scalar_bytes(block.rows * block.columns)));
  });
}

void plan_joint_norms_backward(pmm::StepPlan& step, TransformerPlan const& plan) {
  if (plan.settings.query_key_norm != QueryKeyNorm::all) return;
  JointNormLengths const lengths(step.shape(), step.coordinates(), plan);
  auto const parts = step.shape().x == 1 ? RowParts::whole : RowParts::summed;
  for_each_block(lengths, [&](pmm::RowBlock const& block) {
    step.add_pass(pack_pass(step.scalar_bytes(block.rows * block.columns)));
    if (parts == RowParts::summed) plan_sum_row_norm_gradient(step, RowNorm::rms, block);
  });
  step.add_call(runtime::Operation::all_reduce, Axis::x, step.scalar_bytes(2 * lengths.rows));
  for_each_block(lengths, [&](pmm::RowBlock const& block) {
    plan_row_norm_backward(step, RowNorm::rms, parts, pmm::Residual::none, false, block);
    step.add_pass(unpack_pass(step.scalar_bytes(block.rows * block.columns)));
  });
}

template<class T>
JointNorms<T>::JointNorms(pmm::ProcessGrid const& grid, TransformerPlan const& plan,
                          QueryKeyParameters<T> parameters, JointNormMemory<T> memory, Vector<T> packed,
                          Vector<T> scratch, std::shared_ptr<pmm::Workspace<T>> work)
    : grid_(grid),
      plan_(plan),
      num_groups_(groups_of(block_of(grid, plan.qkv.output), plan).size()),
      packed_queries_(std::move(packed)),
      scratch_(std::move(scratch)),
      work_(std::move(work)) {
  if (plan.settings.query_key_norm != QueryKeyNorm::all) return;
  JointNormLengths const lengths(grid.shape(), grid.coordinates(), plan);
  sums_ = slice(scratch_, lengths.rows * lengths.key_columns, 2 * lengths.rows);
  parts_ = make_parts(parameters, memory);
  reserve_joint_norm_sums(*work_, lengths);
}

template<class T>
auto JointNorms<T>::make_parts(QueryKeyParameters<T> const& parameters,
                               JointNormMemory<T> const& memory) const -> std::vector<Part> {
  JointNormLengths const lengths(grid_.shape(), grid_.coordinates(), plan_);
  auto const& settings = plan_.settings;
  auto const d = settings.head_dim();
  auto const queries = plan_.local_heads_per_group() * d;
  auto const of = [&](std::int64_t num_heads) {
    return pmm::RowNormSettings{RowNorm::rms, num_heads * d, settings.norm_epsilon};
  };
  return {{{0, queries},
           parameters.queries,
           memory.queries,
           pmm::as_matrix(packed_queries_, lengths.rows, lengths.query_columns),
           memory.of_queries,
           slice(sums_, 0, lengths.rows),
           of(settings.num_heads)},
          {{queries, queries + (lengths.key_columns > 0 ? d : 0)},
           parameters.keys,
           memory.keys,
           pmm::as_matrix(scratch_, lengths.rows, lengths.key_columns),
           memory.of_keys,
           slice(sums_, lengths.rows, lengths.rows),
           of(settings.num_kv_heads)}};
}

template<class T>
RowParts JointNorms<T>::row_parts() const {
  return grid_.size(Axis::x) == 1 ? RowParts::whole : RowParts::summed;
}

template<class T>
void JointNorms<T>::pack(DefaultExec const& exec, Part const& part, pmm::DistMatrix<T> const& qkv,
                         runtime::Matrix<T> const& to) const {
  auto const width = part.columns.size();
  grid_.passes().add(pack_pass(static_cast<std::int64_t>(to.size() * sizeof(T))));
  for (std::int64_t i = 0; i < num_groups_; ++i) {
    auto const first = i * plan_.group_width();
    pmm::copy_panel(exec, "orthant::models::pack_heads",
                    Panel<T>(qkv.local()).columns({first + part.columns.begin, first + part.columns.end}),
                    Panel<T>(to).columns({i * width, (i + 1) * width}));
  }
}

template<class T>
void JointNorms<T>::unpack(DefaultExec const& exec, Part const& part, pmm::DistMatrix<T> const& qkv) const {
  auto const width = part.columns.size();
  grid_.passes().add(unpack_pass(static_cast<std::int64_t>(part.packed.size() * sizeof(T))));
  for (std::int64_t i = 0; i < num_groups_; ++i) {
    auto const first = i * plan_.group_width();
    pmm::copy_panel(exec, "orthant::models::unpack_heads",
                    Panel<T>(part.packed).columns({i * width, (i + 1) * width}),
                    Panel<T>(qkv.local()).columns({first + part.columns.begin, first + part.columns.end}));
  }
}

/// first(part) leaves a row's sums in part.sums, and second(part) uses those of all ranks along x. Ranks without keys take part in the sum.
template<class T>
template<class First, class Second>
void JointNorms<T>::for_each_part(DefaultExec const& exec, First const& first, Second const& second) const {
  if (parts_.empty()) return;
  for (auto const& part : parts_)
    if (part.columns.size() > 0)
      first(part);
    else
      Kokkos::deep_copy(exec, part.sums, T{0});
  runtime::all_reduce(exec, grid_.over(Axis::x), sums_);
  for (auto const& part : parts_)
    if (part.columns.size() > 0) second(part);
}

template<class T>
void JointNorms<T>::forward(DefaultExec const& exec, pmm::DistMatrix<T> const& qkv) const {
  auto& passes = grid_.passes();
  for_each_part(
      exec,
      [&](Part const& part) {
        pack(exec, part, qkv, part.before);
        if (row_parts() == RowParts::summed)
          pmm::sum_row_moments(exec, passes, RowNorm::rms, part.before, part.sums);
      },
      [&](Part const& part) {
        pmm::apply_row_norm(exec, passes, part.settings, row_parts(), part.before, part.sums,
                            part.parameters.scale.local(), {}, part.state, part.packed);
        unpack(exec, part, qkv);
      });
}

template<class T>
void JointNorms<T>::backward(DefaultExec const& exec, pmm::DistMatrix<T> const& qkv_gradient) const {
  auto& passes = grid_.passes();
  for_each_part(
      exec,
      [&](Part const& part) {
        pack(exec, part, qkv_gradient, part.packed);
        if (row_parts() == RowParts::summed)
          pmm::sum_row_norm_gradient(exec, passes, RowNorm::rms, part.before, part.parameters.scale.local(),
                                     part.state, part.packed, part.sums);
      },
      [&](Part const& part) {
        pmm::row_norm_backward(exec, passes, part.settings, row_parts(), pmm::Residual::none, part.before,
                               part.parameters.scale.local(), part.state, part.packed, part.sums, part.packed,
                               part.parameters.scale_gradient.local(), {}, *work_);
        unpack(exec, part, qkv_gradient);
      });
}

template class JointNorms<float>;
template class JointNorms<double>;

} // namespace orthant::models
