#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A file with a row per vertex, by original id, that all ranks write together. Its name says the format:
//
//   .h5    /predictions   int32 [N]: the class; of several classes int8 [N x C]: 1 if the vertex has the class
//          /probabilities [N x C], /embeddings [N x D] in the precision of the computation, if asked for
//   .npy   one array: the probabilities or the embeddings if asked for, else what /predictions is
//   .csv   vertex,class[,p0,..][,e0,..], a line per vertex after that one; of several classes c0,.. in place of
//          class

#include "runtime/comm/communicator.hpp"
#include "runtime/range.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

namespace orthant::models {

/// What a file of predictions has of every vertex.
struct PredictionColumns {
  std::int64_t num_vertices = 0;
  std::int64_t num_classes = 0;
  bool has_several_classes = false; // per vertex
  bool has_probabilities = false;
  std::int64_t embedding_width = 0; // 0: no embeddings
};

/// These columns for some vertices.
template<class T>
struct PredictionRows {
  runtime::Range ids;
  std::vector<std::int32_t> classes;   // [ids], if each has one class
  std::vector<std::int8_t> indicators; // [ids x classes] 0 or 1, if each has several
  std::vector<T> probabilities;        // [ids x classes] or empty
  std::vector<T> embeddings;           // [ids x width] or empty
};

template<class T>
class PredictionFile {
 public:
  virtual ~PredictionFile() = default;
  /// The next rows: those of all ranks together follow those of the call before, in the order of the ranks.
  /// Collective.
  virtual void write(PredictionRows<T> const& rows) = 0;
  /// Gives the file its name when all of it is on the disk. Collective.
  virtual void publish() = 0;
};

/// Throws UserError if the file's name says no format, or one that cannot hold the columns.
void require_prediction_format(std::filesystem::path const& path, bool has_probabilities,
                               bool has_embeddings);

/// A new file under a temporary name. Collective over `comm`, which must outlive it. Throws UserError on all
/// ranks as require_prediction_format() does, and if the file cannot be made, or the space is not there.
template<class T>
[[nodiscard]] std::unique_ptr<PredictionFile<T>> create_prediction_file(runtime::Communicator const& comm,
                                                                        std::filesystem::path const& path,
                                                                        PredictionColumns const& columns);

} // namespace orthant::models
