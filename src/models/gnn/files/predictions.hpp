#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What a network says of every vertex, by original id, in a file (predictions.hpp).
//
//   one class       class_i = arg max_j z_ij, the smallest of equals      p_ij = exp(z_ij) / sum_k exp(z_ik)
//   several         i has class j where z_ij > 0                          p_ij = 1 / (1 + exp(-z_ij))

#include "graph/store/store_reader.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/range.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

namespace orthant::models {

// The rows of a matrix of vertices by original id, whatever its layout is: whole rows, brought to the ranks a
// slice of the ids at a time, so that beside its own block a rank holds a slice's rows: those it sends, and its share.

// A file with a row per vertex, by original id, that all ranks write together. Its name says the format:
//
//   .h5    /predictions   int32 [N]: the class; of several classes int8 [N x C]: 1 if the vertex has the class
//          /probabilities [N x C], /embeddings [N x D] in the precision of the computation, if asked for
//   .npy   one array: the probabilities or the embeddings if asked for, else what /predictions is
//   .csv   vertex,class[,p0,..][,e0,..], a line per vertex after that one; of several classes c0,.. in place of
//          class

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

template<class T>
class RowsById {
 public:
  /// Of `matrix`, whose rows are vertices in an order of the store; on a device its numbers are copied to the
  /// host. `grid` and `matrix` must outlive it. Collective over the grid's world. Throws UserError if the store
  /// cannot be read. Memory: 16 bytes per row of this rank's block.
  RowsById(pmm::ProcessGrid const& grid, graph::GraphStore const& store, pmm::DistMatrix<T> const& matrix);

  [[nodiscard]] std::int64_t width() const { return width_; }

  /// The rows of the vertices in this rank's balanced part of `ids`, [size of the part x width()], row-major.
  /// `ids` is the same on all ranks. Collective over the grid's world. Each number is sent once.
  [[nodiscard]] std::vector<T> bring(runtime::Range ids) const;

 private:
  struct Place {
    std::int64_t id;
    std::int64_t row; // of the block
  };
  [[nodiscard]] runtime::Range columns_of(int rank) const;

  pmm::ProcessGrid const& grid_;
  pmm::Placement placement_;
  std::int64_t width_;
  decltype(Kokkos::create_mirror_view(std::declval<runtime::Matrix<T> const&>())) numbers_; // of the block
  std::vector<Place> places_; // by id; empty if another rank has the same rows and sends them
};

extern template class RowsById<float>;
extern template class RowsById<double>;

/// Writes the classes of `logits`, the probabilities if `has_probabilities`, and the rows of `embeddings`
/// unless it is null: both matrices have a row per vertex, in any layout and order of the store. Every rank
/// writes its share of each slice of the ids. Probabilities are computed in double. Collective over the grid's
/// world. Throws UserError if the file cannot be written, or its name does not fit (predictions.hpp).
/// Memory beside the matrices: about 100 MiB per rank, and 500 MiB on one that has all rows of a slice (the order
/// of the store is that of the ids). Sends each number once.
template<class T>
void write_predictions(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                       pmm::DistMatrix<T> const& logits, bool has_probabilities,
                       pmm::DistMatrix<T> const* embeddings, std::filesystem::path const& path);

} // namespace orthant::models
