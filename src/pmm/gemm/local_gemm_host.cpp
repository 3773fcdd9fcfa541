// SPDX-License-Identifier: Apache-2.0
#include "pmm/gemm/dense_library.hpp"
#include "pmm/gemm/gemm_choice.hpp"

#include <array>
#include <nlohmann/json.hpp>

namespace orthant::pmm {
namespace {

using runtime::Bf16Number;
using runtime::Fp16Number;

constexpr std::array both{Transpose::no, Transpose::yes};

std::size_t index_of(GemmCase const& kind) {
  auto const at = [](auto value) { return static_cast<std::size_t>(value); };
  return ((at(kind.numbers) * both.size() + at(kind.transpose_a)) * both.size() + at(kind.transpose_b)) *
             all_gemm_shapes.size() +
         at(kind.shape);
}

/// Returns the library of this name, or null if this build has none.
DenseLibrary const* library_named(std::string_view name) {
  for (auto const* const library : dense_libraries())
    if (library->name() == name) return library;
  return nullptr;
}

/// Libraries by index_of(). Null if bf16 is converted to fp32.
struct Chosen {
  std::array<DenseLibrary const*,
             all_gemm_numbers.size() * both.size() * both.size() * all_gemm_shapes.size()>
      libraries{};
};

template<class Work>
void for_each_case(Work const& work) {
  for (auto const numbers : all_gemm_numbers)
    for (auto const a : both)
      for (auto const b : both)
        for (auto const shape : all_gemm_shapes)
          work(GemmCase{numbers, a, b, shape});
}

Chosen chosen_by(GemmTable const& table, runtime::Processor const& processor) {
  Chosen chosen;
  for_each_case([&](GemmCase const& kind) {
    auto const* library = library_named(library_of(table, processor, kind));
    if (library == nullptr && kind.numbers != GemmNumbers::bf16) library = &detail::openblas_library();
    chosen.libraries[index_of(kind)] = library;
  });
  return chosen;
}

Chosen& chosen_now() {
  static Chosen chosen = chosen_by(built_in_gemm_table(), runtime::find_processor());
  return chosen;
}

template<class Operand>
constexpr auto numbers_of = runtime::is_16_bit<Operand>            ? GemmNumbers::bf16
                            : sizeof(runtime::SumOf<Operand>) == 4 ? GemmNumbers::fp32
                                                                   : GemmNumbers::fp64;

int num_threads_in_use = 1;
auto math_in_use = GemmMath::fp32;

} // namespace

template<class Operand, class Result>
void local_gemm(runtime::DefaultExec const& exec, runtime::SumOf<Result> alpha, Transpose transpose_a,
                Panel<Operand> const& a, Transpose transpose_b, Panel<Operand> const& b,
                runtime::SumOf<Result> beta, std::type_identity_t<Panel<Result>> const& c, GemmMath math) {
  auto const extents = detail::gemm_extents(transpose_a, a, transpose_b, b, c);
  auto const [m, n, k] = extents;
  if (m == 0 || n == 0) return;
  runtime::compat::fence(exec, "orthant::pmm::local_gemm/a library reads on the host");
  DenseProduct<Operand, Result> const product{extents, alpha, transpose_a, a, transpose_b, b, beta, c};
  if constexpr (std::is_same_v<Operand, float> && std::is_same_v<Result, float>)
    if (math == GemmMath::bf16 && k > 0) return detail::rounded_gemm(exec, product);
  if constexpr (!std::is_same_v<Operand, Fp16Number>) {
    auto const* const library =
        chosen_now()
            .libraries[index_of({numbers_of<Operand>, transpose_a, transpose_b, gemm_shape(extents)})];
    if (k > 0 && library != nullptr && library->multiply(product)) return;
  }
  if constexpr (runtime::is_16_bit<Operand>)
    detail::tiled_gemm(exec, alpha, transpose_a, a, transpose_b, b, beta, c);
  else
    detail::openblas_library().multiply(product);
}

std::span<DenseLibrary const* const> dense_libraries() {
  static std::vector<DenseLibrary const*> const libraries = [] {
    std::vector<DenseLibrary const*> all{&detail::openblas_library()};
    for (auto const* const library : {detail::onednn_library(), detail::orthant_library()})
      if (library != nullptr) all.push_back(library);
    return all;
  }();
  return libraries;
}

void set_gemm_choice(GemmTable const& table, runtime::Processor const& processor) {
  chosen_now() = chosen_by(table, processor);
}

std::string_view chosen_gemm_library(GemmCase const& kind) {
  auto const* const library = chosen_now().libraries[index_of(kind)];
  return library == nullptr ? widened_name : library->name();
}

std::string describe_gemm_choice() {
  nlohmann::ordered_json json;
  for (auto const* const library : dense_libraries())
    for_each_case([&](GemmCase const& kind) {
      if (library != &detail::openblas_library() && chosen_now().libraries[index_of(kind)] == library)
        json[library->version()].push_back(name_of(kind));
    });
  json[detail::openblas_library().version()] = {"else"};
  return json.dump();
}

std::vector<std::string> gemm_libraries() {
  std::vector<std::string> versions;
  for (auto const* const library : dense_libraries())
    versions.push_back(library->version());
  return versions;
}

void set_gemm_math(GemmMath math) {
  ORTHANT_REQUIRE(has_gemm_math(math), "the host does not multiply in tf32");
  math_in_use = math;
}

GemmMath chosen_gemm_math() {
  return math_in_use;
}

bool has_gemm_math(GemmMath math) {
  return math != GemmMath::tf32;
}

int gemm_threads() {
  return num_threads_in_use;
}

void set_gemm_threads(int num_threads) {
  num_threads_in_use = num_threads;
  detail::set_openblas_threads(num_threads);
}

template void local_gemm(runtime::DefaultExec const&, float, Transpose, Panel<float> const&, Transpose,
                         Panel<float> const&, float, Panel<float> const&, GemmMath);
template void local_gemm(runtime::DefaultExec const&, double, Transpose, Panel<double> const&, Transpose,
                         Panel<double> const&, double, Panel<double> const&, GemmMath);
template void local_gemm<Bf16Number, float>(runtime::DefaultExec const&, float, Transpose,
                                            Panel<Bf16Number> const&, Transpose, Panel<Bf16Number> const&,
                                            float, Panel<float> const&, GemmMath);
template void local_gemm(runtime::DefaultExec const&, float, Transpose, Panel<Bf16Number> const&, Transpose,
                         Panel<Bf16Number> const&, float, Panel<Bf16Number> const&, GemmMath);
template void local_gemm<Fp16Number, float>(runtime::DefaultExec const&, float, Transpose,
                                            Panel<Fp16Number> const&, Transpose, Panel<Fp16Number> const&,
                                            float, Panel<float> const&, GemmMath);
template void local_gemm(runtime::DefaultExec const&, float, Transpose, Panel<Fp16Number> const&, Transpose,
                         Panel<Fp16Number> const&, float, Panel<Fp16Number> const&, GemmMath);

} // namespace orthant::pmm
