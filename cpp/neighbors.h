// k nearest distinct rows of every row, exact, and from them the core distances.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "scan.h"

namespace mreach {

constexpr int MIN_LIST_LENGTH = 32;    // listed neighbours at least: most tree edges are among them
constexpr int MAX_LIST_LENGTH = 256;   // listed neighbours at most: the memory budget of a row (12 bytes each)
constexpr double WHOLE_SHARE = 0.25;   // asking for more than this share of all rows: look at all of them

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
  Buffer<double> distances;          // (n, length)
  Buffer<std::int32_t> positions;    // (n, length)
  Buffer<std::int32_t> counts;       // (n) entries used
  Buffer<double> radii;              // (n) every row nearer than this is listed; infinity: all rows are
  Buffer<double> core_distances;     // (n)
};

struct Tuning {
  bool prune = true;                         // false: nothing is ever excluded (for tests)
  int min_list_length = MIN_LIST_LENGTH;
  int max_list_length = MAX_LIST_LENGTH;
  double whole_share = WHOLE_SHARE;
  int group_blocks = 0;                      // row blocks of a group; 0: chosen from the number of features
};

inline int group_rows(const Tuning& tuning, int n_features) {
  const int blocks = tuning.group_blocks > 0 ? std::min(tuning.group_blocks, MAX_BLOCKS)
                     : n_features <= LOW_DIMENSION ? 1
                                                   : MAX_BLOCKS;
  return blocks * ROW_BLOCK;
}

// The nearest rows met so far: a heap with the farthest on top.
class NearestHeap {
 public:
  void reset(Neighbor* storage, int capacity) {
    heap_ = storage;
    capacity_ = capacity;
    size_ = 0;
  }
  bool full() const { return size_ == capacity_; }
  int size() const { return size_; }
  double bound() const { return full() ? heap_[0].distance : std::numeric_limits<double>::infinity(); }
  // Returns whether the bound may have fallen.
  bool offer(Neighbor neighbor) {
    if (!full()) {
      heap_[size_++] = neighbor;
      std::push_heap(heap_, heap_ + size_);
      return full();
    }
    if (!(neighbor < heap_[0])) return false;
    int hole = 0;
    for (int child = 1; child < size_; child = 2 * hole + 1) {
      if (child + 1 < size_ && heap_[child] < heap_[child + 1]) ++child;
      if (!(neighbor < heap_[child])) break;
      heap_[hole] = heap_[child];
      hole = child;
    }
    heap_[hole] = neighbor;
    return true;
  }
  Neighbor* sort() {
    std::sort_heap(heap_, heap_ + size_);
    return heap_;
  }

 private:
  Neighbor* heap_ = nullptr;
  int capacity_ = 0, size_ = 0;
};

template <class Value>
class NearestVisitor {
 public:
  NearestVisitor(const Points<Value>& points, Scan<Value>& scan, const Tuning& tuning, int n_nearest)
      : points_(points), scan_(scan), tuning_(tuning), n_nearest_(n_nearest) {
    storage_.resize_discard(static_cast<std::size_t>(n_nearest) * GROUP_STRIDE);
  }
  void start(std::int64_t first, int count) {
    first_ = first;
    first_panel_ = first / PANEL;
    last_panel_ = (first + count - 1) / PANEL;
    for (int r = 0; r < count; ++r) heaps[r].reset(&storage_[static_cast<std::size_t>(r) * n_nearest_], n_nearest_);
  }
  // Its own panels first: they hold near rows, and give every row a finite bound.
  void visit_own_panels() {
    own_ = true;
    for (std::int64_t panel = first_panel_; panel <= last_panel_; ++panel) scan_.visit(panel, *this);
    own_ = false;
  }
  bool node(int, std::int64_t) const { return true; }
  std::uint32_t columns(std::int64_t panel) const {
    return own_ || panel < first_panel_ || panel > last_panel_ ? 0xffffffffu : 0u;
  }
  void hits(int row, std::int64_t panel, std::uint32_t mask) {
    const std::int64_t self = first_ + row, base = panel * PANEL;
    if (self >= base && self < base + PANEL) mask &= ~(1u << (self - base));
    const Value* x = points_.value(self);
    NearestHeap& heap = heaps[row];
    bool fell = false;
    for (int guard = 0; guard < PANEL && mask; guard += 1) {
      std::int32_t at[EXACT_LANES];
      const Value* candidates[EXACT_LANES];
      double distances[EXACT_LANES];
      int count = 0;
      for (; count < EXACT_LANES && mask; mask &= mask - 1) {
        at[count] = static_cast<std::int32_t>(base + lowest_bit(mask));
        candidates[count] = points_.value(at[count]);
        ++count;
      }
      exact_distances(scan_.kernels(), x, candidates, count, points_.n_features(), distances);
      scan_.counts.exact += count;
      for (int k = 0; k < count; ++k) fell |= heap.offer({distances[k], at[k]});
    }
    if (fell && tuning_.prune) scan_.group.set_bound(row, heap.bound());
  }

  NearestHeap heaps[GROUP_STRIDE];

 private:
  const Points<Value>& points_;
  Scan<Value>& scan_;
  const Tuning& tuning_;
  Buffer<Neighbor> storage_;
  int n_nearest_;
  std::int64_t first_ = 0, first_panel_ = 0, last_panel_ = 0;
  bool own_ = false;
};

// Stores the sorted nearest rows of one row and its core distance. `all`: they are all the other rows.
template <class Value>
void store_neighbors(const Points<Value>& points, std::int64_t row, const Neighbor* nearest, std::int64_t count, bool all,
                     std::int64_t min_samples, NeighborLists& lists) {
  std::int64_t reached = points.multiplicity[row];  // the point itself and its copies come first
  double core = 0;
  for (std::int64_t k = 0; k < count && reached < min_samples; ++k) {
    core = nearest[k].distance;
    reached += points.multiplicity[nearest[k].position];
  }
  lists.core_distances[row] = core;
  const std::int64_t kept = std::min<std::int64_t>(count, lists.length);
  for (std::int64_t k = 0; k < kept; ++k) {
    lists.distances[row * lists.length + k] = nearest[k].distance;
    lists.positions[row * lists.length + k] = nearest[k].position;
  }
  lists.counts[row] = static_cast<std::int32_t>(kept);
  lists.radii[row] = all && kept == count ? std::numeric_limits<double>::infinity() : kept ? nearest[kept - 1].distance : 0;
}

// min_samples counts the point itself. Needs 1 <= min_samples <= number of rows, copies included.
template <class Value>
void find_neighbors(const Points<Value>& points, std::int64_t min_samples, const Tuning& tuning, const Kernels& kernels,
                    Workers& workers, NeighborLists& lists, std::vector<ScanCounts>& counts) {
  const std::int64_t n = points.n;
  // One more than min_samples - 1 others: then the list provably goes beyond the core distance wherever its last
  // distance is strictly greater.
  const std::int64_t wanted = std::min<std::int64_t>(n - 1, std::max<std::int64_t>(min_samples, tuning.min_list_length));
  lists.length = static_cast<int>(std::min<std::int64_t>(wanted, tuning.max_list_length));
  lists.distances.resize_discard(n * lists.length);
  lists.positions.resize_discard(n * lists.length);
  lists.counts.resize_discard(n);
  lists.radii.resize_discard(n);
  lists.core_distances.resize_discard(n);
  counts.assign(workers.size(), ScanCounts{});
  if (static_cast<double>(wanted) > tuning.whole_share * static_cast<double>(n)) {
    workers.run(n, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
      std::vector<Neighbor> others(n > 1 ? n - 1 : 0);
      for (std::int64_t row = begin; row < end && !workers.checkpoint(thread); ++row) {
        std::int64_t count = 0;
        for (std::int64_t p = 0; p < n; p += EXACT_LANES) {
          const Value* candidates[EXACT_LANES];
          double distances[EXACT_LANES];
          const int width = static_cast<int>(std::min<std::int64_t>(EXACT_LANES, n - p));
          for (int k = 0; k < width; ++k) candidates[k] = points.value(p + k);
          exact_distances(kernels, points.value(row), candidates, width, points.n_features(), distances);
          for (int k = 0; k < width; ++k)
            if (p + k != row) others[count++] = {distances[k], static_cast<std::int32_t>(p + k)};
        }
        std::partial_sort(others.begin(), others.begin() + wanted, others.end());
        store_neighbors(points, row, others.data(), wanted, wanted == n - 1, min_samples, lists);
      }
    });
    return;
  }
  const int stride = group_rows(tuning, points.n_features());
  const std::int64_t groups = (n + stride - 1) / stride;
  std::vector<std::unique_ptr<Scan<Value>>> scans(workers.size());
  std::vector<std::unique_ptr<NearestVisitor<Value>>> visitors(workers.size());
  workers.run(groups, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
    if (!scans[thread]) {
      scans[thread] = std::make_unique<Scan<Value>>(points, kernels);
      visitors[thread] = std::make_unique<NearestVisitor<Value>>(points, *scans[thread], tuning, static_cast<int>(wanted));
    }
    Scan<Value>& scan = *scans[thread];
    NearestVisitor<Value>& visitor = *visitors[thread];
    for (std::int64_t g = begin; g < end; ++g) {
      const std::int64_t first = g * stride;
      const int count = static_cast<int>(std::min<std::int64_t>(stride, n - first));
      std::int32_t positions[GROUP_STRIDE];
      for (int r = 0; r < count; ++r) positions[r] = static_cast<std::int32_t>(first + r);
      scan.group.build(positions, count);
      visitor.start(first, count);
      visitor.visit_own_panels();
      scan.walk(visitor, [&] { return workers.checkpoint(thread); });
      if (workers.checkpoint(thread)) return;
      for (int r = 0; r < count; ++r) {
        NearestHeap& heap = visitor.heaps[r];
        store_neighbors(points, first + r, heap.sort(), heap.size(), heap.size() == n - 1, min_samples, lists);
      }
    }
    counts[thread] = scan.counts;
  });
}

}  // namespace mreach
