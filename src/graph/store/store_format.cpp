// SPDX-License-Identifier: Apache-2.0
#include "graph/store/store_format.hpp"

#include "graph/path_entry.hpp"
#include "runtime/error.hpp"

#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

namespace orthant::graph {

namespace {

using Json = nlohmann::ordered_json;

template<class Enum>
using Words = std::span<std::pair<std::string_view, Enum> const>;

constexpr std::array<std::pair<std::string_view, PermutationKind>, 5> permutations{
    {{"double", PermutationKind::twofold},
     {"single", PermutationKind::single},
     {"none", PermutationKind::natural},
     {"cluster", PermutationKind::cluster},
     {"pieces", PermutationKind::pieces}}};
constexpr std::array<std::pair<std::string_view, Normalization>, 3> normalizations{
    {{"sym", Normalization::symmetric}, {"row", Normalization::row}, {"none", Normalization::none}}};
constexpr std::array<std::pair<std::string_view, SelfLoops>, 3> self_loop_words{
    {{"add", SelfLoops::added}, {"keep", SelfLoops::as_given}, {"drop", SelfLoops::dropped}}};
constexpr std::array<std::pair<std::string_view, FeatureKind>, 3> feature_kinds{
    {{"none", FeatureKind::none}, {"dense", FeatureKind::dense}, {"sparse", FeatureKind::sparse}}};
constexpr std::array<std::pair<std::string_view, LabelKind>, 4> label_kinds{{{"none", LabelKind::none},
                                                                             {"single", LabelKind::single},
                                                                             {"multi", LabelKind::multi},
                                                                             {"real", LabelKind::real}}};

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
SelfLoops parse_self_loops(std::string_view word) {
  return parse<SelfLoops>(self_loop_words, word, "choice of self loops");
}
std::string_view name_of(SelfLoops self_loops) {
  return word_of<SelfLoops>(self_loop_words, self_loops);
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
  if (num_negative_weights) json["num_negative_weights"] = *num_negative_weights; // left out without weights
  if (num_edge_features > 0) json["num_edge_features"] = num_edge_features; // left out if there are none
  json["permutation"] = name_of(permutation);
  json["normalization"] = name_of(normalization);
  json["seed"] = seed;
  if (num_clusters > 0) json["num_clusters"] = num_clusters; // left out if there are none
  json["feature_kind"] = name_of(feature_kind);
  json["num_features"] = num_features;
  json["num_feature_entries"] = num_feature_entries;
  json["features_have_values"] = features_have_values;
  if (features_have_remainders) json["features_have_remainders"] = true; // left out if not needed
  json["label_kind"] = name_of(label_kind);
  json["num_classes"] = num_classes;
  json["num_labelled"] = num_labelled;
  json["has_split"] = has_split;
  json["split_name"] = split_name;
  json["split_sizes"] = split_sizes;
  if (num_splits() > 1) json["sizes_of_splits"] = sizes_of_splits; // left out if not needed
  if (has_links()) json["num_held_out"] = num_held_out;            // left out if not needed
  if (num_relations() > 0) {
    json["num_relations"] = num_relations();
    json["relation_name_bytes"] = relation_name_bytes;
  }
  if (has_vertex_names()) json["vertex_name_bytes"] = vertex_name_bytes;
  if (has_class_names()) json["class_name_bytes"] = class_name_bytes;
  for (auto const& [type_name, count, num_columns] : vertex_types)
    json["vertex_types"].push_back({{"name", type_name}, {"count", count}, {"num_features", num_columns}});
  return json.dump(-1, ' ', false, Json::error_handler_t::replace); // a name may not be valid UTF-8
}

namespace {

/// Reads the members of a JSON object by type. nlohmann's own conversions accept 1e300 or true as an integer.
class Members {
 public:
  explicit Members(Json json) : json_(std::move(json)) {
    if (!json_.is_object()) runtime::throw_user("they are no JSON object");
  }
  [[nodiscard]] std::int64_t integer(char const* key) const { return integer_of(at(key), key); }
  [[nodiscard]] std::uint64_t natural(char const* key) const {
    if (!at(key).is_number_unsigned()) runtime::throw_user("'{}' must be an integer from 0", key);
    return at(key).get<std::uint64_t>();
  }
  [[nodiscard]] bool has(char const* key) const { return json_.contains(key); }
  [[nodiscard]] bool boolean(char const* key) const {
    if (!at(key).is_boolean()) runtime::throw_user("'{}' must be true or false", key);
    return at(key).get<bool>();
  }
  /// On one line: a name may come from a file's name, which may contain any characters.
  [[nodiscard]] std::string text(char const* key) const {
    if (!at(key).is_string()) runtime::throw_user("'{}' must be a text", key);
    auto text = at(key).get<std::string>();
    std::ranges::replace_if(
        text, [](unsigned char c) { return c < ' '; }, '?');
    return text;
  }
  [[nodiscard]] std::array<std::int64_t, 3> three_integers(char const* key) const {
    return three_integers_of(at(key), key);
  }
  [[nodiscard]] std::vector<std::array<std::int64_t, 3>> lists_of_three(char const* key) const {
    if (!at(key).is_array()) runtime::throw_user("'{}' must be a list", key);
    std::vector<std::array<std::int64_t, 3>> lists;
    for (auto const& each : at(key))
      lists.push_back(three_integers_of(each, key));
    return lists;
  }
  [[nodiscard]] std::vector<Members> objects(char const* key) const {
    if (!at(key).is_array()) runtime::throw_user("'{}' must be a list", key);
    std::vector<Members> all;
    for (auto const& each : at(key))
      all.emplace_back(each);
    return all;
  }

 private:
  [[nodiscard]] Json const& at(char const* key) const {
    auto const found = json_.find(key);
    if (found == json_.end()) runtime::throw_user("there is no '{}'", key);
    return *found;
  }
  [[nodiscard]] static std::array<std::int64_t, 3> three_integers_of(Json const& list, char const* key) {
    if (!list.is_array() || list.size() != 3) runtime::throw_user("'{}' must be three integers", key);
    return {integer_of(list[0], key), integer_of(list[1], key), integer_of(list[2], key)};
  }
  [[nodiscard]] static std::int64_t integer_of(Json const& value, char const* key) {
    bool const fits = value.is_number_integer() && (!value.is_number_unsigned() ||
                                                    std::in_range<std::int64_t>(value.get<std::uint64_t>()));
    if (!fits) runtime::throw_user("'{}' must be an integer below 2^63", key);
    return value.get<std::int64_t>();
  }
  Json json_;
};

StoreFacts parse_facts(std::string const& text) {
  Members const members(Json::parse(text));
  StoreFacts facts;
  facts.name = members.text("name");
  facts.format = members.text("format");
  facts.num_vertices = members.integer("num_vertices");
  facts.num_entries = members.integer("num_entries");
  facts.num_self_loops = members.integer("num_self_loops");
  facts.max_degree = members.integer("max_degree");
  facts.is_symmetric = members.boolean("is_symmetric");
  facts.is_weighted = members.boolean("is_weighted");
  if (members.has("num_negative_weights"))
    facts.num_negative_weights = members.integer("num_negative_weights");
  if (members.has("num_edge_features")) facts.num_edge_features = members.integer("num_edge_features");
  facts.permutation = parse_permutation(members.text("permutation"));
  facts.normalization = parse_normalization(members.text("normalization"));
  facts.seed = members.natural("seed");
  if (members.has("num_clusters")) facts.num_clusters = members.integer("num_clusters");
  facts.feature_kind = parse<FeatureKind>(feature_kinds, members.text("feature_kind"), "kind of features");
  facts.num_features = members.integer("num_features");
  facts.num_feature_entries = members.integer("num_feature_entries");
  facts.features_have_values = members.boolean("features_have_values");
  if (members.has("features_have_remainders"))
    facts.features_have_remainders = members.boolean("features_have_remainders");
  facts.label_kind = parse<LabelKind>(label_kinds, members.text("label_kind"), "kind of labels");
  facts.num_classes = members.integer("num_classes");
  facts.num_labelled = members.integer("num_labelled");
  facts.has_split = members.boolean("has_split");
  facts.split_name = members.text("split_name");
  facts.split_sizes = members.three_integers("split_sizes");
  if (members.has("sizes_of_splits")) facts.sizes_of_splits = members.lists_of_three("sizes_of_splits");
  if (members.has("num_held_out")) facts.num_held_out = members.three_integers("num_held_out");
  if (members.has("num_relations")) {
    auto const count = members.integer("num_relations");
    if (count < 1 || count > most_relations)
      runtime::throw_user("'num_relations' is {}; it must be between 1 and {}", count, most_relations);
    facts.relations.resize(static_cast<std::size_t>(count));
    facts.relation_name_bytes = members.integer("relation_name_bytes");
  }
  if (members.has("class_name_bytes")) facts.class_name_bytes = members.integer("class_name_bytes");
  if (members.has("vertex_name_bytes")) facts.vertex_name_bytes = members.integer("vertex_name_bytes");
  if (members.has("vertex_types"))
    for (auto const& type : members.objects("vertex_types"))
      facts.vertex_types.push_back({type.text("name"), type.integer("count"), type.integer("num_features")});
  return facts;
}

} // namespace

StoreFacts StoreFacts::from_json(std::string const& text, std::string const& file) {
  std::string wrong;
  StoreFacts facts;
  try {
    facts = parse_facts(text);
    wrong = facts.contradiction();
  } catch (nlohmann::json::exception const& error) {
    wrong = error.what();
  } catch (runtime::UserError const& error) {
    wrong = error.what();
  }
  if (!wrong.empty()) runtime::throw_user("{} is damaged: its facts are wrong: {}", file, wrong);
  return facts;
}

std::string StoreFacts::contradiction_of_splits() const {
  auto all = sizes_of_splits;
  if (all.size() == 1 || (all.size() > 1 && all.front() != split_sizes))
    return "sizes_of_splits has one split, or begins with another one than split_sizes";
  all.push_back(split_sizes);
  for (auto const& sizes : all) {
    auto left = has_split ? num_vertices : 0;
    for (auto const size : sizes) {
      if (size < 0 || size > left)
        return fmt::format("one of {} in split_sizes or sizes_of_splits is not between 0 and {}", size, left);
      left -= size;
    }
  }
  return {};
}

bool StoreFacts::has_bare_types() const {
  auto const is_bare = [](VertexType const& type) { return type.num_features == 0; };
  return num_features > 0 && std::ranges::any_of(vertex_types, is_bare);
}

Range StoreFacts::ids_of_type(std::int64_t type) const {
  if (num_types() == 0) return {0, num_vertices};
  Range ids;
  for (std::int64_t t = 0; t <= type; ++t)
    ids = {ids.end, ids.end + vertex_types[static_cast<std::size_t>(t)].count};
  return ids;
}

std::int64_t StoreFacts::type_of(std::int64_t original_id) const {
  std::int64_t type = 0;
  for (auto end = std::int64_t{0}; type < num_types(); ++type)
    if ((end += vertex_types[static_cast<std::size_t>(type)].count) > original_id) break;
  return type;
}

namespace {

/// What is wrong with the types of vertices; empty if nothing is.
std::string wrong_types(StoreFacts const& facts) {
  if (facts.num_types() == 0) return {};
  if (facts.num_types() > most_vertex_types || facts.num_relations() == 0)
    return fmt::format("{} types of vertices and {} relations", facts.num_types(), facts.num_relations());
  std::int64_t total = 0;
  for (auto const& type : facts.vertex_types) {
    if (type.count < 0 || type.count > facts.num_vertices - total)
      return fmt::format("the type {} has {} vertices", type.name, type.count);
    total += type.count;
    if (type.num_features < 0 || type.num_features > facts.num_features)
      return fmt::format("the type {} has {} of {} features", type.name, type.num_features,
                         facts.num_features);
  }
  if (total != facts.num_vertices)
    return fmt::format("{} vertices of all types, but {} vertices", total, facts.num_vertices);
  return {};
}

} // namespace

std::string StoreFacts::contradiction() const {
  constexpr auto any = std::numeric_limits<std::int64_t>::max();
  constexpr auto most_links = any / 2; // so that their sum does not overflow
  struct Bounds {
    char const* what;
    std::int64_t value;
    std::int64_t low;
    std::int64_t high;
  };
  bool const has_features = feature_kind != FeatureKind::none;
  bool const has_labels = label_kind != LabelKind::none;
  bool const has_columns = label_kind == LabelKind::multi || label_kind == LabelKind::real;
  bool const may_be_named = label_kind == LabelKind::single && num_classes <= most_class_names;
  std::array const bounds{
      Bounds{"num_vertices", num_vertices, 1, most_vertices},
      Bounds{"num_entries", num_entries, 0, any},
      Bounds{"num_self_loops", num_self_loops, 0, num_entries},
      Bounds{"max_degree", max_degree, 0, num_entries - num_self_loops},
      Bounds{"num_negative_weights", num_negative_weights.value_or(0), 0,
             is_weighted ? num_entries - num_self_loops : 0},
      Bounds{"num_edge_features", num_edge_features, 0,
             is_weighted || num_relations() > 0 ? 0 : most_columns},
      Bounds{"num_clusters", num_clusters, 0, std::min(num_vertices, most_clusters)},
      Bounds{"num_features", num_features, has_features ? 1 : 0, has_features ? most_columns : 0},
      Bounds{"num_feature_entries", num_feature_entries, 0, feature_kind == FeatureKind::sparse ? any : 0},
      Bounds{"num_classes", num_classes, has_columns ? 1 : 0, has_labels ? most_columns : 0},
      Bounds{"num_labelled", num_labelled, 0, has_labels ? num_vertices : 0},
      Bounds{"the number of sizes_of_splits", std::ssize(sizes_of_splits), 0, has_split ? most_splits : 0},
      Bounds{"the first of num_held_out", num_held_out[0], 0, 0},
      Bounds{"the second of num_held_out", num_held_out[1], 0, is_symmetric ? most_links : 0},
      Bounds{"the third of num_held_out", num_held_out[2], 0, is_symmetric ? most_links : 0},
      Bounds{"relation_name_bytes", relation_name_bytes, num_relations(), num_relations() > 0 ? any : 0},
      Bounds{"class_name_bytes", class_name_bytes, has_class_names() ? num_classes : 0,
             may_be_named ? any : 0},
      Bounds{"vertex_name_bytes", vertex_name_bytes, has_vertex_names() ? num_vertices : 0, any}};
  for (auto const& [what, value, low, high] : bounds)
    if (value < low || value > high)
      return fmt::format("{} is {}; it must be between {} and {}", what, value, low, high);
  if (auto wrong = contradiction_of_splits(); !wrong.empty()) return wrong;
  if (is_symmetric && (num_entries - num_self_loops) % 2 != 0)
    return fmt::format("a symmetric matrix of {} entries, {} of them self loops", num_entries,
                       num_self_loops);
  if (num_relations() > 0 && (is_weighted || is_symmetric))
    return "a graph with relations that has weights or is symmetric";
  if (auto const wrong = wrong_types(*this); !wrong.empty()) return wrong;
  if (features_have_remainders && feature_kind != FeatureKind::dense)
    return "features_have_remainders is true, but the features are not dense";
  if (features_have_values && feature_kind != FeatureKind::sparse)
    return "features_have_values is true, but the features are not sparse";
  if (!split_name.empty() && !is_folder_name(split_name)) // it becomes a folder when the graph is exported
    return "split_name is not the name of a folder";
  if (num_labelled > 0 && num_classes == 0) return "vertices are labelled, but there are no classes";
  return {};
}

} // namespace orthant::graph
