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

// The largest distance at which a pair can weigh `weight` or less: distance / alpha is rounded by a relative 2^-53,
// which search_bound covers, as it does the rounding of this product, and by half the smallest number where it is
// subnormal.
inline double weight_reach(double weight, double alpha) {
  return (weight + std::numeric_limits<double>::denorm_min()) * alpha;
}

// The lightest known edge of every component. It is changed under a lock and looked at without. A change stores the
// rows before the weight, a look takes the weight before the rows: what it sees is then never heavier than an edge
// that was the lightest, so it excludes nothing that a look under the lock would not.
class BestEdges {
 public:
  explicit BestEdges(std::int64_t n) : weight_(n), rows_(n) {}
  void clear(std::int32_t component) {
    rows_[component].store(UNKNOWN, std::memory_order_relaxed);
    weight_[component].store(std::numeric_limits<double>::infinity(), std::memory_order_release);
  }
  double weight(std::int32_t component) const { return weight_[component].load(std::memory_order_acquire); }
  bool known(std::int32_t component) const { return rows_[component].load(std::memory_order_relaxed) != UNKNOWN; }
  Edge edge(std::int32_t component) const {
    const double w = weight(component);
    const std::uint64_t rows = rows_[component].load(std::memory_order_relaxed);
    return {w, static_cast<std::int32_t>(rows >> 32), static_cast<std::int32_t>(rows & 0xffffffffu)};
  }
  // Whether an edge between these rows that weighs `weight` or more could still be the component's lightest.
  bool may_improve(std::int32_t component, const Edge& edge) const {
    const double best = weight(component);
    return edge.weight != best ? edge.weight < best
                               : pack(edge) < rows_[component].load(std::memory_order_relaxed);
  }
  // Keeps the lighter one. Returns whether it was the offered.
  bool offer(std::int32_t component, const Edge& edge) {
    if (!may_improve(component, edge)) return false;
    SpinLock::Hold hold(locks_[component % LOCKS]);
    if (!may_improve(component, edge)) return false;
    rows_[component].store(pack(edge), std::memory_order_relaxed);
    weight_[component].store(edge.weight, std::memory_order_release);
    return true;
  }

 private:
  static constexpr std::uint64_t UNKNOWN = ~std::uint64_t(0);  // above every pair of rows
  static std::uint64_t pack(const Edge& edge) {
    return static_cast<std::uint64_t>(edge.lower) << 32 | static_cast<std::uint32_t>(edge.higher);
  }
  std::vector<std::atomic<double>> weight_;
  std::vector<std::atomic<std::uint64_t>> rows_;
  SpinLock locks_[LOCKS];
};

}  // namespace mreach
