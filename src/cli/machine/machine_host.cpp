// SPDX-License-Identifier: Apache-2.0
#include "cli/machine/arithmetic_peak.hpp"
#include "cli/machine/device_memory.hpp"
#include "cli/machine/machine_loops.hpp"
#include "pmm/gemm/dense_library.hpp"
#include "pmm/gemm/gemm_choice.hpp"
#include "pmm/kernels/host_parts.hpp"

#include <algorithm>
#include <limits>

namespace orthant::cli {

template<class T>
std::int64_t run_fma_work(runtime::DefaultExec const& exec) {
  constexpr auto steps = std::int64_t{1} << 19;
  static auto const loop = supported_fma_loops<T>().back();
  auto const num_threads = static_cast<std::int64_t>(exec.concurrency());
  runtime::Vector<T> const sums("orthant::cli::fma", static_cast<std::size_t>(num_threads));
  pmm::for_each_part(exec, "orthant::cli::fma", num_threads, [=](std::int64_t begin, std::int64_t end) {
    for (auto thread = begin; thread < end; ++thread)
      sums(static_cast<std::size_t>(thread)) = loop.run(steps, T{0.5}, T{1});
  });
  return num_threads * steps * loop.flops_per_step;
}

template std::int64_t run_fma_work<float>(runtime::DefaultExec const&);
template std::int64_t run_fma_work<double>(runtime::DefaultExec const&);

namespace {

using pmm::DenseProduct;
using pmm::Panel;
using pmm::Transpose;

} // namespace

std::vector<std::string_view> bare_libraries() {
  std::vector<std::string_view> names;
  for (auto const* const library : pmm::dense_libraries())
    names.push_back(library->name());
  return names;
}

template<class T>
std::string_view chosen_library(Transpose transpose_a, Transpose transpose_b,
                                pmm::GemmExtents const& extents) {
  auto const numbers = sizeof(T) == sizeof(float) ? pmm::GemmNumbers::fp32 : pmm::GemmNumbers::fp64;
  return pmm::chosen_gemm_library({numbers, transpose_a, transpose_b, pmm::gemm_shape(extents)});
}

template<class T>
bool bare_gemm(std::string_view library, Transpose transpose_a, Panel<T> const& a, Transpose transpose_b,
               Panel<T> const& b, Panel<T> const& c) {
  auto const k = transpose_a == Transpose::yes ? a.num_rows : a.num_columns;
  DenseProduct<T> const product{
      {c.num_rows, c.num_columns, k}, T{1}, transpose_a, a, transpose_b, b, T{0}, c};
  if (library == pmm::openblas_name) {
    pmm::detail::multiply_in_one_call(product);
    return true;
  }
  if (c.num_rows == 0 || c.num_columns == 0 || k == 0) return true; // this rank has no part of the product
  auto const libraries = pmm::dense_libraries();
  auto const found = std::ranges::find(libraries, library, [](auto const* each) { return each->name(); });
  return found != libraries.end() && (*found)->multiply(product);
}

template std::string_view chosen_library<float>(Transpose, Transpose, pmm::GemmExtents const&);
template std::string_view chosen_library<double>(Transpose, Transpose, pmm::GemmExtents const&);
template bool bare_gemm(std::string_view, Transpose, Panel<float> const&, Transpose, Panel<float> const&,
                        Panel<float> const&);
template bool bare_gemm(std::string_view, Transpose, Panel<double> const&, Transpose, Panel<double> const&,
                        Panel<double> const&);

DeviceMemory::DeviceMemory() = default;
DeviceMemory::~DeviceMemory() = default;
std::int64_t DeviceMemory::peak_array_bytes() const {
  return 0;
}
std::int64_t DeviceMemory::taken_bytes() const {
  return free_at_start_;
}

std::int64_t free_device_bytes() {
  return std::numeric_limits<std::int64_t>::max();
}

} // namespace orthant::cli
