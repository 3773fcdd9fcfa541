// SPDX-License-Identifier: Apache-2.0
#include "graph/store_format.hpp"

#include "runtime/error.hpp"

#include <nlohmann/json.hpp>
#include <span>
#include <utility>

namespace orthant::graph {

namespace {

using Json = nlohmann::ordered_json;

template<class Enum>
using Words = std::span<std::pair<std::string_view, Enum> const>;

constexpr std::array<std::pair<std::string_view, PermutationKind>, 4> permutations{
    {{"double", PermutationKind::twofold},
     {"single", PermutationKind::single},
     {"none", PermutationKind::natural},
     {"cluster", PermutationKind::cluster}}};
constexpr std::array<std::pair<std::string_view, Normalization>, 3> normalizations{
    {{"sym", Normalization::symmetric}, {"row", Normalization::row}, {"none", Normalization::none}}};
constexpr std::array<std::pair<std::string_view, FeatureKind>, 3> feature_kinds{
    {{"none", FeatureKind::none}, {"dense", FeatureKind::dense}, {"sparse", FeatureKind::sparse}}};
constexpr std::array<std::pair<std::string_view, LabelKind>, 3> label_kinds{
    {{"none", LabelKind::none}, {"single", LabelKind::single}, {"multi", LabelKind::multi}}};

template<class Enum>
Enum parse(Words<Enum> words, std::string_view word, char const* what) {
  std::string known;
  for (auto const& [name, value] : words) {
    if (name == word) return value;
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  runtime::throw_user("unknown {} '{}': it is one of {}", what, word, known);
}

template<class Enum>
std::string_view word_of(Words<Enum> words, Enum value) {
  for (auto const& [name, candidate] : words)
    if (candidate == value) return name;
  return "?";
}

} // namespace

PermutationKind parse_permutation(std::string_view word) {
  return parse<PermutationKind>(permutations, word, "permutation");
}
Normalization parse_normalization(std::string_view word) {
  return parse<Normalization>(normalizations, word, "normalisation");
}
std::string_view name_of(PermutationKind kind) {
  return word_of<PermutationKind>(permutations, kind);
}
std::string_view name_of(Normalization normalization) {
  return word_of<Normalization>(normalizations, normalization);
}
std::string_view name_of(Split split) {
  constexpr std::array<std::string_view, 3> names{"train", "valid", "test"};
  return names[static_cast<std::size_t>(split)];
}
std::string_view name_of(FeatureKind kind) {
  return word_of<FeatureKind>(feature_kinds, kind);
}
std::string_view name_of(LabelKind kind) {
  return word_of<LabelKind>(label_kinds, kind);
}

std::string StoreFacts::to_json() const {
  Json json;
  json["name"] = name;
  json["format"] = format;
  json["num_vertices"] = num_vertices;
  json["num_entries"] = num_entries;
  json["num_self_loops"] = num_self_loops;
  json["max_degree"] = max_degree;
  json["is_symmetric"] = is_symmetric;
  json["is_weighted"] = is_weighted;
  json["permutation"] = name_of(permutation);
  json["normalization"] = name_of(normalization);
  json["seed"] = seed;
  json["feature_kind"] = name_of(feature_kind);
  json["num_features"] = num_features;
  json["num_feature_entries"] = num_feature_entries;
  json["features_have_values"] = features_have_values;
  json["label_kind"] = name_of(label_kind);
  json["num_classes"] = num_classes;
  json["num_labelled"] = num_labelled;
  json["has_split"] = has_split;
  json["split_name"] = split_name;
  json["split_sizes"] = split_sizes;
  return json.dump();
}

StoreFacts StoreFacts::from_json(std::string const& text) {
  try {
    auto const json = Json::parse(text);
    auto const word = [&](char const* key) { return json.at(key).get<std::string>(); };
    StoreFacts facts;
    facts.name = word("name");
    facts.format = word("format");
    json.at("num_vertices").get_to(facts.num_vertices);
    json.at("num_entries").get_to(facts.num_entries);
    json.at("num_self_loops").get_to(facts.num_self_loops);
    json.at("max_degree").get_to(facts.max_degree);
    json.at("is_symmetric").get_to(facts.is_symmetric);
    json.at("is_weighted").get_to(facts.is_weighted);
    facts.permutation = parse_permutation(word("permutation"));
    facts.normalization = parse_normalization(word("normalization"));
    json.at("seed").get_to(facts.seed);
    facts.feature_kind = parse<FeatureKind>(feature_kinds, word("feature_kind"), "kind of features");
    json.at("num_features").get_to(facts.num_features);
    json.at("num_feature_entries").get_to(facts.num_feature_entries);
    json.at("features_have_values").get_to(facts.features_have_values);
    facts.label_kind = parse<LabelKind>(label_kinds, word("label_kind"), "kind of labels");
    json.at("num_classes").get_to(facts.num_classes);
    json.at("num_labelled").get_to(facts.num_labelled);
    json.at("has_split").get_to(facts.has_split);
    facts.split_name = word("split_name");
    json.at("split_sizes").get_to(facts.split_sizes);
    return facts;
  } catch (nlohmann::json::exception const& error) {
    runtime::throw_user("the facts of a graph store cannot be read: {}", error.what());
  }
}

} // namespace orthant::graph
