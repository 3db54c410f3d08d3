// Edges, their one order, and the lightest known one out of every component.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <vector>

#include "spin_lock.h"

namespace mreach {

constexpr int LOCKS = 4096;           // components share locks by number

struct Edge {
  double weight;
  std::int32_t lower, higher;  // the user's rows
};
inline bool operator<(const Edge& a, const Edge& b) {
  return a.weight < b.weight || (a.weight == b.weight && (a.lower < b.lower || (a.lower == b.lower && a.higher < b.higher)));
}

inline double edge_weight(double core_a, double core_b, double distance, double alpha) {
  return std::max(std::max(core_a, core_b), distance / alpha);
}

// The lightest known edge of every component. Weights are read without a lock: they only fall, so a stale one
// excludes less, never more.
class BestEdges {
 public:
  explicit BestEdges(std::int64_t n) : weight_(n), rows_(n) {}
  void clear(std::int32_t component) {
    weight_[component].store(std::numeric_limits<double>::infinity(), std::memory_order_relaxed);
    rows_[component] = {-1, -1};
  }
  double weight(std::int32_t component) const { return weight_[component].load(std::memory_order_relaxed); }
  bool known(std::int32_t component) const { return rows_[component].lower >= 0; }
  Edge edge(std::int32_t component) const {
    return {weight(component), rows_[component].lower, rows_[component].higher};
  }
  // Keeps the lighter one. Returns whether it was the offered.
  bool offer(std::int32_t component, const Edge& edge) {
    if (edge.weight > weight(component)) return false;
    SpinLock::Hold hold(locks_[component % LOCKS]);
    if (known(component) && !(edge < this->edge(component))) return false;
    rows_[component] = {edge.lower, edge.higher};
    weight_[component].store(edge.weight, std::memory_order_relaxed);
    return true;
  }
  // Whether an edge between these rows that weighs `weight` or more could still be the component's lightest.
  bool may_improve(std::int32_t component, double weight, std::int32_t lower, std::int32_t higher) {
    const double best = this->weight(component);
    if (weight != best) return weight < best;
    SpinLock::Hold hold(locks_[component % LOCKS]);
    return !known(component) || Edge{weight, lower, higher} < edge(component);
  }

 private:
  struct Rows {
    std::int32_t lower, higher;
  };
  std::vector<std::atomic<double>> weight_;
  std::vector<Rows> rows_;
  SpinLock locks_[LOCKS];
};

}  // namespace mreach
