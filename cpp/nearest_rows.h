// The fitted row of least mutual reachability distance to each new row, exact.
//
// New rows are put among the fitted ones and search like the rows of a fit, except that they meet fitted rows only:
// first for as many neighbours as the core distance needs, then, where the neighbours do not settle it, for the row
// of least (weight, distance, lexicographically smallest row, lowest number). A few new rows, or a search for a large
// share of all rows, look at every fitted row instead.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "best_edges.h"
#include "buffer.h"
#include "neighbors.h"
#include "new_rows.h"
#include "points.h"
#include "scan.h"
#include "workers.h"

namespace mreach {

constexpr std::int64_t FEW_NEW_ROWS = 32;            // up to here looking at all rows costs less than their order
constexpr int NEW_ROW_LIST_LENGTH = 8;               // neighbours of a new row at least: they settle most
constexpr double NEIGHBOR_PART = 0.6;                // of the time, as the progress bar shows it

// The search among points that hold fitted and new rows: the fitted ones come first in the numbering of `points`.
template <class Value>
class NewRowSearch {
 public:
  NewRowSearch(const NewRows<Value>& task, const Points<Value>& points, const Tuning& tuning, const Kernels& kernels,
               Workers& workers)
      : task_(task), points_(points), tuning_(tuning), kernels_(kernels), workers_(workers), n_copies_(points.n, 0),
        answer_(points.n, -1), core_(points.n, std::numeric_limits<double>::infinity()), fitted_(points.n_panels, 0),
        scans_(workers.size()) {
    const Collapsed& collapsed = points.collapsed;
    std::vector<std::int32_t> position(task.n_fitted + task.n_rows);
    for (std::size_t r = 0; r < collapsed.representatives.size(); ++r)
      position[collapsed.representatives[r]] = points.position_of_representative[r];
    for (std::size_t c = 0; c < collapsed.copy.size(); ++c)
      position[collapsed.copy[c]] = points.position_of_representative[collapsed.copy_of[c]];
    for (std::int64_t i = 0; i < task.n_fitted; ++i) {
      const std::int32_t p = position[i];
      n_distinct_ += n_copies_[p]++ == 0;
      fitted_[p / PANEL] |= 1u << (p % PANEL);
      if (answer_[p] >= 0 || !task.is_candidate(i)) continue;
      answer_[p] = static_cast<std::int32_t>(i);
      core_[p] = task.fitted_core[i];
    }
    describe_nodes();
    find_queries(position.data() + task.n_fitted);
  }

  void run() {
    std::vector<std::int32_t> open;
    if (task_.core_known) {
      for (std::size_t q = 0; q < queries_.size(); ++q) open.push_back(static_cast<std::int32_t>(q));
    } else {
      workers_.set_part(0, NEIGHBOR_PART);
      open = find_neighbors();
    }
    workers_.set_part(task_.core_known ? 0 : NEIGHBOR_PART, task_.core_known ? 1 : 1 - NEIGHBOR_PART);
    run_groups(open, [&](const std::int32_t* queries, int count, Scan<Value>& scan, int thread) {
      BestVisitor visitor(*this, scan, queries, count);
      scan.walk(visitor, [&] { return workers_.checkpoint(thread); });
    });
    workers_.set_part(0, 1);
    for (std::int64_t i = 0; i < task_.n_rows; ++i) {
      const Query& query = queries_[query_of_row_[i]];
      task_.core[i] = query.core;
      task_.answers[i] = query.best.row < 0 ? -1 : answer_[query.best.row];
      task_.weights[i] = query.best.weight;
    }
  }

  ScanCounts counts() const {
    ScanCounts sum;
    for (const auto& scan : scans_)
      if (scan) sum.add(scan->counts);
    return sum;
  }

 private:
  // New rows that are equal, with equal core distances, are one.
  struct Query {
    std::int32_t position;
    double core;
    BestRow best;  // by position
  };

  void find_queries(const std::int32_t* position) {
    std::vector<std::int32_t> order(task_.n_rows);
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
    auto core = [&](std::int32_t i) { return task_.core_known ? task_.core[i] : 0.0; };
    std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      return position[a] < position[b] || (position[a] == position[b] && core(a) < core(b));
    });
    query_of_row_.resize(order.size());
    for (std::int32_t i : order) {
      if (queries_.empty() || queries_.back().position != position[i] || queries_.back().core != core(i))
        queries_.push_back({position[i], core(i), {}});
      query_of_row_[i] = static_cast<std::int32_t>(queries_.size()) - 1;
    }
  }

  // Of the points below each node: whether one is fitted, whether one may be the answer, and their least core distance.
  void describe_nodes() {
    for (int level = 0; level < points_.tree.n_levels(); ++level) {
      nodes_.emplace_back(points_.tree.count[level]);
      for (std::int64_t node = 0; node < points_.tree.count[level]; ++node) {
        Node& here = nodes_[level][node];
        for (auto [c, end] = points_.tree.below(level, node); c < end; ++c) {
          const Node below = level > 0 ? nodes_[level - 1][c] : Node{n_copies_[c] > 0, answer_[c] >= 0, core_[c]};
          here.fitted |= below.fitted;
          here.candidate |= below.candidate;
          here.least_core = std::min(here.least_core, below.least_core);
        }
      }
    }
  }

  double bound_of(const Query& query) const {
    const BestRow& best = query.best;
    if (!tuning_.prune || best.row < 0) return std::numeric_limits<double>::infinity();
    // No weight is below the new row's core distance: at that weight only a nearer row is better.
    if (best.weight == query.core) return best.distance;
    return weight_reach(best.weight, task_.alpha);
  }
  bool offer(Query& query, std::int32_t position, double distance) const {
    const double weight = edge_weight(query.core, core_[position], distance, task_.alpha);
    return query.best.offer({weight, distance, position}, [&](std::int32_t p) { return points_.value(p); }, task_.n_features);
  }

  // Core distances, and the best row among the neighbours. Returns the queries that these do not settle.
  std::vector<std::int32_t> find_neighbors() {
    const std::int64_t n_nearest = std::min<std::int64_t>(n_distinct_, std::max<std::int64_t>(task_.min_samples, tuning_.min_list_length));
    std::vector<std::int32_t> all(queries_.size());
    for (std::size_t q = 0; q < all.size(); ++q) all[q] = static_cast<std::int32_t>(q);
    std::vector<char> settled(queries_.size(), 0);
    std::vector<Buffer<Neighbor>> storage(workers_.size());
    std::vector<std::vector<NearestHeap>> heaps(workers_.size());
    run_groups(all, [&](const std::int32_t* queries, int count, Scan<Value>& scan, int thread) {
      storage[thread].resize_discard(static_cast<std::size_t>(n_nearest) * GROUP_STRIDE);
      heaps[thread].resize(GROUP_STRIDE);
      for (int r = 0; r < count; ++r)
        heaps[thread][r].reset(&storage[thread][static_cast<std::size_t>(r) * n_nearest], static_cast<int>(n_nearest));
      NeighborVisitor visitor(*this, scan, queries, heaps[thread].data());
      visitor.look_near(n_nearest);
      scan.walk(visitor, [&] { return workers_.checkpoint(thread); });
      for (int r = 0; r < count && !workers_.checkpoint(thread); ++r)
        settled[queries[r]] = settle(queries_[queries[r]], heaps[thread][r]);
    });
    std::vector<std::int32_t> open;
    for (std::int32_t q : all)
      if (!settled[q] || !tuning_.prune) open.push_back(q);
    return open;
  }

  // Whether no row that is missing in the list can be the answer.
  bool settle(Query& query, NearestHeap& heap) const {
    const Neighbor* nearest = heap.sort();
    std::int64_t reached = 0;
    for (int k = 0; k < heap.size() && reached < task_.min_samples; ++k) {
      query.core = nearest[k].distance;
      reached += n_copies_[nearest[k].position];
    }
    for (int k = 0; k < heap.size(); ++k)
      if (answer_[nearest[k].position] >= 0) offer(query, nearest[k].position, nearest[k].distance);
    if (heap.size() == n_distinct_) return true;
    const double farthest = nearest[heap.size() - 1].distance;
    const double least = std::max(query.core, farthest / task_.alpha);
    return query.best.weight < least || (query.best.weight == least && query.best.distance < farthest);
  }

  // Calls work(queries, count, scan, thread) for groups of consecutive ones, placed in the thread's scan.
  template <class Work>
  void run_groups(const std::vector<std::int32_t>& queries, Work&& work) {
    const std::int64_t n = static_cast<std::int64_t>(queries.size());
    const std::int64_t stride = group_rows(tuning_, task_.n_features, n, workers_.size());
    workers_.run((n + stride - 1) / stride, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
      if (!scans_[thread]) scans_[thread] = std::make_unique<Scan<Value>>(points_, kernels_);
      for (std::int64_t g = begin; g < end; ++g) {
        const std::int32_t* first = queries.data() + g * stride;
        const int count = static_cast<int>(std::min(stride, n - g * stride));
        std::int32_t positions[GROUP_STRIDE];
        for (int r = 0; r < count; ++r) positions[r] = queries_[first[r]].position;
        scans_[thread]->group.build(positions, count);
        work(first, count, *scans_[thread], thread);
      }
    });
  }

  // The nearest fitted rows.
  class NeighborVisitor {
   public:
    NeighborVisitor(const NewRowSearch& search, Scan<Value>& scan, const std::int32_t* queries, NearestHeap* heaps)
        : search_(search), scan_(scan), queries_(queries), heaps_(heaps) {}

    // The panels around each row block, until they hold as many fitted rows as are asked for: every row has a finite
    // bound then.
    void look_near(std::int64_t n_nearest) {
      for (int b = 0; b < scan_.group.n_blocks; ++b) {
        const int middle = std::min(b * ROW_BLOCK + ROW_BLOCK / 2, scan_.group.n_rows - 1);
        const std::int64_t n_panels = search_.points_.n_panels;
        begin_[b] = position(middle) / PANEL;
        end_[b] = begin_[b] + 1;
        std::int64_t met = n_fitted(begin_[b]);
        for (std::int64_t step = 0; step < n_panels && met < n_nearest; ++step) {
          if (end_[b] < n_panels) met += n_fitted(end_[b]++);
          if (begin_[b] > 0) met += n_fitted(--begin_[b]);
        }
        for (std::int64_t panel = begin_[b]; panel < end_[b]; ++panel) scan_.visit(panel, *this, b, b + 1);
      }
      near_ = false;
    }
    bool node(int level, std::int64_t node) const { return search_.nodes_[level][node].fitted; }
    double node_bound(int, std::int64_t) const { return -1; }
    const float* column_bounds(std::int64_t) const { return scan_.no_column_bounds.values; }
    std::uint32_t columns(std::int64_t panel) const { return search_.fitted_[panel]; }
    void hits(int row, std::int64_t panel, std::uint32_t mask) {
      const int block = row / ROW_BLOCK;
      if (!near_ && panel >= begin_[block] && panel < end_[block]) return;  // seen
      bool fell = false;
      scan_.evaluate(position(row), panel, mask, [&](const std::int32_t* at, const double* distances, int count) {
        for (int k = 0; k < count; ++k) fell |= heaps_[row].offer({distances[k], at[k]});
      });
      if (fell && search_.tuning_.prune) scan_.group.set_bound(row, heaps_[row].bound());
    }

   private:
    std::int32_t position(int row) const { return search_.queries_[queries_[row]].position; }
    int n_fitted(std::int64_t panel) const { return __builtin_popcount(search_.fitted_[panel]); }

    const NewRowSearch& search_;
    Scan<Value>& scan_;
    const std::int32_t* queries_;
    NearestHeap* heaps_;
    std::int64_t begin_[MAX_BLOCKS], end_[MAX_BLOCKS];
    bool near_ = true;
  };

  // The best candidate.
  class BestVisitor {
   public:
    BestVisitor(NewRowSearch& search, Scan<Value>& scan, const std::int32_t* queries, int count)
        : search_(search), scan_(scan), queries_(queries), count_(count) {
      for (int r = 0; r < count; ++r) scan.group.set_bound(r, search.bound_of(query(r)));
      for (int b = 0; b < scan.group.n_blocks; ++b) scan.group.refresh(b);
    }
    bool node(int level, std::int64_t node) const {
      const Node& here = search_.nodes_[level][node];
      return here.candidate && !(search_.tuning_.prune && here.least_core > heaviest_);
    }
    double node_bound(int, std::int64_t) const { return -1; }
    const float* column_bounds(std::int64_t) const { return scan_.no_column_bounds.values; }
    std::uint32_t columns(std::int64_t panel) {
      if (improved_) {
        heaviest_ = 0;
        for (int r = 0; r < count_; ++r) heaviest_ = std::max(heaviest_, query(r).best.weight);
        improved_ = false;
      }
      std::uint32_t mask = 0;
      for (int c = 0; c < search_.points_.rows_in(panel); ++c) {
        const std::int64_t j = panel * PANEL + c;
        const bool heavy = search_.tuning_.prune && search_.core_[j] > heaviest_;
        mask |= static_cast<std::uint32_t>(search_.answer_[j] >= 0 && !heavy) << c;
      }
      return mask;
    }
    void hits(int row, std::int64_t panel, std::uint32_t mask) {
      Query& asking = query(row);
      std::uint32_t open = 0;
      for (; mask; mask &= mask - 1)
        if (!(search_.core_[panel * PANEL + lowest_bit(mask)] > asking.best.weight)) open |= mask & -mask;
      bool better = false;
      scan_.evaluate(asking.position, panel, open, [&](const std::int32_t* at, const double* distances, int count) {
        for (int k = 0; k < count; ++k) better |= search_.offer(asking, at[k], distances[k]);
      });
      if (better) scan_.group.set_bound(row, search_.bound_of(asking));
      improved_ |= better;
    }

   private:
    Query& query(int row) const { return search_.queries_[queries_[row]]; }

    NewRowSearch& search_;
    Scan<Value>& scan_;
    const std::int32_t* queries_;
    int count_;
    double heaviest_ = std::numeric_limits<double>::infinity();  // no row of the group has a worse one
    bool improved_ = true;
  };

  struct Node {
    bool fitted = false, candidate = false;
    double least_core = std::numeric_limits<double>::infinity();
  };

  const NewRows<Value>& task_;
  const Points<Value>& points_;
  const Tuning& tuning_;
  const Kernels& kernels_;
  Workers& workers_;
  // By position.
  std::vector<std::int32_t> n_copies_;  // fitted rows that it stands for
  std::vector<std::int32_t> answer_;    // the lowest of them that may be the answer, or -1
  std::vector<double> core_;
  std::vector<std::uint32_t> fitted_;   // of each panel: the points that stand for fitted rows
  std::vector<std::vector<Node>> nodes_;
  std::vector<Query> queries_;          // by position
  std::vector<std::int32_t> query_of_row_;
  std::vector<std::unique_ptr<Scan<Value>>> scans_;
  std::int64_t n_distinct_ = 0;         // fitted rows
};

// Fills in what the task asks for. few_rows: how many new rows look at all fitted ones; negative: chosen.
template <class Value>
ScanCounts find_nearest_rows(const NewRows<Value>& task, const Tuning& tuning, std::int64_t few_rows, const Kernels& kernels,
                             Workers& workers) {
  DefaultFloatEnvironment environment;
  const bool few = task.n_rows <= (few_rows < 0 ? FEW_NEW_ROWS : few_rows);
  const double whole = tuning.whole_share * static_cast<double>(task.n_fitted);
  if (few || (!task.core_known && static_cast<double>(task.min_samples) > whole)) {
    look_at_all_fitted_rows(task, kernels, workers);
    return {};
  }
  const std::int64_t width = task.n_features;
  Buffer<Value> together((task.n_fitted + task.n_rows) * width);
  std::copy_n(task.fitted, task.n_fitted * width, together.data());
  std::copy_n(task.rows, task.n_rows * width, together.data() + task.n_fitted * width);
  const Points<Value> points(together.data(), task.n_fitted + task.n_rows, task.n_features, task.measure, workers);
  together.release();
  NewRowSearch<Value> search(task, points, tuning, kernels, workers);
  search.run();
  return search.counts();
}

}  // namespace mreach
