// SPDX-License-Identifier: Apache-2.0
//
// Which library multiplies what, for processors that this machine need not have; tables as text, and bad ones.
#include "pmm/gemm/gemm_choice.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace orthant::testing {
namespace {

using namespace orthant::pmm;
using runtime::Processor;
using runtime::Vectors;

Processor const sapphire_rapids{"Intel(R) Xeon(R) Processor", "GenuineIntel", Vectors::avx512, 6, 143, true};
Processor const alder_lake_154{
    "12th Gen Intel(R) Core(TM) i7-1260P", "GenuineIntel", Vectors::avx2, 6, 154, false};
Processor const zen_4{"AMD EPYC 9654 96-Core Processor", "AuthenticAMD", Vectors::avx512, 25, 17, false};
Processor const zen_5_model_2{
    "AMD EPYC 9755 128-Core Processor", "AuthenticAMD", Vectors::avx512, 26, 2, false};
Processor const aarch64{"aarch64", "", Vectors::unknown};

constexpr GemmCase tall{GemmNumbers::fp32, Transpose::no, Transpose::no, GemmShape::tall};

GemmTable::Processors entry_of(std::string vendor, std::string library) {
  GemmTable::Processors entry;
  entry.vendor = std::move(vendor);
  entry.choices.push_back({tall, std::move(library), {}});
  return entry;
}

TEST(GemmShape, ClassesMeetWhereTheyShould) {
  EXPECT_EQ(gemm_shape({63, 64, 64}), GemmShape::small);
  EXPECT_EQ(gemm_shape({64, 64, 64}), GemmShape::other);
  EXPECT_EQ(gemm_shape({48980, 128, 128}), GemmShape::tall);
  EXPECT_EQ(gemm_shape({1024, 128, 128}), GemmShape::tall);
  EXPECT_EQ(gemm_shape({1023, 128, 128}), GemmShape::other);
  EXPECT_EQ(gemm_shape({48980, 64, 128}), GemmShape::tall);
  EXPECT_EQ(gemm_shape({48980, 63, 128}), GemmShape::tall_narrow);
  EXPECT_EQ(gemm_shape({128, 128, 48980}), GemmShape::long_sum);
  EXPECT_EQ(gemm_shape({128, 47, 48980}), GemmShape::long_sum_narrow);
  EXPECT_EQ(gemm_shape({47, 128, 48980}), GemmShape::long_sum_narrow);
  EXPECT_EQ(gemm_shape({128, 48980, 128}), GemmShape::other);
  auto const huge = std::int64_t{1} << 40; // the product of all three does not fit 64 bits
  EXPECT_EQ(gemm_shape({huge, huge, huge}), GemmShape::other);
  EXPECT_EQ(gemm_shape({huge, 128, 0}), GemmShape::small);
}

TEST(GemmChoice, TheFirstEntryThatFitsDecides) {
  GemmTable table;
  table.processors.push_back(entry_of("GenuineIntel", "openblas"));
  table.processors.back().model = 207;
  table.processors.push_back(entry_of("GenuineIntel", "onednn"));
  table.processors.back().vectors = Vectors::avx512;
  EXPECT_EQ(library_of(table, sapphire_rapids, tall), "onednn");
  auto emerald_rapids_207 = sapphire_rapids;
  emerald_rapids_207.model = 207;
  EXPECT_EQ(library_of(table, emerald_rapids_207, tall), "openblas");
  EXPECT_EQ(library_of(table, alder_lake_154, tall), "openblas");
  for (auto const& [change, fits] : std::vector<std::pair<void (*)(GemmTable::Processors&), bool>>{
           {[](auto& e) { e.family = 6; }, true},
           {[](auto& e) { e.family = 7; }, false},
           {[](auto& e) { e.has_bf16_tiles = true; }, true},
           {[](auto& e) { e.has_bf16_tiles = false; }, false},
           {[](auto& e) { e.vendor = "AuthenticAMD"; }, false}}) {
    auto entry = entry_of("GenuineIntel", "onednn");
    change(entry);
    EXPECT_EQ(entry.fit(sapphire_rapids), fits);
  }
}

TEST(GemmChoice, WhatNoTableSaysIsLeftToOpenBlas) {
  GemmTable table;
  table.processors.push_back(entry_of("GenuineIntel", "onednn"));
  for (auto const& processor : {zen_4, aarch64})
    EXPECT_EQ(library_of(table, processor, tall), "openblas");
  auto other = tall;
  other.transpose_b = Transpose::yes;
  EXPECT_EQ(library_of(table, sapphire_rapids, other), "openblas");
  other.numbers = GemmNumbers::bf16;
  EXPECT_EQ(library_of(table, sapphire_rapids, other), "widened");
}

TEST(GemmChoice, TheBuiltInTableKeepsOpenBlasWhereNothingWasMeasured) {
  auto const& table = built_in_gemm_table();
  EXPECT_EQ(library_of(table, zen_4, tall), "orthant");
  EXPECT_EQ(library_of(table, alder_lake_154, tall), "openblas");
  EXPECT_EQ(library_of(table, aarch64, tall), "openblas");
  EXPECT_EQ(library_of(table, sapphire_rapids, tall), "onednn");
  EXPECT_EQ(library_of(table, zen_5_model_2, tall), "orthant");
  auto doubles = tall;
  doubles.numbers = GemmNumbers::fp64;
  EXPECT_EQ(library_of(table, sapphire_rapids, doubles), "openblas");
}

TEST(GemmChoice, ANewChoiceHoldsFromThenOn) {
  auto const processor = runtime::find_processor();
  set_gemm_choice({}, processor);
  EXPECT_THAT(describe_gemm_choice(), ::testing::Not(::testing::HasSubstr("oneDNN")));
  GemmTable table;
  table.processors.push_back(entry_of(processor.vendor, "onednn"));
  set_gemm_choice(table, processor);
  auto const has_onednn =
      std::ranges::any_of(gemm_libraries(), [](auto const& name) { return name.starts_with("oneDNN"); });
  EXPECT_EQ(describe_gemm_choice().find("fp32 NN tall") != std::string::npos, has_onednn)
      << describe_gemm_choice();
  set_gemm_choice(built_in_gemm_table(), processor);
}

TEST(GemmTable, IsTheSameAfterItsText) {
  GemmTable table;
  table.processors.push_back(entry_of("GenuineIntel", "onednn"));
  auto& entry = table.processors.back();
  entry.family = 6;
  entry.model = 143;
  entry.vectors = Vectors::avx512;
  entry.has_bf16_tiles = true;
  entry.name = "Intel";
  entry.libraries = {"OpenBLAS", "oneDNN"};
  entry.choices.push_back(
      {{GemmNumbers::bf16, Transpose::yes, Transpose::no, GemmShape::long_sum_narrow}, "widened", {}});
  entry.choices.push_back({{GemmNumbers::fp64, Transpose::no, Transpose::yes, GemmShape::other},
                           "openblas",
                           {{"openblas", 81.5}}});
  table.processors.push_back(entry_of("AuthenticAMD", "openblas"));
  auto const text = text_of(table);
  auto const again = parse_gemm_table(text, "table.json");
  EXPECT_EQ(text_of(again), text);
  ASSERT_EQ(again.processors.size(), 2U);
  EXPECT_EQ(again.processors[0].choices.size(), 3U);
  EXPECT_EQ(again.processors[1].family, std::nullopt);
  EXPECT_EQ(name_of(again.processors[0].choices[1].kind), "bf16 TN long_sum_narrow");
}

TEST(GemmTable, RefusesWhatIsNone) {
  std::string const head = R"({"table":"gemm_libraries","format":1,"processors":)";
  auto const one = [&](std::string const& choice, std::string const& more = "") {
    return head + R"([{"vendor":"GenuineIntel")" + more + R"(,"choices":[)" + choice + "]}]}";
  };
  std::string const good = R"({"numbers":"fp32","transposes":"NN","shape":"tall","library":"onednn"})";
  EXPECT_NO_THROW(std::ignore = parse_gemm_table(one(good), "t.json"));
  EXPECT_NO_THROW(std::ignore = parse_gemm_table(head + "[]}", "t.json"));
  auto const changed = [&](std::string text, std::string const& from, std::string const& to) {
    return text.replace(text.find(from), from.size(), to);
  };
  for (auto const& [text, fault] : std::vector<std::pair<std::string, std::string>>{
           {"", "no table of libraries"},
           {"{", "no table of libraries"},
           {"[]", "no table of libraries"},
           {"{}", "no table of libraries"},
           {changed(one(good), "gemm_libraries", "spmm_times"), "not a table of this version"},
           {changed(one(good), "\"format\":1", "\"format\":2"), "not a table of this version"},
           {head + "[{}]}", "no table of libraries"},
           {head + "3}", "no table of libraries"},
           {one("{}"), "no table of libraries"},
           {one(changed(good, "onednn", "mkl")), "no library 'mkl' multiplies fp32"},
           {one(changed(good, "onednn", "widened")), "no library 'widened' multiplies fp32"},
           {one(changed(good, "fp32", "fp64")), "no library 'onednn' multiplies fp64"},
           {one(changed(changed(good, "fp32", "bf16"), "onednn", "orthant")),
            "no library 'orthant' multiplies bf16"},
           {one(changed(good, "fp32", "fp8")), "'fp8' is no value of numbers"},
           {one(changed(good, "NN", "XN")), "'XN' is no value of transposes"},
           {one(changed(good, "tall", "high")), "'high' is no value of shape"},
           {one(good + "," + good), "two choices for fp32 NN tall"},
           {one(good, R"(,"family":6.5)"), "family is no whole number"},
           {one(good, R"(,"vectors":"AVX-1024")"), "'AVX-1024' is no value of vectors"},
           {one(good, R"(,"bf16_tiles":"yes")"), "no table of libraries"}})
    try {
      std::ignore = parse_gemm_table(text, "t.json");
      ADD_FAILURE() << text << " is accepted";
    } catch (runtime::UserError const& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(fault)) << text;
      EXPECT_THAT(error.what(), ::testing::HasSubstr("'t.json'"));
      EXPECT_THAT(error.what(), ::testing::Not(::testing::HasSubstr("\n")));
    }
}

} // namespace
} // namespace orthant::testing
