// SPDX-License-Identifier: Apache-2.0
//
// Choice of a library by a table, and conversion of tables to and from text.

#include "pmm/gemm/gemm_choice.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace orthant::pmm {
namespace {

template<class T>
bool fits(std::optional<T> const& wanted, T const& found) {
  return !wanted || *wanted == found;
}

} // namespace

GemmShape gemm_shape(GemmExtents const& extents) {
  constexpr auto most_of_small = 262'144.0;
  constexpr auto least_ratio = std::int64_t{8};
  constexpr auto narrow = std::int64_t{64};
  auto const [m, n, k] = extents;
  if (static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) < most_of_small)
    return GemmShape::small;
  if (k / least_ratio >= std::max(m, n))
    return std::min(m, n) < narrow ? GemmShape::long_sum_narrow : GemmShape::long_sum;
  if (m / least_ratio >= std::max(n, k)) return n < narrow ? GemmShape::tall_narrow : GemmShape::tall;
  return GemmShape::other;
}

bool GemmTable::Processors::fit(runtime::Processor const& processor) const {
  return vendor == processor.vendor && fits(family, processor.family) && fits(model, processor.model) &&
         fits(vectors, processor.vectors) && fits(has_bf16_tiles, processor.has_bf16_tiles);
}

std::string_view library_of(GemmTable const& table, runtime::Processor const& processor,
                            GemmCase const& kind) {
  auto const entry = std::ranges::find_if(
      table.processors, [&](GemmTable::Processors const& processors) { return processors.fit(processor); });
  if (entry != table.processors.end()) {
    auto const choice = std::ranges::find(entry->choices, kind, &GemmTable::Choice::kind);
    if (choice != entry->choices.end()) return choice->library;
  }
  return kind.numbers == GemmNumbers::bf16 ? widened_name : openblas_name;
}

namespace {

using Json = nlohmann::json;
using runtime::Vectors;

constexpr auto kind_of_file = "gemm_libraries";
constexpr std::int64_t format = 1;

template<class T, std::size_t size>
using Names = std::array<std::pair<std::string_view, T>, size>;

constexpr Names<GemmNumbers, all_gemm_numbers.size()> names_of_numbers{
    {{"fp32", GemmNumbers::fp32}, {"fp64", GemmNumbers::fp64}, {"bf16", GemmNumbers::bf16}}};
constexpr Names<GemmShape, all_gemm_shapes.size()> names_of_shapes{
    {{"small", GemmShape::small},
     {"tall", GemmShape::tall},
     {"tall_narrow", GemmShape::tall_narrow},
     {"long_sum", GemmShape::long_sum},
     {"long_sum_narrow", GemmShape::long_sum_narrow},
     {"other", GemmShape::other}}};
constexpr Names<std::pair<Transpose, Transpose>, 4> all_transposes{
    {{"NN", {Transpose::no, Transpose::no}},
     {"NT", {Transpose::no, Transpose::yes}},
     {"TN", {Transpose::yes, Transpose::no}},
     {"TT", {Transpose::yes, Transpose::yes}}}};
constexpr std::array all_vectors{Vectors::unknown, Vectors::sse, Vectors::avx, Vectors::avx2,
                                 Vectors::avx512};

template<class T, std::size_t size>
std::string_view name_in(Names<T, size> const& names, T const& value) {
  return std::ranges::find(names, value, [](auto const& pair) { return pair.second; })->first;
}

/// A mistake in a table file. The caller adds the path.
struct Fault {
  std::string text;
};

template<class T, std::size_t size>
T value_in(Names<T, size> const& names, Json const& json, char const* key) {
  auto const word = json.at(key).get<std::string>();
  auto const found = std::ranges::find(names, word, [](auto const& pair) { return pair.first; });
  if (found == names.end()) throw Fault{fmt::format("'{}' is no value of {}", word, key)};
  return found->second;
}

template<class T>
std::optional<T> optional_in(Json const& json, char const* key) {
  return json.contains(key) ? std::optional<T>(json.at(key).get<T>()) : std::nullopt;
}

std::optional<int> optional_number(Json const& json, char const* key) {
  if (json.contains(key) && !json.at(key).is_number_integer())
    throw Fault{fmt::format("{} is no whole number", key)};
  return optional_in<int>(json, key);
}

std::string text_in(Json const& json, char const* key) {
  return optional_in<std::string>(json, key).value_or("");
}

std::optional<Vectors> vectors_in(Json const& json) {
  auto const word = optional_in<std::string>(json, "vectors");
  if (!word) return std::nullopt;
  auto const found = std::ranges::find(all_vectors, *word, [](Vectors v) { return runtime::name_of(v); });
  if (found == all_vectors.end()) throw Fault{fmt::format("'{}' is no value of vectors", *word)};
  return *found;
}

void require_known(std::string const& library, GemmNumbers numbers) {
  using Names = std::vector<std::string_view>;
  auto const names = numbers == GemmNumbers::fp32   ? Names{openblas_name, onednn_name, orthant_name}
                     : numbers == GemmNumbers::fp64 ? Names{openblas_name}
                                                    : Names{widened_name, onednn_name};
  if (std::ranges::find(names, library) == names.end())
    throw Fault{fmt::format("no library '{}' multiplies {}", library, name_in(names_of_numbers, numbers))};
}

GemmTable::Choice choice_of(Json const& json) {
  GemmTable::Choice choice;
  auto const [a, b] = value_in(all_transposes, json, "transposes");
  choice.kind = {value_in(names_of_numbers, json, "numbers"), a, b, value_in(names_of_shapes, json, "shape")};
  choice.library = json.at("library").get<std::string>();
  require_known(choice.library, choice.kind.numbers);
  if (json.contains("gflop_per_s"))
    choice.gflop_per_s = json.at("gflop_per_s").get<std::map<std::string, double>>();
  return choice;
}

GemmTable::Processors processors_of(Json const& json) {
  GemmTable::Processors processors;
  processors.vendor = json.at("vendor").get<std::string>();
  processors.family = optional_number(json, "family");
  processors.model = optional_number(json, "model");
  processors.vectors = vectors_in(json);
  processors.has_bf16_tiles = optional_in<bool>(json, "bf16_tiles");
  processors.name = text_in(json, "name");
  processors.date = text_in(json, "date");
  processors.version = text_in(json, "version");
  if (json.contains("libraries")) processors.libraries = json.at("libraries").get<std::vector<std::string>>();
  for (auto const& choice : json.at("choices")) {
    processors.choices.push_back(choice_of(choice));
    auto const& kind = processors.choices.back().kind;
    if (std::ranges::count(processors.choices, kind, &GemmTable::Choice::kind) > 1)
      throw Fault{fmt::format("it has two choices for {}", name_of(kind))};
  }
  return processors;
}

nlohmann::ordered_json json_of(GemmTable::Processors const& processors) {
  nlohmann::ordered_json json{{"vendor", processors.vendor}};
  if (processors.family) json["family"] = *processors.family;
  if (processors.model) json["model"] = *processors.model;
  if (processors.vectors) json["vectors"] = runtime::name_of(*processors.vectors);
  if (processors.has_bf16_tiles) json["bf16_tiles"] = *processors.has_bf16_tiles;
  json["name"] = processors.name;
  json["date"] = processors.date;
  json["version"] = processors.version;
  json["libraries"] = processors.libraries;
  json["choices"] = nlohmann::ordered_json::array();
  for (auto const& [kind, library, gflop_per_s] : processors.choices)
    json["choices"].push_back({{"numbers", name_in(names_of_numbers, kind.numbers)},
                               {"transposes", name_in(all_transposes, {kind.transpose_a, kind.transpose_b})},
                               {"shape", name_in(names_of_shapes, kind.shape)},
                               {"library", library},
                               {"gflop_per_s", gflop_per_s}});
  return json;
}

} // namespace

std::string name_of(GemmCase const& kind) {
  return fmt::format("{} {} {}", name_in(names_of_numbers, kind.numbers),
                     name_in(all_transposes, {kind.transpose_a, kind.transpose_b}),
                     name_in(names_of_shapes, kind.shape));
}

std::string text_of(GemmTable const& table) {
  nlohmann::ordered_json json{
      {"table", kind_of_file}, {"format", format}, {"processors", nlohmann::ordered_json::array()}};
  for (auto const& processors : table.processors)
    json["processors"].push_back(json_of(processors));
  return json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

GemmTable parse_gemm_table(std::string_view text, std::filesystem::path const& path) {
  auto const refuse = [&](std::string const& fault) {
    runtime::throw_user("cannot use the table '{}': {}; orthant bench gemm --tune writes one", path.string(),
                        fault);
  };
  GemmTable table;
  try {
    auto const json = Json::parse(text);
    if (json.at("table") != kind_of_file || json.at("format") != format)
      refuse("it is not a table of this version");
    for (auto const& processors : json.at("processors"))
      table.processors.push_back(processors_of(processors));
  } catch (nlohmann::json::exception const&) {
    refuse("it is no table of libraries for dense products");
  } catch (Fault const& fault) {
    refuse(fault.text);
  }
  return table;
}

} // namespace orthant::pmm
