#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Stores whose every checksum is right and which must be refused all the same: what is done to a sound store,
// and what the error must say.

#include "store_editor.hpp"

#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace orthant::testing {

/// When a hostile store must be refused at the latest.
enum class Stage { open, read, verify };

struct HostileStore {
  std::string name;
  Stage stage;
  std::string message; // a part of it
  std::function<void(StoreEditor&)> edit;
};

/// Arrays of other types and shapes, links, attributes. Of a store with features, labels and a split.
inline std::vector<HostileStore> misshapen_stores() {
  using Editor = StoreEditor;
  auto const with_array = [](char const* array, hid_t type, StoreEditor::Sizes const& sizes) {
    return [=](Editor& e) {
      auto const space = sizes.empty() ? must(H5Screate(H5S_SCALAR)) : Editor::make_space(sizes);
      e.replace(array, type, space);
    };
  };
  auto const in_chunks = [](StoreEditor::Sizes const& sizes, bool is_compressed) {
    return [=](Editor& e) {
      auto const creation = must(H5Pcreate(H5P_DATASET_CREATE));
      StoreEditor::Sizes const chunk(sizes.size(), 10);
      must(H5Pset_chunk(creation, static_cast<int>(chunk.size()), chunk.data()));
      if (is_compressed) must(H5Pset_deflate(creation, 6));
      std::vector<std::int32_t> const zeros(sizes[0] < 10'000 ? sizes[0] : 0);
      e.replace("/labels/p1", H5T_STD_I32LE, Editor::make_space(sizes), creation, H5T_NATIVE_INT32,
                zeros.empty() ? nullptr : zeros.data());
    };
  };
  auto const attribute = [](char const* name, hid_t type, StoreEditor::Sizes const& sizes) {
    return [=](Editor& e) {
      std::vector<std::int64_t> const ones(100'000, 1);
      e.write_attribute(name, type, sizes, ones.data());
    };
  };
  std::vector<HostileStore> stores{
      {"scalar_labels", Stage::open, "/labels/p1 must be an array, but it is a single value",
       with_array("/labels/p1", H5T_STD_I32LE, {})},
      {"scalar_entries", Stage::open, "/topology/even/entries must be an array",
       with_array("/topology/even/entries", H5T_STD_U32LE, {})},
      {"scalar_tile_checksums", Stage::open, "/topology/even/tile_checksums must be an array",
       with_array("/topology/even/tile_checksums", H5T_STD_U32LE, {})},
      {"scalar_checksums", Stage::open, "/checksums/labels/p1 must be an array",
       with_array("/checksums/labels/p1", H5T_STD_U32LE, {})},
      {"three_dimensions", Stage::open, "/labels/p1", with_array("/labels/p1", H5T_STD_I32LE, {10, 10, 3})},
      {"no_checksums", Stage::open, "/checksums/labels/p1",
       with_array("/checksums/labels/p1", H5T_STD_U32LE, {0})},
      {"many_checksums", Stage::open, "/checksums/labels/p1",
       with_array("/checksums/labels/p1", H5T_STD_U32LE, {5})},
      {"real_labels", Stage::open, "/labels/p1", with_array("/labels/p1", H5T_IEEE_F32LE, {300})},
      {"big_endian_labels", Stage::open, "/labels/p1", with_array("/labels/p1", H5T_STD_I32BE, {300})},
      {"text_labels", Stage::open, "/labels/p1", with_array("/labels/p1", H5T_C_S1, {300})},
      {"unwritten_terabytes", Stage::open, "/labels/p1",
       with_array("/labels/p1", H5T_STD_I32LE, {hsize_t{1} << 58})},
      {"chunked", Stage::open, "/labels/p1 must be stored as one contiguous piece", in_chunks({300}, false)},
      {"compressed", Stage::open, "/labels/p1 must be stored as one contiguous piece",
       in_chunks({300}, true)},
      {"chunked_terabytes", Stage::open, "/labels/p1", in_chunks({hsize_t{1} << 60}, false)},
      {"version_is_a_vector", Stage::open, "attribute version of / must be a single value",
       attribute("version", H5T_NATIVE_INT64, {100})},
      {"version_is_real", Stage::open, "attribute version of / must be an integer",
       attribute("version", H5T_NATIVE_DOUBLE, {})},
      {"checksum_is_a_vector", Stage::open, "attribute facts_crc32 of / must be a single value",
       attribute("facts_crc32", H5T_NATIVE_INT64, {7000})},
      {"facts_are_a_number", Stage::open, "attribute facts of / must be a text",
       attribute("facts", H5T_NATIVE_INT64, {})},
      {"format_is_a_vector", Stage::open, "attribute format of / must be a single value",
       attribute("format", H5T_C_S1, {64})},
  };
  stores.push_back({"version_is_a_text", Stage::open, "attribute version of / must be an integer",
                    [](Editor& e) { e.write_attribute("version", H5T_C_S1, {}, "1"); }});
  stores.push_back(
      {"labels_are_a_group", Stage::open, "/labels/p1 must be an array, but it is a group", [](Editor& e) {
         e.remove("/labels/p1");
         must(H5Gclose(must(H5Gcreate2(e.file(), "/labels/p1", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT))));
       }});
  stores.push_back(
      {"labels_are_elsewhere", Stage::open, "/labels/p1 is a link to another file", [](Editor& e) {
         e.remove("/labels/p1");
         must(H5Lcreate_external("/dev/zero", "/labels", e.file(), "/labels/p1", H5P_DEFAULT, H5P_DEFAULT));
       }});
  stores.push_back({"labels_lead_to_themselves", Stage::open, "/labels/p1", [](Editor& e) {
                      e.remove("/labels/p1");
                      must(H5Lcreate_soft("/labels/p1", e.file(), "/labels/p1", H5P_DEFAULT, H5P_DEFAULT));
                    }});
  stores.push_back(
      {"raw_data_are_elsewhere", Stage::open, "the data of /labels/p1 are in another file", [](Editor& e) {
         auto const creation = must(H5Pcreate(H5P_DATASET_CREATE));
         must(H5Pset_external(creation, "/dev/zero", 0, 1200));
         e.replace("/labels/p1", H5T_STD_I32LE, Editor::make_space({300}), creation);
       }});
  stores.push_back({"no_positions", Stage::open, "no array /vertices/p2/positions_in_other_order",
                    [](Editor& e) { e.remove("/vertices/p2/positions_in_other_order"); }});
  stores.push_back({"no_topology", Stage::open, "no array /topology/even/entries",
                    [](Editor& e) { e.remove("/topology"); }});
  return stores;
}

/// Facts that are no facts, or that the arrays contradict. Of a store of 300 vertices.
inline std::vector<HostileStore> stores_with_wrong_facts() {
  using Json = nlohmann::json;
  auto const with = [](char const* key, Json const& value) {
    return [=](StoreEditor& e) { e.change_facts([&](Json& facts) { facts[key] = value; }); };
  };
  auto const plus = [](char const* key, std::int64_t change) {
    return [=](StoreEditor& e) {
      e.change_facts([&](Json& facts) { facts[key] = facts[key].get<std::int64_t>() + change; });
    };
  };
  auto const text = [](std::string const& facts) { return [=](StoreEditor& e) { e.write_facts(facts); }; };
  std::vector<HostileStore> stores;
  for (std::int64_t const change : {-1, 1, 1'000'000'000})
    for (auto const* const key : {"num_vertices", "num_entries", "num_features"})
      stores.push_back(
          {std::string(key) + "_plus_" + std::to_string(change), Stage::open, "", plus(key, change)});
  for (auto const* const key : {"num_vertices", "num_entries", "num_self_loops", "max_degree", "num_features",
                                "num_feature_entries", "num_classes", "num_labelled"}) {
    for (Json const& value :
         {Json(-5), Json(1e300), Json(true), Json("34"), Json(nullptr), Json::array(),
          Json(std::numeric_limits<std::uint64_t>::max()), Json(std::numeric_limits<std::int64_t>::max())})
      stores.push_back(
          {std::string(key) + "_is_" + std::to_string(stores.size()), Stage::open, "", with(key, value)});
    stores.push_back({std::string("no_") + key, Stage::open, std::string("there is no '") + key,
                      [key](StoreEditor& e) { e.change_facts([&](Json& facts) { facts.erase(key); }); }});
  }
  for (auto const* const key : {"is_symmetric", "is_weighted", "has_split", "features_have_values"})
    stores.push_back({std::string(key) + "_is_a_number", Stage::open, "must be true or false", with(key, 1)});
  for (auto const* const key : {"name", "permutation", "normalization", "feature_kind", "label_kind"}) {
    stores.push_back({std::string(key) + "_is_a_number", Stage::open, "must be a text", with(key, 1)});
  }
  stores.push_back(
      {"another_label_kind", Stage::open, "unknown kind of labels 'both'", with("label_kind", "both")});
  stores.push_back({"labels_of_no_kind", Stage::open, "num_classes", with("label_kind", "none")});
  stores.push_back({"labels_of_several_classes", Stage::open, "/labels/p1", with("label_kind", "multi")});
  stores.push_back({"sparse_features", Stage::open, "/features/sparse", with("feature_kind", "sparse")});
  stores.push_back({"weighted", Stage::open, "/vertices/p1/weight_sums", with("is_weighted", true)});
  stores.push_back({"directed", Stage::open, "/topology/odd", with("is_symmetric", false)});
  stores.push_back({"negative_seed", Stage::open, "'seed' must be an integer from 0", with("seed", -1)});
  stores.push_back({"two_split_sizes", Stage::open, "three integers", with("split_sizes", {1, 2})});
  stores.push_back({"split_elsewhere", Stage::open, "split_name", with("split_name", "../elsewhere")});
  stores.push_back({"many_in_split", Stage::open, "split_sizes", with("split_sizes", {200, 200, 1})});
  stores.push_back({"overflowing_split", Stage::open, "split_sizes",
                    with("split_sizes", {std::numeric_limits<std::int64_t>::max(), 1, 1})});
  stores.push_back({"empty_facts", Stage::open, "facts", text("")});
  stores.push_back({"facts_are_a_list", Stage::open, "no JSON object", text("[1, 2]")});
  stores.push_back({"deep_facts", Stage::open, "facts", text(std::string(30'000, '['))});
  stores.push_back({"cut_facts", Stage::open, "facts", text("{\"name\": \"x\"")});
  stores.push_back({"facts_are_not_utf8", Stage::open, "facts", text("{\"name\": \"\xff\xfe\"}")});
  stores.push_back({"one_label_more", Stage::verify, "num_labelled", plus("num_labelled", -1)});
  stores.push_back({"loops_from_nowhere", Stage::verify, "num_self_loops", plus("num_self_loops", 2)});
  stores.push_back({"a_larger_degree", Stage::verify, "max_degree", plus("max_degree", 1)});
  stores.push_back({"fewer_classes", Stage::read, "/labels/p1", plus("num_classes", -1)});
  stores.push_back({"smaller_degree", Stage::read, "/degrees", plus("max_degree", -1)});
  stores.push_back(
      {"another_split", Stage::verify, "the size of split 'train'", with("split_sizes", {1, 1, 1})});
  return stores;
}

/// Values that lead out of their arrays, or that contradict others.
inline std::vector<HostileStore> stores_with_wrong_values() {
  auto const set = [](char const* array, auto at, auto value) {
    using T = decltype(value);
    return [=](StoreEditor& e) {
      e.change<T>(array, [&](std::vector<T>& data) {
        data[static_cast<std::size_t>(at < 0 ? at + static_cast<int>(data.size()) : at)] = value;
      });
    };
  };
  auto const swap = [](char const* array, auto type) {
    using T = decltype(type);
    return [=](StoreEditor& e) {
      e.change<T>(array, [&](std::vector<T>& data) {
        auto const other = std::find_if(data.begin(), data.end(), [&](T value) { return value != data[0]; });
        std::iter_swap(data.begin(), other);
      });
    };
  };
  auto const entries = [](auto edit) {
    return [=](StoreEditor& e) { e.change_entries<std::uint32_t>("/topology/even", "/entries", edit); };
  };
  using Packed = std::vector<std::uint32_t>;
  constexpr auto top = std::numeric_limits<std::int32_t>::max();
  std::vector<HostileStore> stores{
      {"id_beyond", Stage::read, "/vertices/p1/original_ids", set("/vertices/p1/original_ids", 7, 300)},
      {"id_far_beyond", Stage::read, "/vertices/p2/original_ids", set("/vertices/p2/original_ids", -1, top)},
      {"negative_id", Stage::read, "/vertices/p1/original_ids", set("/vertices/p1/original_ids", 0, -1)},
      {"position_beyond", Stage::read, "/vertices/p1/positions_in_other_order",
       set("/vertices/p1/positions_in_other_order", 3, 300)},
      {"position_far_beyond", Stage::read, "/vertices/p2/positions_in_other_order",
       set("/vertices/p2/positions_in_other_order", 3, top)},
      {"negative_position", Stage::read, "/vertices/p1/positions_in_other_order",
       set("/vertices/p1/positions_in_other_order", 299, -2'000'000)},
      {"negative_degree", Stage::read, "/vertices/p1/degrees", set("/vertices/p1/degrees", 9, -1)},
      {"great_degree", Stage::read, "/vertices/p2/degrees", set("/vertices/p2/degrees", 9, top)},
      {"label_beyond", Stage::read, "/labels/p1", set("/labels/p1", 11, 3)},
      {"label_far_beyond", Stage::read, "/labels/p2", set("/labels/p2", 11, top)},
      {"negative_label", Stage::read, "/labels/p1", set("/labels/p1", 11, -2)},
      {"three_parts_of_split", Stage::read, "/split/p1", set("/split/p1", 0, std::uint8_t{7})},
      {"two_parts_of_split", Stage::read, "/split/p1", set("/split/p1", 0, std::uint8_t{3})},
      {"nan_feature", Stage::read, "/features/dense",
       set("/features/dense", 40, std::numeric_limits<float>::quiet_NaN())},
      {"row_beyond_tile", Stage::read, "/topology/even/entries",
       entries([](Packed& data) { data.back() |= 0xffff0000U; })},
      {"column_beyond_tile", Stage::read, "/topology/even",
       entries([](Packed& data) { data.back() |= 0xffffU; })},
      {"unsorted_tile", Stage::read, "is not sorted",
       entries([](Packed& data) { std::swap(data[0], data[1]); })},
      {"offset_beyond", Stage::read, "/topology/even/tile_offsets",
       set("/topology/even/tile_offsets", 1, std::uint32_t{4'000'000'000U})},
      {"offsets_back", Stage::read, "/topology/even",
       set("/topology/even/tile_offsets", 0, std::uint32_t{70})},
      {"row_offset_beyond", Stage::read, "/topology/even/tile_row_offsets",
       set("/topology/even/tile_row_offsets", 1, std::int64_t{1} << 60)},
      {"negative_row_offset", Stage::read, "/topology/even/tile_row_offsets",
       set("/topology/even/tile_row_offsets", 0, std::int64_t{-4})},
      {"few_entries_in_rows", Stage::read, "/topology/even/tile_row_offsets",
       set("/topology/even/tile_row_offsets", -1, std::int64_t{0})},
      {"id_twice", Stage::verify, "/vertices/p1/original_ids does not hold every vertex once",
       [](StoreEditor& e) {
         e.change<std::int32_t>("/vertices/p1/original_ids", [](auto& data) { data[0] = data[1]; });
       }},
      {"swapped_ids", Stage::verify, "positions_in_other_order",
       swap("/vertices/p1/original_ids", std::int32_t{})},
      {"swapped_positions", Stage::verify, "positions_in_other_order",
       swap("/vertices/p2/positions_in_other_order", std::int32_t{})},
      {"swapped_degrees", Stage::verify, "/degrees", swap("/vertices/p1/degrees", std::int32_t{})},
      {"swapped_labels", Stage::verify, "disagree on /labels", swap("/labels/p2", std::int32_t{})},
      {"swapped_split", Stage::verify, "disagree on /split", swap("/split/p1", std::uint8_t{})},
      {"no_label", Stage::verify, "num_labelled", set("/labels/p1", 4, -1)},
      {"entry_moved", Stage::verify, "/topology/even", entries([](Packed& data) {
         // To the next free column of its row, so that the row keeps its number of entries.
         for (std::size_t k = 0; k + 1 < data.size(); ++k)
           if (data[k] >> 16 == data[k + 1] >> 16 && data[k] + 1 < data[k + 1]) {
             ++data[k];
             return;
           }
       })},
      {"entry_twice", Stage::verify, "/topology/even", entries([](Packed& data) { data[1] = data[0]; })},
  };
  return stores;
}

/// Of a store of a directed graph with weights.
inline std::vector<HostileStore> stores_with_wrong_weights() {
  auto const value = [](char const* group, float weight) {
    return [=](StoreEditor& e) {
      e.change_entries<float>(group, "/values", [&](std::vector<float>& data) { data[2] = weight; });
    };
  };
  auto const sum = [](char const* array, double weight) {
    return [=](StoreEditor& e) {
      e.change<double>(array, [&](std::vector<double>& data) { data[2] = weight; });
    };
  };
  return {
      {"infinite_weight", Stage::read, "/topology/even/values",
       value("/topology/even", std::numeric_limits<float>::infinity())},
      {"weight_is_nan", Stage::read, "/topology/odd/values",
       value("/topology/odd", std::numeric_limits<float>::quiet_NaN())},
      {"infinite_sum", Stage::read, "/vertices/p1/weight_sums",
       sum("/vertices/p1/weight_sums", std::numeric_limits<double>::infinity())},
      {"another_weight", Stage::verify, "/topology/odd", value("/topology/odd", 77)},
      {"another_sum", Stage::verify, "/weight_sums", sum("/vertices/p1/weight_sums", 77)},
      {"other_sums", Stage::verify, "/vertices/p1/weight_sums does not add up",
       [](StoreEditor& e) {
         for (auto const* const array : {"/vertices/p1/weight_sums", "/vertices/p2/weight_sums"})
           e.change<double>(array, [](std::vector<double>& data) {
             for (auto& weight : data)
               weight *= 1.5;
           });
       }},
  };
}

/// Of a store whose entries have two relations. Two of them go from vertex 0 to vertex 1.
inline std::vector<HostileStore> stores_with_wrong_relations() {
  using Json = nlohmann::json;
  auto const relation = [](char const* group, auto edit) {
    return [=](StoreEditor& e) { e.change_entries<std::uint16_t>(group, "/relations", edit); };
  };
  auto const integers = [](char const* array, auto edit) {
    return [=](StoreEditor& e) { e.change<std::int64_t>(array, edit); };
  };
  auto const fact = [](auto edit) { return [=](StoreEditor& e) { e.change_facts(edit); }; };
  return {
      {"relation_too_large", Stage::read, "/topology/even/relations",
       relation("/topology/even", [](auto& data) { data[1] = 2; })},
      {"repeated_triple", Stage::read, "is not sorted by relations",
       relation("/topology/odd", [](auto& data) { std::ranges::fill(data, std::uint16_t{0}); })},
      {"other_relations", Stage::verify, "/relations/num_entries does not count",
       integers("/relations/num_entries", [](auto& data) { std::swap(data[0], data[1]); })},
      {"too_many_entries", Stage::open, "/relations/num_entries",
       integers("/relations/num_entries", [](auto& data) { data[1] = 1'000; })},
      {"empty_name", Stage::open, "/relations/names/offsets does not cut",
       integers("/relations/names/offsets", [](auto& data) { data[1] = 0; })},
      {"empty_name_of_vertex", Stage::verify, "/vertices/names/offsets does not cut",
       integers("/vertices/names/offsets", [](auto& data) { data[1] = data[2]; })},
      {"short_name_of_last_vertex", Stage::verify, "/vertices/names/offsets does not cut",
       integers("/vertices/names/offsets", [](auto& data) { --data.back(); })},
      {"many_relations", Stage::open, "'num_relations' is 70000; it must be between 1 and 65535",
       fact([](Json& facts) { facts["num_relations"] = 70'000; })},
      {"three_relations", Stage::open, "/relations/names/offsets has the shape",
       fact([](Json& facts) { facts["num_relations"] = facts["relation_name_bytes"] = 3; })},
      {"no_relations", Stage::read, "wrong checksum in /topology",
       fact([](Json& facts) { facts.erase("num_relations"); })},
      {"names_without_text", Stage::open, "relation_name_bytes is 1; it must be between 2 and",
       fact([](Json& facts) { facts["relation_name_bytes"] = 1; })},
      {"vertices_without_text", Stage::open, "vertex_name_bytes is 3; it must be between 4 and",
       fact([](Json& facts) { facts["vertex_name_bytes"] = 3; })},
      {"symmetric", Stage::open, "a graph with relations that has weights or is symmetric",
       fact([](Json& facts) { facts["is_symmetric"] = true; })},
  };
}

} // namespace orthant::testing
