// SPDX-License-Identifier: Apache-2.0
//
// Replaces local_gemm_host.cpp if Kokkos's default execution space is a device.
#include "pmm/gemm/blas_library.hpp"
#include "pmm/gemm/gemm_choice.hpp"
#include "pmm/gemm/gemm_slabs.hpp"
#include "pmm/gemm/local_gemm.hpp"
#include "pmm/kernels/long_sums.hpp"
#include "pmm/vendor/shortest_run.hpp"
#include "pmm/vendor/vendor_gemm.hpp"
#include "pmm/vendor/vendor_spmm.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/device/kokkos_compat.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <vector>

namespace orthant::pmm {
namespace {

using detail::GemmSlabs;
using runtime::Bf16Number;
using runtime::DefaultExec;
using runtime::Fp16Number;
using runtime::SumOf;

/// Choices between slabs and one call of the library for long sums, and the memory of the slabs.
template<class T>
class SlabChoices {
 public:
  /// Multiplies in slabs if that is the choice for this shape. Returns false if it did nothing. The first product of a shape measures both
  /// alternatives, which waits and allocates, unless a graph is captured or C is added to. A sum that may stop growing (long_sums.hpp) is
  /// computed in slabs without a measurement, if it can be cut.
  bool multiply(DefaultExec const& exec, vendor::Gemm const& library, vendor::GemmProduct<T> const& product) {
    if (product.a.transpose == Transpose::no || product.b.transpose == Transpose::yes) return false;
    auto const wanted = detail::wanted_gemm_tiles(static_cast<std::int64_t>(exec.concurrency()));
    GemmExtents const extents{product.m, product.n, product.k};
    auto const slabs = detail::cut_in_slabs(extents, wanted);
    if (slabs.count == 0) return false;
    Shape const shape{product.m, product.n, std::bit_floor(static_cast<std::uint64_t>(product.k)),
                      product.math};
    auto const known =
        std::ranges::find_if(choices_, [&](Choice const& choice) { return choice.shape == shape; });
    if (known != choices_.end()) {
      if (known->is_in_slabs) multiply_slabs(exec, library, product, slabs);
      return known->is_in_slabs;
    }
    if (product.beta != T{0} || vendor::is_capturing(runtime::compat::native_stream(exec))) return false;
    auto const num_partial = static_cast<std::size_t>(wanted * detail::gemm_tile);
    if (partial_.extent(0) == 0 && num_partial * sizeof(T) > vendor::free_device_bytes() / 2) return false;
    if (partial_.extent(0) == 0)
      partial_ = runtime::Vector<T>(
          Kokkos::view_alloc(exec, "orthant::pmm::gemm_slabs", Kokkos::WithoutInitializing), num_partial);
    auto is_cut = may_stall<T>(product.k);
    if (is_cut) {
      multiply_slabs(exec, library, product, slabs);
    } else {
      auto const whole = detail::shortest_run(exec, [&] { library.multiply(product); });
      is_cut = detail::shortest_run(exec, [&] { multiply_slabs(exec, library, product, slabs); }) < whole;
    }
    choices_.push_back(Choice{shape, is_cut});
    if (std::ranges::none_of(choices_, &Choice::is_in_slabs)) partial_ = {};
    return is_cut; // if true, C already has the result of the slabs, which ran last
  }

 private:
  /// Inner extents within a factor of two count as one shape, because sampled blocks differ between batches.
  struct Shape {
    std::int64_t m, n;
    std::uint64_t k_floor; // a power of two
    GemmMath math;
    bool operator==(Shape const&) const = default;
  };
  struct Choice {
    Shape shape;
    bool is_in_slabs;
  };

  void multiply_slabs(DefaultExec const& exec, vendor::Gemm const& library,
                      vendor::GemmProduct<T> const& product, GemmSlabs const& slabs) const {
    auto part = product;
    part.k = slabs.length;
    part.alpha = 1;
    part.beta = 0;
    part.c = partial_.data();
    part.c_row_stride = product.n;
    auto const a_stride = slabs.length * product.a.row_stride;
    auto const b_stride = slabs.length * product.b.row_stride;
    library.multiply(part, vendor::GemmBatch{slabs.count, a_stride, b_stride, product.m * product.n});
    Panel<T> c;
    c.data = product.c;
    c.num_rows = product.m;
    c.num_columns = product.n;
    c.row_stride = product.c_row_stride;
    detail::GemmRest<T> const rest{product.a.data + slabs.count * a_stride,
                                   product.b.data + slabs.count * b_stride, product.a.row_stride,
                                   product.b.row_stride, slabs.num_rest(product.k)};
    detail::sum_slabs<T>(exec, slabs.count, partial_.data(), rest, product.alpha, product.beta, c);
  }

  std::vector<Choice> choices_;
  runtime::Vector<T> partial_; // empty before the first measurement, and if slabs were never faster
};

/// Memory of rounded operands, whose rows are aligned to 16 bytes. It is never freed, because captured graphs read it.
class RoundedOperands {
 public:
  enum Side : std::uint8_t { left, right };

  Panel<Bf16Number> round(DefaultExec const& exec, Side side, Panel<float> const& from) {
    constexpr std::int64_t pack = 8;
    Panel<Bf16Number> to;
    to.num_rows = from.num_rows;
    to.num_columns = from.num_columns;
    to.row_stride = (from.num_columns + pack - 1) / pack * pack;
    auto const count = static_cast<std::size_t>(to.num_rows * to.row_stride);
    auto& memory = memory_[side];
    if (memory.empty() || memory.back().extent(0) < count)
      memory.push_back(runtime::Vector<Bf16Number>(
          Kokkos::view_alloc(exec, "orthant::pmm::rounded_operands", Kokkos::WithoutInitializing), count));
    to.data = memory.back().data();
    copy_panel(exec, "orthant::pmm::local_gemm/rounding", from, to);
    return to;
  }

 private:
  std::array<std::vector<runtime::Vector<Bf16Number>>, 2> memory_;
};

/// Library handle and memory for the products of one stream.
class StreamLibrary {
 public:
  explicit StreamLibrary(void* stream) : stream_(stream), gemm_(stream) {}
  [[nodiscard]] void* stream() const { return stream_; }
  [[nodiscard]] vendor::Gemm const& gemm() const { return gemm_; }
  [[nodiscard]] RoundedOperands& rounded() { return rounded_; }
  template<class T>
  [[nodiscard]] SlabChoices<T>& slabs() {
    if constexpr (sizeof(T) == sizeof(float))
      return single_;
    else
      return double_;
  }

 private:
  void* stream_;
  vendor::Gemm gemm_;
  SlabChoices<float> single_;
  SlabChoices<double> double_;
  RoundedOperands rounded_;
};

/// Library handles of all streams of this rank's device. The first product of a stream creates its handle. All are destroyed before
/// Kokkos is finalized, because they must not outlive the device.
struct Libraries {
  GemmMath math = GemmMath::fp32;
  std::vector<std::unique_ptr<StreamLibrary>> of_streams;
};

Libraries& libraries() {
  static Libraries only;
  return only;
}

StreamLibrary& library_of(DefaultExec const& exec) {
  auto& of_streams = libraries().of_streams;
  auto* const stream = runtime::compat::native_stream(exec);
  auto const known =
      std::ranges::find_if(of_streams, [&](auto const& library) { return library->stream() == stream; });
  if (known != of_streams.end()) return **known;
  if (of_streams.empty()) Kokkos::push_finalize_hook([] { libraries().of_streams.clear(); });
  of_streams.push_back(std::make_unique<StreamLibrary>(stream));
  return *of_streams.back();
}

template<class Operand, class Result>
vendor::GemmProduct<Operand, Result> as_product(GemmExtents const& extents, SumOf<Result> alpha,
                                                Transpose transpose_a, Panel<Operand> const& a,
                                                Transpose transpose_b, Panel<Operand> const& b,
                                                SumOf<Result> beta, Panel<Result> const& c, GemmMath math) {
  return {extents.m,
          extents.n,
          extents.k,
          alpha,
          vendor::GemmOperand<Operand>{a.data, a.row_stride, transpose_a},
          vendor::GemmOperand<Operand>{b.data, b.row_stride, transpose_b},
          beta,
          c.data,
          c.row_stride,
          math};
}

/// C := beta C, the result for an empty inner extent.
template<class T>
void scale(DefaultExec const& exec, SumOf<T> beta, Panel<T> const& c) {
  auto* const data = c.data;
  auto const width = c.num_columns;
  auto const row_stride = c.row_stride;
  Kokkos::parallel_for(
      "orthant::pmm::local_gemm/no terms",
      Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, c.num_rows * width),
      KOKKOS_LAMBDA(std::int64_t i) {
        auto& number = data[i / width * row_stride + i % width];
        number = beta == SumOf<T>{0} ? T{0} : T(beta * number);
      });
}

} // namespace

namespace detail {

template<class T>
void library_gemm(DefaultExec const& exec, T alpha, Transpose transpose_a, Panel<T> const& a,
                  Transpose transpose_b, Panel<T> const& b, T beta, Panel<T> const& c, GemmMath math) {
  auto const extents = gemm_extents(transpose_a, a, transpose_b, b, c);
  library_of(exec).gemm().multiply(as_product(extents, alpha, transpose_a, a, transpose_b, b, beta, c, math));
}

template void library_gemm(DefaultExec const&, float, Transpose, Panel<float> const&, Transpose,
                           Panel<float> const&, float, Panel<float> const&, GemmMath);
template void library_gemm(DefaultExec const&, double, Transpose, Panel<double> const&, Transpose,
                           Panel<double> const&, double, Panel<double> const&, GemmMath);

} // namespace detail

template<class Operand, class Result>
void local_gemm(DefaultExec const& exec, SumOf<Result> alpha, Transpose transpose_a, Panel<Operand> const& a,
                Transpose transpose_b, Panel<Operand> const& b, SumOf<Result> beta,
                std::type_identity_t<Panel<Result>> const& c, GemmMath math) {
  auto const extents = detail::gemm_extents(transpose_a, a, transpose_b, b, c);
  if (extents.m == 0 || extents.n == 0) return;
  if (extents.k == 0) return scale(exec, beta, c);
  auto& library = library_of(exec);
  if constexpr (std::is_same_v<Operand, float> && std::is_same_v<Result, float>)
    if (math == GemmMath::bf16) {
      // Rounding copies of the operands first is faster than the library's products that round fp32 operands themselves.
      auto const left = library.rounded().round(exec, RoundedOperands::left, a);
      auto const right = library.rounded().round(exec, RoundedOperands::right, b);
      return library.gemm().multiply(
          as_product(extents, alpha, transpose_a, left, transpose_b, right, beta, c, GemmMath::fp32));
    }
  auto const product = as_product(extents, alpha, transpose_a, a, transpose_b, b, beta, c, math);
  // The library itself splits long sums of 16-bit numbers.
  if constexpr (!runtime::is_16_bit<Operand>)
    if (library.template slabs<Operand>().multiply(exec, library.gemm(), product)) return;
  library.gemm().multiply(product);
}

void set_gemm_math(GemmMath math) {
  ORTHANT_REQUIRE(libraries().of_streams.empty(),
                  "the arithmetic of products is chosen before the first of them");
  libraries().math = math;
}

GemmMath chosen_gemm_math() {
  return libraries().math;
}

bool has_gemm_math(GemmMath math) {
  if (math == GemmMath::bf16 && !runtime::compat::device_multiplies_bf16()) return false;
  return math == GemmMath::fp32 || std::string_view(DefaultExec::name()) == "Cuda";
}

void set_gemm_threads(int) {} // no products on the host
void set_gemm_choice(GemmTable const&, runtime::Processor const&) {}

std::string describe_gemm_choice() {
  return fmt::format("{{\"{}\":[\"all\"]}}", find_blas_library().name);
}

std::vector<std::string> gemm_libraries() {
  return {find_blas_library().name};
}

template void local_gemm(DefaultExec const&, float, Transpose, Panel<float> const&, Transpose,
                         Panel<float> const&, float, Panel<float> const&, GemmMath);
template void local_gemm(DefaultExec const&, double, Transpose, Panel<double> const&, Transpose,
                         Panel<double> const&, double, Panel<double> const&, GemmMath);
template void local_gemm<Bf16Number, float>(DefaultExec const&, float, Transpose, Panel<Bf16Number> const&,
                                            Transpose, Panel<Bf16Number> const&, float, Panel<float> const&,
                                            GemmMath);
template void local_gemm(DefaultExec const&, float, Transpose, Panel<Bf16Number> const&, Transpose,
                         Panel<Bf16Number> const&, float, Panel<Bf16Number> const&, GemmMath);
template void local_gemm<Fp16Number, float>(DefaultExec const&, float, Transpose, Panel<Fp16Number> const&,
                                            Transpose, Panel<Fp16Number> const&, float, Panel<float> const&,
                                            GemmMath);
template void local_gemm(DefaultExec const&, float, Transpose, Panel<Fp16Number> const&, Transpose,
                         Panel<Fp16Number> const&, float, Panel<Fp16Number> const&, GemmMath);

BlasLibrary find_blas_library() {
  auto const is_hip = std::string_view(runtime::DefaultExec::name()) == "HIP";
  return {is_hip ? "hipBLAS" : "cuBLAS", "", false};
}

} // namespace orthant::pmm
