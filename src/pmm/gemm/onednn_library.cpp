// SPDX-License-Identifier: Apache-2.0
//
// Products with oneDNN. A tall operand is cut into pieces, so that few shapes are compiled at run time:
//
//   C[rows,:] := A[rows,:] op(B)               op(B) is packed once for all pieces, in memory that all kernels share
//   C         := sum over pieces of A[rows,:]^T B[rows,:] + C      bf16 only
//
// Other fp32 products are one call of dnnl_sgemm, which compiles nothing per shape. GFLOP/s measured on one core of a Sapphire Rapids
// (oneDNN 2.6.3; 24,490 rows, inner extent 128) times 128 x {128, 47}: dnnl_sgemm 146 156, packed pieces of 512 rows 173 147; bf16
// (AMX) 565 536, with a bf16 result 756 743.
#include "pmm/gemm/dense_library.hpp"
#include "pmm/gemm/gemm_choice.hpp"
#include "pmm/kernels/host_parts.hpp"

#include <algorithm>
#include <dnnl.hpp>
#include <fmt/format.h>
#include <map>
#include <memory>
#include <vector>

// Functions of the OpenMP runtime that oneDNN uses, if it was built with one.
extern "C" {
[[gnu::weak]] int omp_get_max_threads();
[[gnu::weak]] void omp_set_num_threads(int);
}

namespace orthant::pmm {
namespace {

using runtime::Bf16Number;

constexpr auto longest_piece = std::int64_t{512};
constexpr auto shortest_piece = std::int64_t{64};
// oneDNN may add the terms of a sum one by one to a float, whose sum of ones stops growing at 2^24.
constexpr auto longest_sum = std::int64_t{1} << 14;
constexpr auto most_kernels = std::size_t{256}; // a training run needs about ten

/// Sets the calling thread's number of OpenMP threads for one product, and restores it afterwards for Kokkos and others.
class ThreadScope {
 public:
  ThreadScope() {
    if (omp_set_num_threads == nullptr || omp_get_max_threads == nullptr) return;
    before_ = omp_get_max_threads();
    if (before_ != gemm_threads()) omp_set_num_threads(gemm_threads());
  }
  ThreadScope(ThreadScope const&) = delete;
  ThreadScope& operator=(ThreadScope const&) = delete;
  ~ThreadScope() {
    if (before_ != 0 && before_ != gemm_threads()) omp_set_num_threads(before_);
  }

 private:
  int before_ = 0;
};

template<class Number>
constexpr auto type_of =
    std::is_same_v<Number, float> ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;

dnnl::engine const& processor() {
  static dnnl::engine const engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

/// Type, extents and stride of a matrix in memory.
struct Operand {
  dnnl::memory::data_type type;
  std::int64_t num_rows, num_columns, row_stride;
  Transpose transpose = Transpose::no;

  auto operator<=>(Operand const&) const = default;
  /// oneDNN's description of op(M).
  [[nodiscard]] dnnl::memory::desc description() const {
    using Dims = dnnl::memory::dims;
    auto const stride = std::max<std::int64_t>(row_stride, 1);
    return transpose == Transpose::yes
               ? dnnl::memory::desc(Dims{num_columns, num_rows}, type, Dims{1, stride})
               : dnnl::memory::desc(Dims{num_rows, num_columns}, type, Dims{stride, 1});
  }
};

template<class Number>
Operand operand_of(Panel<Number> const& panel, Transpose transpose) {
  return {type_of<Number>, panel.num_rows, panel.num_columns, panel.row_stride, transpose};
}

/// A compiled product of fixed extents and strides.
class Kernel {
 public:
  enum class Right : std::uint8_t { as_it_is, packed };
  enum class Old : std::uint8_t { overwritten, added_to };
  struct Description {
    Operand a, b, c;
    Right right;
    Old old;
    int num_threads;
    auto operator<=>(Description const&) const = default;
  };

  explicit Kernel(Description const& d)
      : b_(d.b.description(), processor(), DNNL_MEMORY_NONE),
        packed_b_(b_) {
    auto const in_a = d.a.description();
    auto const in_c = d.c.description();
    auto const in_b = d.right == Right::packed
                          ? dnnl::memory::desc(b_.get_desc().dims(), d.b.type, dnnl::memory::format_tag::any)
                          : b_.get_desc();
    dnnl::primitive_attr attributes;
    if (d.old == Old::added_to) {
      dnnl::post_ops sum;
      sum.append_sum(1.0F);
      attributes.set_post_ops(sum);
    }
#if DNNL_VERSION_MAJOR >= 3
    dnnl::matmul::primitive_desc const chosen(processor(), in_a, in_b, in_c, attributes);
#else
    dnnl::matmul::primitive_desc const chosen(dnnl::matmul::desc(in_a, in_b, in_c), attributes, processor());
#endif
    product_ = dnnl::matmul(chosen);
    a_ = dnnl::memory(in_a, processor(), DNNL_MEMORY_NONE);
    c_ = dnnl::memory(in_c, processor(), DNNL_MEMORY_NONE);
    if (d.right == Right::packed && chosen.weights_desc() != b_.get_desc()) {
      packed_b_ = dnnl::memory(chosen.weights_desc(), processor(), DNNL_MEMORY_NONE);
      pack_ = dnnl::reorder(b_, packed_b_);
    }
  }

  /// Returns the operand B for run(). Packs it first if this kernel needs that, in memory that the next kernel overwrites.
  dnnl::memory const& use(void const* b) {
    b_.set_data_handle(const_cast<void*>(b)); // NOLINT: it is only read
    if (!pack_) return b_;
    auto* const packed = thread_memory<float>((packed_b_.get_desc().get_size() + 3) / sizeof(float));
    if (packed_b_.get_data_handle() != packed) packed_b_.set_data_handle(packed);
    pack_.execute(stream_, b_, packed_b_);
    return packed_b_;
  }

  void run(void const* a, dnnl::memory const& b, void* c) {
    a_.set_data_handle(const_cast<void*>(a)); // NOLINT: it is only read
    c_.set_data_handle(c);
    product_.execute(stream_, {{DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c_}});
    stream_.wait();
  }

 private:
  dnnl::stream stream_{processor()};
  dnnl::memory b_, packed_b_, a_, c_;
  dnnl::reorder pack_;
  dnnl::matmul product_;
};

/// Returns the kernel, which is compiled at the first call. Null if oneDNN does not support it.
Kernel* kernel_of(Kernel::Description const& description) {
  thread_local std::map<Kernel::Description, std::unique_ptr<Kernel>> kernels;
  if (auto const found = kernels.find(description); found != kernels.end()) return found->second.get();
  if (kernels.size() >= most_kernels) kernels.clear();
  std::unique_ptr<Kernel> kernel;
  try {
    kernel = std::make_unique<Kernel>(description);
  } catch (dnnl::error const& error) {
    if (error.status != dnnl_unimplemented) throw;
  }
  return kernels.emplace(description, std::move(kernel)).first->second.get();
}

/// Length of the longest piece that has at most `num_rows` rows. `num_rows` must be at least shortest_piece.
std::int64_t longest_within(std::int64_t num_rows) {
  auto length = longest_piece;
  while (length > num_rows)
    length /= 2;
  return length;
}

/// Length of the next piece: the longest, or for the last piece the shortest length that holds the remaining rows.
std::int64_t next_piece(std::int64_t num_left) {
  auto length = longest_piece;
  while (length / 2 >= shortest_piece && length / 2 >= num_left)
    length /= 2;
  return length;
}

/// C := A op(B), by pieces of rows. If the last piece is not full, it begins earlier and writes some rows again. Returns false if there are
/// too few rows, or if oneDNN has no kernel.
template<class Number, class Result>
bool multiply_rows(DenseProduct<Number, Result> const& p) {
  auto const [m, n, k] = p.extents;
  if (p.transpose_a == Transpose::yes || p.alpha != 1 || p.beta != 0 || m < shortest_piece ||
      n > most_packed / k)
    return false;
  auto const kernel_for = [&](std::int64_t length) {
    return kernel_of({operand_of(p.a.rows({0, length}), Transpose::no), operand_of(p.b, p.transpose_b),
                      operand_of(p.c.rows({0, length}), Transpose::no), Kernel::Right::packed,
                      Kernel::Old::overwritten, gemm_threads()});
  };
  Kernel* kernel = nullptr;
  dnnl::memory right;
  std::int64_t length = 0;
  for (std::int64_t begin = 0; begin < m; begin += length) {
    if (auto const next = std::min(next_piece(m - begin), longest_within(m)); next != length) {
      kernel = kernel_for(next);
      if (kernel == nullptr && begin == 0) return false;
      ORTHANT_REQUIRE(kernel != nullptr, "oneDNN has no kernel for ", next, " rows");
      right = kernel->use(p.b.data);
      length = next;
    }
    auto const first = std::min(begin, m - length);
    kernel->run(p.a.data + first * p.a.row_stride, right, p.c.data + first * p.c.row_stride);
  }
  return true;
}

/// Returns a copy of `rows` that is padded with zeros to `num_rows` rows.
Panel<Bf16Number> padded(Panel<Bf16Number> const& rows, std::int64_t num_rows,
                         std::vector<Bf16Number>& numbers) {
  numbers.assign(static_cast<std::size_t>(num_rows * rows.row_stride), Bf16Number(0.0F));
  for (std::int64_t i = 0; i < rows.num_rows; ++i)
    std::copy_n(rows.data + i * rows.row_stride, rows.num_columns, numbers.data() + i * rows.row_stride);
  auto result = rows;
  result.data = numbers.data();
  result.num_rows = num_rows;
  return result;
}

/// C := sum over pieces of A[rows,:]^T B[rows,:] + beta C, beta 0 or 1. The last piece is padded with zeros. Returns false if oneDNN has
/// no kernel, or if the product has another form.
bool add_terms(DenseProduct<Bf16Number, float> const& p) {
  if (p.transpose_a == Transpose::no || p.transpose_b == Transpose::yes || p.alpha != 1 ||
      (p.beta != 0 && p.beta != 1))
    return false;
  thread_local std::vector<Bf16Number> last_of_a, last_of_b;
  auto old = p.beta == 0 ? Kernel::Old::overwritten : Kernel::Old::added_to;
  std::int64_t length = 0;
  for (std::int64_t begin = 0; begin < p.extents.k; begin += length) {
    length = next_piece(p.extents.k - begin);
    auto const num_rows = std::min(length, p.extents.k - begin);
    auto a = p.a.rows({begin, begin + num_rows});
    auto b = p.b.rows({begin, begin + num_rows});
    if (num_rows < length) {
      a = padded(a, length, last_of_a);
      b = padded(b, length, last_of_b);
    }
    auto* const kernel =
        kernel_of({operand_of(a, Transpose::yes), operand_of(b, Transpose::no),
                   operand_of(p.c, Transpose::no), Kernel::Right::as_it_is, old, gemm_threads()});
    if (kernel == nullptr && begin == 0) return false;
    ORTHANT_REQUIRE(kernel != nullptr, "oneDNN has no kernel for ", length, " terms");
    kernel->run(a.data, kernel->use(b.data), p.c.data);
    old = Kernel::Old::added_to;
  }
  return true;
}

bool multiply_terms(DenseProduct<Bf16Number, float> const& p) {
  return add_terms(p);
}

/// Like add_terms(), for a bf16 result: sums in fp32 and rounds once.
bool multiply_terms(DenseProduct<Bf16Number> const& p) {
  if (p.beta != 0) return false;
  thread_local std::vector<float> numbers;
  numbers.resize(static_cast<std::size_t>(p.extents.m * p.extents.n));
  Panel<float> sums;
  sums.data = numbers.data();
  sums.num_rows = p.extents.m;
  sums.num_columns = sums.row_stride = p.extents.n;
  if (!add_terms({p.extents, p.alpha, p.transpose_a, p.a, p.transpose_b, p.b, 0, sums})) return false;
  for (std::int64_t i = 0; i < p.c.num_rows; ++i)
    for (std::int64_t j = 0; j < p.c.num_columns; ++j)
      p.c.data[i * p.c.row_stride + j] = Bf16Number(sums.data[i * sums.row_stride + j]);
  return true;
}

void call_sgemm(DenseProduct<float> const& p) {
  auto const stride = [](Panel<float> const& panel) { return std::max<dnnl_dim_t>(panel.row_stride, 1); };
  auto const letter = [](Transpose transpose) { return transpose == Transpose::yes ? 'T' : 'N'; };
  dnnl::error::wrap_c_api(dnnl_sgemm(letter(p.transpose_a), letter(p.transpose_b), p.extents.m, p.extents.n,
                                     p.extents.k, p.alpha, p.a.data, stride(p.a), p.b.data, stride(p.b),
                                     p.beta, p.c.data, stride(p.c)),
                          "dnnl_sgemm");
}

/// C := alpha (sum of op(A) op(B) over pieces of k) + beta C
void add_pieces(DenseProduct<float> const& p) {
  detail::add_pieces_of_terms(p, longest_sum, call_sgemm);
}

/// Computes C by add_pieces(), some rows at a time, so that the sums of a piece need little memory. If A is transposed, C is small and is
/// computed at once.
void add_long_sums(DenseProduct<float> const& p) {
  if (p.transpose_a == Transpose::yes) return add_pieces(p);
  detail::for_each_piece_of_rows(p, longest_piece, add_pieces);
}

/// Runs work() with gemm_threads() threads, and converts exceptions of oneDNN to Error.
template<class Work>
bool with_onednn(Work const& work) {
  ThreadScope const threads;
  try {
    return work();
  } catch (dnnl::error const& error) {
    if (error.status == dnnl_out_of_memory) throw std::bad_alloc();
    throw runtime::Error(fmt::format("oneDNN: {} (status {})", error.what(), static_cast<int>(error.status)));
  }
}

class OneDnn : public DenseLibrary {
 public:
  [[nodiscard]] std::string_view name() const override { return "onednn"; }
  [[nodiscard]] std::string version() const override {
    auto const* const version = dnnl_version();
    return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
  }
  using DenseLibrary::multiply;
  bool multiply(DenseProduct<float> const& product) const override {
    return with_onednn([&] {
      if (product.extents.k > longest_sum)
        add_long_sums(product);
      else if (!multiply_rows(product))
        call_sgemm(product);
      return true;
    });
  }
  bool multiply(DenseProduct<Bf16Number, float> const& product) const override {
    return with_onednn([&] { return multiply_rows(product) || multiply_terms(product); });
  }
  bool multiply(DenseProduct<Bf16Number> const& product) const override {
    return with_onednn([&] { return multiply_rows(product) || multiply_terms(product); });
  }
};

} // namespace

namespace detail {

DenseLibrary const* onednn_library() {
  static OneDnn const library;
  return &library;
}

} // namespace detail

} // namespace orthant::pmm
