// Lists of the nearest distinct rows, and the core distances that come from them.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>

#include "points.h"

namespace mreach {

constexpr int MIN_LIST_LENGTH = 20;    // listed neighbours at least: most tree edges are among them
constexpr int MAX_LIST_LENGTH = 256;   // listed neighbours at most: the memory budget of a row (16 bytes each)
constexpr double WHOLE_SHARE = 0.1;    // asking for more than this share of all rows: look at all of them
constexpr int NEAR_PANELS = 16;        // panels a group looks at before the pass over all pairs
constexpr int GROUPS_FOR_EACH_THREAD = 16;  // at least, so that all threads end together
constexpr int SMALL_GROUP_FEATURES = 3;     // up to here groups of one block: larger ones spoil the boxes
static_assert(4 * ROW_BLOCK % PANEL == 0 && MAX_BLOCKS % 4 == 0, "groups of whole panels");

struct Neighbor {
  double distance;
  std::int32_t position;
};
inline bool operator<(const Neighbor& a, const Neighbor& b) {
  return a.distance < b.distance || (a.distance == b.distance && a.position < b.position);
}

// What the tree needs of the neighbours. By position; entries of a row ascend by (distance, position).
struct NeighborLists {
  int length = 0;
  Buffer<Neighbor> entries;          // (n, length)
  Buffer<std::int32_t> counts;       // (n) entries used
  Buffer<double> radii;              // (n) every row nearer than this is listed; infinity: all rows are
  Buffer<double> core_distances;     // (n)

  const Neighbor* of(std::int64_t row) const { return entries.data() + row * length; }
  Neighbor* of(std::int64_t row) { return entries.data() + row * length; }
};

struct Tuning {
  bool prune = true;                         // false: nothing is ever excluded (for tests)
  int min_list_length = MIN_LIST_LENGTH;
  int max_list_length = MAX_LIST_LENGTH;
  double whole_share = WHOLE_SHARE;
  int group_blocks = 0;                      // row blocks of a group; 0: chosen from the shape of the data
  int symmetric = -1;                        // evaluate a pair once for both rows: 1, 0; -1: chosen
  int near_panels = NEAR_PANELS;
};

// Rows that search together. Large groups move every panel less often and use it longer; several of them for every
// thread keep the threads equally busy.
inline int group_rows(const Tuning& tuning, int n_features, std::int64_t n, int n_threads) {
  if (tuning.group_blocks > 0) return std::min(tuning.group_blocks, MAX_BLOCKS) * ROW_BLOCK;
  if (n_features <= SMALL_GROUP_FEATURES) return ROW_BLOCK;
  const std::int64_t whole = 4 * ROW_BLOCK;  // the smallest number of blocks that fills whole panels
  const std::int64_t fair = n / (static_cast<std::int64_t>(GROUPS_FOR_EACH_THREAD) * n_threads) / whole;
  return static_cast<int>(std::clamp<std::int64_t>(fair, 1, MAX_BLOCKS / 4) * whole);
}

// The nearest rows met so far. A few are kept in order, as most that are offered belong near the end; many are kept
// as a heap with the farthest on top.
class NearestHeap {
 public:
  void reset(Neighbor* storage, int capacity) {
    entries_ = storage;
    capacity_ = capacity;
    size_ = 0;
  }
  bool full() const { return size_ == capacity_; }
  int size() const { return size_; }
  double bound() const { return full() ? farthest().distance : std::numeric_limits<double>::infinity(); }
  bool takes(const Neighbor& neighbor) const { return !full() || neighbor < farthest(); }
  bool holds(std::int32_t position) const {
    for (int k = 0; k < size_; ++k)
      if (entries_[k].position == position) return true;
    return false;
  }
  // Returns whether the bound may have fallen.
  bool offer(const Neighbor& neighbor) {
    if (!takes(neighbor)) return false;
    if (in_order()) insert(neighbor);
    else if (!full()) push(neighbor);
    else replace_farthest(neighbor);
    return full();
  }
  const Neighbor* sort() {
    if (!in_order()) std::sort_heap(entries_, entries_ + size_);
    return entries_;
  }

 private:
  bool in_order() const { return capacity_ <= MAX_IN_ORDER; }
  const Neighbor& farthest() const { return entries_[in_order() ? size_ - 1 : 0]; }
  void insert(const Neighbor& neighbor) {
    int at = full() ? size_ - 1 : size_++;
    for (; at > 0 && entries_[at - 1].distance > neighbor.distance; --at) entries_[at] = entries_[at - 1];
    for (; at > 0 && neighbor < entries_[at - 1]; --at) entries_[at] = entries_[at - 1];  // among equal distances
    entries_[at] = neighbor;
  }
  void push(const Neighbor& neighbor) {
    entries_[size_++] = neighbor;
    std::push_heap(entries_, entries_ + size_);
  }
  void replace_farthest(const Neighbor& neighbor) {
    int hole = 0;
    for (int child = 1; child < size_; child = 2 * hole + 1) {
      if (child + 1 < size_ && entries_[child] < entries_[child + 1]) ++child;
      if (!(neighbor < entries_[child])) break;
      entries_[hole] = entries_[child];
      hole = child;
    }
    entries_[hole] = neighbor;
  }

  static constexpr int MAX_IN_ORDER = 64;
  Neighbor* entries_ = nullptr;
  int capacity_ = 0, size_ = 0;
};

// Stores the sorted nearest rows of one row (which may be in place already) and its core distance. `all`: they are
// all the other rows.
template <class Value>
void store_neighbors(const Points<Value>& points, std::int64_t row, const Neighbor* nearest, std::int64_t count,
                     bool all, std::int64_t min_samples, NeighborLists& lists) {
  std::int64_t reached = points.multiplicity[row];  // the point itself and its copies come first
  double core = 0;
  for (std::int64_t k = 0; k < count && reached < min_samples; ++k) {
    core = nearest[k].distance;
    reached += points.multiplicity[nearest[k].position];
  }
  lists.core_distances[row] = core;
  const std::int64_t kept = std::min<std::int64_t>(count, lists.length);
  if (nearest != lists.of(row)) std::copy_n(nearest, kept, lists.of(row));
  lists.counts[row] = static_cast<std::int32_t>(kept);
  const double last = kept ? lists.of(row)[kept - 1].distance : 0;
  lists.radii[row] = all && kept == count ? std::numeric_limits<double>::infinity() : last;
}

}  // namespace mreach
