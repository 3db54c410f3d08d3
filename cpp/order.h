// An order in which rows near in space are near in position, and whose leaves are panels.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels.h"
#include "workers.h"

namespace mreach {

constexpr int SPLIT_SAMPLE = 256;    // rows of a segment that its 2-means run on
constexpr int SPLIT_STEPS = 4;       // steps of that 2-means
constexpr int BOX_SAMPLE = 2048;     // rows of a segment that its widest side is measured on

class SpatialOrder {
 public:
  // coordinates: (n, width) float32. Few coordinates: cut the widest side of the box (k-d). Many: cut between the
  // two centres of a 2-means, which follows the data where no single side does.
  SpatialOrder(const float* coordinates, std::int64_t n, int width, bool two_means, Workers& workers)
      : coordinates_(coordinates), width_(width), two_means_(two_means), workers_(workers), keyed_(n), order_(n) {
    for (std::int64_t i = 0; i < n; ++i) order_[i] = static_cast<std::int32_t>(i);
    std::int64_t panels = (n + PANEL - 1) / PANEL, slots = 1;
    for (int doubling = 0; doubling < 62 && slots < panels; ++doubling) slots *= 2;
    std::vector<Segment> level{{0, n, slots}};
    // Segments of one level are independent; below ENOUGH_SEGMENTS of them each goes on by itself.
    const std::size_t enough = 8 * static_cast<std::size_t>(workers.size());
    for (int depth = 0; depth < 62 && !level.empty(); ++depth) {
      const bool to_the_leaves = level.size() >= enough || workers.size() == 1;
      std::vector<std::vector<Segment>> children(level.size());
      workers.run(static_cast<std::int64_t>(level.size()), 1, [&](std::int64_t begin, std::int64_t end, int thread) {
        for (std::int64_t s = begin; s < end; ++s) {
          std::vector<Segment> stack{level[s]};
          // Every split leaves two smaller segments: at most 2 * panels steps.
          for (std::int64_t step = 0; step <= 4 * slots && !stack.empty(); ++step) {
            const Segment segment = stack.back();
            stack.pop_back();
            Segment low, high;
            if (workers_.checkpoint(thread) || !split(segment, low, high)) continue;
            if (to_the_leaves) {
              if (high.end > high.begin) stack.push_back(high);
              stack.push_back(low);
            } else {
              children[s].push_back(low);
              if (high.end > high.begin) children[s].push_back(high);
            }
          }
        }
      });
      level.clear();
      for (auto& c : children) level.insert(level.end(), c.begin(), c.end());
    }
  }
  std::vector<std::int32_t> take() { return std::move(order_); }

 private:
  struct Segment {
    std::int64_t begin = 0, end = 0, slots = 0;  // slots: a power of two of panels, filled from the left
  };

  bool split(const Segment& s, Segment& low, Segment& high) {
    if (s.slots <= 1) return false;
    const std::int64_t middle = s.begin + s.slots / 2 * PANEL;
    low = {s.begin, std::min(middle, s.end), s.slots / 2};
    high = {std::min(middle, s.end), s.end, s.slots / 2};
    if (middle >= s.end) return true;
    if (two_means_) key_by_two_means(s);
    else key_by_widest_side(s);
    std::nth_element(keyed_.begin() + s.begin, keyed_.begin() + middle, keyed_.begin() + s.end);
    for (std::int64_t i = s.begin; i < s.end; ++i) order_[i] = keyed_[i].second;
    return true;
  }
  const float* point(std::int64_t position) const {
    return coordinates_ + static_cast<std::int64_t>(order_[position]) * width_;
  }
  void key_by_widest_side(const Segment& s) {
    const std::int64_t step = std::max<std::int64_t>(1, (s.end - s.begin) / BOX_SAMPLE);
    std::vector<float> low(width_, INFINITY), high(width_, -INFINITY);
    for (std::int64_t i = s.begin; i < s.end; i += step) {
      const float* x = point(i);
      for (int f = 0; f < width_; ++f) low[f] = std::min(low[f], x[f]), high[f] = std::max(high[f], x[f]);
    }
    int side = 0;
    for (int f = 1; f < width_; ++f)
      if (high[f] - low[f] > high[side] - low[side]) side = f;
    for (std::int64_t i = s.begin; i < s.end; ++i) keyed_[i] = {point(i)[side], order_[i]};
  }
  void key_by_two_means(const Segment& s) {
    const int w = width_;
    const std::int64_t m = s.end - s.begin;
    const int count = static_cast<int>(std::min<std::int64_t>(m, SPLIT_SAMPLE));
    std::vector<float> sample(static_cast<std::size_t>(count) * w), a(w, 0.f), b(w), direction(w);
    for (int i = 0; i < count; ++i) std::copy_n(point(s.begin + i * m / count), w, &sample[static_cast<std::size_t>(i) * w]);
    auto squared = [w](const float* x, const float* y) {
      float sum = 0;
      for (int f = 0; f < w; ++f) sum += (x[f] - y[f]) * (x[f] - y[f]);
      return sum;
    };
    auto farthest = [&](const float* x) {
      int best = 0;
      float most = -1;
      for (int i = 0; i < count; ++i) {
        const float d = squared(&sample[static_cast<std::size_t>(i) * w], x);
        if (d > most) most = d, best = i;
      }
      return &sample[static_cast<std::size_t>(best) * w];
    };
    for (int i = 0; i < count; ++i)
      for (int f = 0; f < w; ++f) a[f] += sample[static_cast<std::size_t>(i) * w + f] / static_cast<float>(count);
    std::copy_n(farthest(a.data()), w, a.begin());
    std::copy_n(farthest(a.data()), w, b.begin());
    std::vector<float> sum_a(w), sum_b(w);
    for (int step = 0; step < SPLIT_STEPS; ++step) {
      std::fill(sum_a.begin(), sum_a.end(), 0.f);
      std::fill(sum_b.begin(), sum_b.end(), 0.f);
      int in_a = 0, in_b = 0;
      for (int i = 0; i < count; ++i) {
        const float* x = &sample[static_cast<std::size_t>(i) * w];
        const bool to_b = squared(x, a.data()) > squared(x, b.data());
        float* sum = to_b ? sum_b.data() : sum_a.data();
        (to_b ? in_b : in_a)++;
        for (int f = 0; f < w; ++f) sum[f] += x[f];
      }
      if (!in_a || !in_b) break;
      for (int f = 0; f < w; ++f) a[f] = sum_a[f] / static_cast<float>(in_a), b[f] = sum_b[f] / static_cast<float>(in_b);
    }
    for (int f = 0; f < w; ++f) direction[f] = b[f] - a[f];
    for (std::int64_t i = s.begin; i < s.end; ++i) {
      const float* x = point(i);
      float key = 0;
      for (int f = 0; f < w; ++f) key += x[f] * direction[f];
      keyed_[i] = {key, order_[i]};
    }
  }

  const float* coordinates_;
  int width_;
  bool two_means_;
  Workers& workers_;
  std::vector<std::pair<float, std::int32_t>> keyed_;
  std::vector<std::int32_t> order_;
};

}  // namespace mreach
