// SPDX-License-Identifier: Apache-2.0
//
// Where Kokkos's default execution space is a device; takes the place of bare_gemm_host.cpp.
#include "cli/machine/gemm_peak.hpp"

#include "pmm/gemm/local_gemm.hpp"

namespace orthant::cli {
namespace {

using pmm::Panel;
using pmm::Transpose;

constexpr std::string_view of_vendor = "vendor";

} // namespace

std::vector<std::string_view> bare_libraries() {
  return {of_vendor};
}

template<class T>
std::string_view chosen_library(Transpose, Transpose, pmm::GemmExtents const&) {
  return of_vendor;
}

template<class T>
bool bare_gemm(std::string_view, Transpose transpose_a, Panel<T> const& a, Transpose transpose_b,
               Panel<T> const& b, Panel<T> const& c) {
  pmm::detail::library_gemm<T>(runtime::DefaultExec(), 1, transpose_a, a, transpose_b, b, 0, c);
  return true;
}

template std::string_view chosen_library<float>(Transpose, Transpose, pmm::GemmExtents const&);
template std::string_view chosen_library<double>(Transpose, Transpose, pmm::GemmExtents const&);
template bool bare_gemm(std::string_view, Transpose, Panel<float> const&, Transpose, Panel<float> const&,
                        Panel<float> const&);
template bool bare_gemm(std::string_view, Transpose, Panel<double> const&, Transpose, Panel<double> const&,
                        Panel<double> const&);

} // namespace orthant::cli
