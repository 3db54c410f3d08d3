// The k nearest distinct rows of every row, exact.
//
// Three ways, one result. A row that asks for a large share of all rows looks at all of them. Otherwise each group of
// rows searches the tree of panels for itself; or, where a pass over most pairs is due anyway (many features), each
// group first looks near itself only, which gives every row a bound close to its final one, and then one pass
// evaluates each pair once for both of its rows.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "neighbors.h"
#include "scan.h"
#include "spin_lock.h"

namespace mreach {

constexpr double NEAR_PART = 0.1;              // of the time, as the progress bar shows it
constexpr int MAX_SYMMETRIC_NEAREST = 64;      // beyond it the heaps of all rows at once cost too much memory
constexpr int MIN_SYMMETRIC_FEATURES = 12;     // with fewer, boxes exclude most pairs and a search of one's own is cheaper
constexpr std::int64_t MIN_SYMMETRIC_PANELS = 3 * NEAR_PANELS;

// A group's own search: its hits serve its rows alone.
template <class Value>
class NearestVisitor {
 public:
  NearestVisitor(const Points<Value>& points, Scan<Value>& scan, const Tuning& tuning)
      : points_(points), scan_(scan), tuning_(tuning) {}

  // heaps[r]: of row first + r.
  void start(std::int64_t first, int count, NearestHeap* heaps) {
    first_ = first;
    first_panel_ = first / PANEL;
    last_panel_ = (first + count - 1) / PANEL;
    heaps_ = heaps;
  }
  // Its own panels first, and of them the one each row block lies in: that gives every row a finite bound.
  void visit_own_panels() {
    own_ = true;
    for (int b = 0; b < scan_.group.n_blocks; ++b) scan_.visit(panel_of_block(b), *this, b, b + 1);
    first_look_ = false;
    for (std::int64_t panel = first_panel_; panel <= last_panel_; ++panel) scan_.visit(panel, *this);
    first_look_ = true;
    own_ = false;
  }
  bool node(int, std::int64_t) const { return true; }
  double node_bound(int, std::int64_t) const { return -1; }
  const float* column_bounds(std::int64_t) const { return scan_.no_column_bounds.values; }
  std::uint32_t columns(std::int64_t panel) const {
    return own_ || panel < first_panel_ || panel > last_panel_ ? 0xffffffffu : 0u;
  }
  void hits(int row, std::int64_t panel, std::uint32_t mask) {
    if (own_ && !first_look_ && panel == panel_of_block(row / ROW_BLOCK)) return;  // seen
    const std::int64_t self = first_ + row, base = panel * PANEL;
    if (self >= base && self < base + PANEL) mask &= ~(1u << (self - base));
    bool fell = false;
    scan_.evaluate(self, panel, mask, [&](const std::int32_t* at, const double* distances, int count) {
      for (int k = 0; k < count; ++k) fell |= heaps_[row].offer({distances[k], at[k]});
    });
    if (fell && tuning_.prune) scan_.group.set_bound(row, heaps_[row].bound());
  }

 private:
  std::int64_t panel_of_block(int block) const {
    const int middle = std::min(block * ROW_BLOCK + ROW_BLOCK / 2, scan_.group.n_rows - 1);
    return (first_ + middle) / PANEL;
  }

  const Points<Value>& points_;
  Scan<Value>& scan_;
  const Tuning& tuning_;
  NearestHeap* heaps_ = nullptr;
  std::int64_t first_ = 0, first_panel_ = 0, last_panel_ = 0;
  bool own_ = false, first_look_ = true;
};

// The heaps of all rows and the bounds that follow from them. A panel's are changed under its lock and read without:
// bounds only fall, and an old one excludes less.
template <class Value>
class SharedHeaps {
 public:
  SharedHeaps(const Points<Value>& points, int n_nearest, Neighbor* storage)
      : heaps(points.n), points_(points), sums_(points.n_panels * PANEL), distances_(points.n),
        locks_(points.n_panels) {
    for (std::int64_t i = 0; i < points.n; ++i) heaps[i].reset(storage + i * n_nearest, n_nearest);
    for (auto& sum : sums_) sum.store(FLT_MAX, std::memory_order_relaxed);  // stays so beyond the last row
    for (std::int64_t count : points.tree.count) bounds_.emplace_back(count);
  }
  // After the rows of all panels have looked near themselves.
  void set_all_bounds(Workers& workers) {
    workers.run(points_.n_panels, 64, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t panel = begin; panel < end; ++panel) {
        for (int c = 0; c < points_.rows_in(panel); ++c) set_bound(panel * PANEL + c);
        refresh(panel);
      }
    });
    for (int level = 1; level < points_.tree.n_levels(); ++level)
      for (std::int64_t node = 0; node < points_.tree.count[level]; ++node) {
        double most = -1;
        for (auto [c, end] = points_.tree.below(level, node); c < end; ++c)
          most = std::max(most, bound(level - 1, c));
        bounds_[level][node].store(most, std::memory_order_relaxed);
      }
  }
  double bound(int level, std::int64_t node) const { return bounds_[level][node].load(std::memory_order_relaxed); }
  void copy_sums(std::int64_t panel, float* sums) const {
    for (int c = 0; c < PANEL; ++c) sums[c] = sums_[panel * PANEL + c].load(std::memory_order_relaxed);
  }
  FilterBound row_bound(std::int64_t row) const { return filter_bound(points_.measure, distance(row), points_.scale()); }

  // Offers rows to one row. Returns whether its bound fell.
  bool offer(std::int64_t row, const std::int32_t* positions, const double* distances, int count) {
    const double farthest = distance(row);
    if (!std::any_of(distances, distances + count, [&](double d) { return d <= farthest; })) return false;
    const std::int64_t panel = row / PANEL;
    SpinLock::Hold hold(locks_[panel]);
    bool fell = false;
    for (int k = 0; k < count; ++k) {
      const Neighbor neighbor{distances[k], positions[k]};
      // A pair may have met before, when the row looked near itself.
      if (heaps[row].takes(neighbor) && !heaps[row].holds(positions[k])) fell |= heaps[row].offer(neighbor);
    }
    if (fell) {
      const bool was_largest = row_bound(row).squared >= bound(0, panel);
      set_bound(row);
      if (was_largest) refresh(panel);
    }
    return fell;
  }

  std::vector<NearestHeap> heaps;

 private:
  double distance(std::int64_t row) const { return distances_[row].load(std::memory_order_relaxed); }
  void set_bound(std::int64_t row) {
    distances_[row].store(heaps[row].bound(), std::memory_order_relaxed);
    sums_[row].store(row_bound(row).sum, std::memory_order_relaxed);
  }
  void refresh(std::int64_t panel) {
    double most = 0;
    for (int c = 0; c < points_.rows_in(panel); ++c) most = std::max(most, distance(panel * PANEL + c));
    bounds_[0][panel].store(filter_bound(points_.measure, most, points_.scale()).squared, std::memory_order_relaxed);
  }

  const Points<Value>& points_;
  std::vector<std::atomic<float>> sums_;       // FilterBound::sum of every row
  std::vector<std::atomic<double>> distances_; // the bound it comes from
  std::vector<SpinLock> locks_;
  std::vector<std::vector<std::atomic<double>>> bounds_;  // per level: FilterBound::squared, the largest below
};

// The pass over all pairs of different groups: a group meets the panels after its own, for both sides.
template <class Value>
class PairVisitor {
 public:
  PairVisitor(const Points<Value>& points, Scan<Value>& scan, SharedHeaps<Value>& shared)
      : points_(points), scan_(scan), shared_(shared) {}

  void start(std::int64_t first, int count) {
    first_ = first;
    last_panel_ = (first + count - 1) / PANEL;
    for (int r = 0; r < count; ++r) scan_.group.set_bound(r, shared_.row_bound(first + r));
    for (int b = 0; b < scan_.group.n_blocks; ++b) scan_.group.refresh(b);
  }
  bool node(int level, std::int64_t node) const {
    std::int64_t last = node;
    for (int l = 0; l < level; ++l) last = last * FANOUT + FANOUT - 1;
    return last > last_panel_;
  }
  double node_bound(int level, std::int64_t node) const { return shared_.bound(level, node); }
  const float* column_bounds(std::int64_t panel) {
    shared_.copy_sums(panel, column_bounds_);
    return column_bounds_;
  }
  std::uint32_t columns(std::int64_t panel) const { return panel > last_panel_ ? 0xffffffffu : 0u; }
  void hits(int row, std::int64_t panel, std::uint32_t mask) {
    const std::int64_t self = first_ + row;
    const std::int32_t position = static_cast<std::int32_t>(self);
    scan_.evaluate(self, panel, mask, [&](const std::int32_t* at, const double* distances, int count) {
      if (shared_.offer(self, at, distances, count)) scan_.group.set_bound(row, shared_.row_bound(self));
      for (int k = 0; k < count; ++k) shared_.offer(at[k], &position, &distances[k], 1);
    });
  }

 private:
  const Points<Value>& points_;
  Scan<Value>& scan_;
  SharedHeaps<Value>& shared_;
  alignas(64) float column_bounds_[PANEL];
  std::int64_t first_ = 0, last_panel_ = 0;
};

// The search of all rows for `n_nearest` others. min_samples counts the point itself.
template <class Value>
class NearestSearch {
 public:
  NearestSearch(const Points<Value>& points, std::int64_t min_samples, const Tuning& tuning, const Kernels& kernels,
                Workers& workers, NeighborLists& lists)
      : points_(points), tuning_(tuning), kernels_(kernels), workers_(workers), lists_(lists),
        min_samples_(min_samples), stride_(group_rows(tuning, points.n_features(), points.n, workers.size())),
        n_groups_((points.n + stride_ - 1) / stride_), scans_(workers.size()) {
    const std::int64_t n = points.n;
    // One more than min_samples - 1 others: then the list provably goes beyond the core distance wherever its last
    // distance is strictly greater.
    n_nearest_ = std::min<std::int64_t>(n - 1, std::max<std::int64_t>(min_samples, tuning.min_list_length));
    lists.length = static_cast<int>(std::min<std::int64_t>(n_nearest_, tuning.max_list_length));
    lists.entries.resize_discard(n * lists.length);
    lists.counts.resize_discard(n);
    lists.radii.resize_discard(n);
    lists.core_distances.resize_discard(n);
  }

  void run() {
    const bool fits = n_nearest_ <= std::min(MAX_SYMMETRIC_NEAREST, lists_.length) && stride_ % PANEL == 0 && tuning_.prune;
    const bool pays = points_.n_features() >= MIN_SYMMETRIC_FEATURES && points_.n_panels >= MIN_SYMMETRIC_PANELS;
    const double whole = tuning_.whole_share * static_cast<double>(points_.n);
    if (n_nearest_ == 0 || static_cast<double>(n_nearest_) > whole) look_at_all_rows();
    else if (fits && (tuning_.symmetric < 0 ? pays : tuning_.symmetric > 0)) search_pairs();
    else search_by_group();
  }

  ScanCounts counts() const {
    ScanCounts sum;
    for (const auto& scan : scans_)
      if (scan) sum.add(scan->counts);
    return sum;
  }

 private:
  void look_at_all_rows() {
    const std::int64_t n = points_.n;
    workers_.run(n, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
      std::vector<Neighbor> others(n > 1 ? n - 1 : 0);
      for (std::int64_t row = begin; row < end && !workers_.checkpoint(thread); ++row) {
        std::int64_t count = 0;
        for (std::int64_t p = 0; p < n; p += EXACT_LANES) {
          const Value* candidates[EXACT_LANES];
          double distances[EXACT_LANES];
          const int width = static_cast<int>(std::min<std::int64_t>(EXACT_LANES, n - p));
          for (int k = 0; k < width; ++k) candidates[k] = points_.value(p + k);
          exact_distances(kernels_, points_.measure, points_.value(row), candidates, width, points_.n_features(), distances);
          for (int k = 0; k < width; ++k)
            if (p + k != row) others[count++] = {distances[k], static_cast<std::int32_t>(p + k)};
        }
        rank(others);
        store_neighbors(points_, row, others.data(), n_nearest_, n_nearest_ == n - 1, min_samples_, lists_);
      }
    });
  }

  // Brings to their places the entries that store_neighbors reads: the listed ones and, where every row counts once,
  // the one that the core distance is.
  void rank(std::vector<Neighbor>& others) const {
    const auto begin = others.begin(), nearest = begin + n_nearest_;
    if (points_.collapsed.copy.empty()) {
      if (nearest != others.end()) std::nth_element(begin, nearest, others.end());
      const auto listed = begin + lists_.length, core = begin + (min_samples_ > 2 ? min_samples_ - 2 : 0);
      if (listed != nearest) std::nth_element(begin, listed, nearest);
      std::sort(begin, listed);
      if (core > listed && core < nearest) std::nth_element(listed, core, nearest);
    } else {
      std::partial_sort(begin, nearest, others.end());
    }
  }

  void search_by_group() {
    std::vector<Buffer<Neighbor>> storage(workers_.size());
    std::vector<std::vector<NearestHeap>> heaps(workers_.size());
    run_groups([&](std::int64_t first, int count, int thread) {
      Scan<Value>& scan = *scans_[thread];
      heaps[thread].resize(GROUP_STRIDE);
      storage[thread].resize_discard(static_cast<std::size_t>(n_nearest_) * GROUP_STRIDE);
      for (int r = 0; r < count; ++r)
        heaps[thread][r].reset(&storage[thread][static_cast<std::size_t>(r) * n_nearest_], static_cast<int>(n_nearest_));
      NearestVisitor<Value> visitor(points_, scan, tuning_);
      visitor.start(first, count, heaps[thread].data());
      visitor.visit_own_panels();
      scan.walk(visitor, [&] { return workers_.checkpoint(thread); });
      if (!workers_.checkpoint(thread))
        for (int r = 0; r < count; ++r) store(first + r, heaps[thread][r]);
    });
  }

  void search_pairs() {
    SharedHeaps<Value> shared(points_, static_cast<int>(n_nearest_), lists_.entries.data());
    workers_.set_part(0, NEAR_PART);
    run_groups([&](std::int64_t first, int count, int thread) {
      NearestVisitor<Value> visitor(points_, *scans_[thread], tuning_);
      visitor.start(first, count, &shared.heaps[first]);
      visitor.visit_own_panels();
      int left = tuning_.near_panels;
      scans_[thread]->walk(visitor, [&] { return --left < 0 || workers_.checkpoint(thread); });
    });
    shared.set_all_bounds(workers_);
    workers_.set_part(NEAR_PART, 1 - NEAR_PART);
    run_groups([&](std::int64_t first, int count, int thread) {
      PairVisitor<Value> visitor(points_, *scans_[thread], shared);
      visitor.start(first, count);
      scans_[thread]->walk(visitor, [&] { return workers_.checkpoint(thread); });
    });
    workers_.set_part(0, 1);
    workers_.run(points_.n, 256, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) store(i, shared.heaps[i]);
    });
  }

  // Calls work(first row, number of rows, thread) for every group of consecutive rows, placed in the thread's scan.
  template <class Work>
  void run_groups(Work&& work) {
    workers_.run(n_groups_, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
      if (!scans_[thread]) scans_[thread] = std::make_unique<Scan<Value>>(points_, kernels_);
      for (std::int64_t g = begin; g < end; ++g) {
        const std::int64_t first = g * stride_;
        const int count = static_cast<int>(std::min<std::int64_t>(stride_, points_.n - first));
        std::int32_t positions[GROUP_STRIDE];
        for (int r = 0; r < count; ++r) positions[r] = static_cast<std::int32_t>(first + r);
        scans_[thread]->group.build(positions, count);
        work(first, count, thread);
      }
    });
  }
  void store(std::int64_t row, NearestHeap& heap) {
    store_neighbors(points_, row, heap.sort(), heap.size(), heap.size() == points_.n - 1, min_samples_, lists_);
  }

  const Points<Value>& points_;
  const Tuning& tuning_;
  const Kernels& kernels_;
  Workers& workers_;
  NeighborLists& lists_;
  std::int64_t min_samples_, n_nearest_ = 0, stride_, n_groups_;
  std::vector<std::unique_ptr<Scan<Value>>> scans_;
};

}  // namespace mreach
