// From the sorted edges of the spanning tree to its clusters of at least min_cluster_size points, bottom up and
// canonically: all edges of one weight are merged at once, so that no choice between equal edges can change them.
//
// A part is a component of the edges below a height; it is large from min_cluster_size points on. Where parts join:
// no large one: they become a large one, a new cluster, once they are enough; one: its cluster goes on; more: a new
// cluster, their parent. Points of small parts leave the cluster there, as seen from the top. Everything is O(n).
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "buffer.h"
#include "linkage.h"
#include "records.h"
#include "union_find.h"

namespace mreach {

struct Cluster {
  std::int32_t parent, size;    // size: of the part that breaks away from the parent; all points for the root
  std::int32_t smallest;        // smallest point
  std::int32_t n_points;        // that leave the cluster itself, and not one of its children
  std::int32_t bottom, bottom_size;  // the departure that everything left takes part in, and how many points that is
  std::int32_t sibling;         // another child of the parent, -1 ends
  double birth_height;          // infinity for the root
};

// Points from `first_point` to the next departure's leave a cluster. Where it breaks up, the points of its children
// leave it, too.
struct Departure {
  double height;
  std::int32_t cluster, first_point;
};

struct Hierarchy {
  std::int32_t n = 0, n_departures = 0;
  std::vector<Cluster> clusters;   // children before their parent, the root last
  Buffer<Departure> departures;    // in ascending height
  Buffer<std::int32_t> points;     // in the order of the departures
};

class HierarchyBuilder {
 public:
  // edges: n - 1 of them in ascending weight; n > 1.
  HierarchyBuilder(const EdgeRecord* edges, std::int32_t n, std::int64_t min_cluster_size)
      : edges_(edges), n_(n), min_size_(static_cast<std::int32_t>(std::min<std::int64_t>(min_cluster_size, n))),
        parent_(n), link_(n) {
    out_.n = n;
    out_.departures.resize_discard(n);
    out_.points.resize_discard(n);
    parent_.fill(-1);
  }

  Hierarchy build() {
    for (std::int32_t e = 0; e < n_ - 1;) {
      prefetch_ends(edges_, e, n_ - 1, parent_.data());
      if (e + 1 < n_ - 1 && edges_[e + 1].weight == edges_[e].weight) {
        e = merge_equal_edges(e);
      } else {
        merge(edges_[e]);
        ++e;
      }
    }
    out_.clusters.back().size = n_;
    return std::move(out_);
  }

 private:
  // Parts joined by edges of one weight.
  struct Joined {
    std::int32_t root, size;
    std::int32_t small, n_small;           // a point of the small parts (-1: there are none); how many points they are
    std::int32_t n_large, cluster, last;   // the large parts' clusters, chained by `sibling`
  };

  std::int32_t find(std::int64_t i) { return find_root(parent_.data(), static_cast<std::int32_t>(i)); }

  // An edge that no other equals joins two parts.
  void merge(const EdgeRecord& edge) {
    std::int32_t x = find(edge.source), y = find(edge.target);
    if (parent_[x] > parent_[y]) std::swap(x, y);
    const std::int32_t size_x = -parent_[x], size_y = -parent_[y], size = size_x + size_y;
    parent_[y] = x;
    parent_[x] = -size;
    if (size < min_size_) {
      chain(x, size_x, y, size_y);
    } else if (size_y >= min_size_) {
      const std::int32_t a = link_[x], b = link_[y];
      out_.clusters[a].size = size_x;
      out_.clusters[b].size = size_y;
      out_.clusters[a].sibling = b;
      link_[x] = open_cluster(a, size, edge.weight);
      depart(link_[x], edge.weight);
    } else {
      if (size_x < min_size_) {
        const std::int32_t cluster = open_cluster(-1, size, edge.weight);
        depart(cluster, edge.weight);
        leave(cluster, x, size_x);
        link_[x] = cluster;
      } else {
        depart(link_[x], edge.weight);
      }
      leave(link_[x], y, size_y);
    }
  }

  // Joins the points of two small parts into one ring of links. A point alone has no link yet.
  void chain(std::int32_t x, std::int32_t size_x, std::int32_t y, std::int32_t size_y) {
    if (size_x == 1) link_[x] = x;
    if (size_y == 1) link_[y] = y;
    std::swap(link_[x], link_[y]);
  }

  void depart(std::int32_t cluster, double height) {
    out_.departures[out_.n_departures++] = {height, cluster, n_left_};
  }
  // Adds the points of a small part to the last departure.
  void leave(std::int32_t cluster, std::int32_t point, std::int32_t count) {
    Cluster& left = out_.clusters[cluster];
    std::int32_t* points = out_.points.data() + n_left_;
    left.n_points += count;
    n_left_ += count;
    std::int32_t smallest = std::min(left.smallest, point);
    points[0] = point;
    for (std::int32_t i = 1; i < count; ++i) {
      point = link_[point];
      smallest = std::min(smallest, point);
      points[i] = point;
    }
    left.smallest = smallest;
  }
  // A new cluster; its next departure is its lowest. `child` is the first of its children, or -1.
  std::int32_t open_cluster(std::int32_t child, std::int32_t size, double height) {
    const std::int32_t cluster = static_cast<std::int32_t>(out_.clusters.size());
    std::int32_t smallest = n_;
    for (; child >= 0; child = out_.clusters[child].sibling) {
      out_.clusters[child].parent = cluster;
      out_.clusters[child].birth_height = height;
      smallest = std::min(smallest, out_.clusters[child].smallest);
    }
    out_.clusters.push_back({-1, size, smallest, 0, out_.n_departures, size, -1, std::numeric_limits<double>::infinity()});
    return cluster;
  }

  // Merges the edges from `begin` on that weigh the same; returns where they end.
  std::int32_t merge_equal_edges(std::int32_t begin) {
    const double height = edges_[begin].weight;
    joined_.clear();
    std::int32_t e = begin;
    for (; e < n_ - 1 && edges_[e].weight == height; ++e) {
      prefetch_ends(edges_, e, n_ - 1, parent_.data());
      join(find(edges_[e].source), find(edges_[e].target));
    }
    for (const Joined& joined : joined_)
      if (joined.root >= 0) close(joined, height);
    return e;
  }

  // While edges of one weight are merged, a root's parent is below -n where it belongs to parts that are joined.
  std::int32_t joined_of(std::int32_t root) const { return parent_[root] < -n_ ? -parent_[root] - n_ - 1 : -1; }

  void join(std::int32_t x, std::int32_t y) {
    std::int32_t a = joined_of(x), b = joined_of(y);
    if (a < 0) std::swap(x, y), std::swap(a, b);
    if (a < 0) {
      a = static_cast<std::int32_t>(joined_.size());
      joined_.push_back({x, 0, -1, 0, 0, -1, -1});
      add_part(joined_[a], x);
    }
    Joined& into = joined_[a];
    std::int32_t root = into.root, other = y;
    if (b < 0) {
      if (-parent_[y] > into.size) std::swap(root, other);
      add_part(into, y);
    } else {
      Joined& from = joined_[b];
      if (from.size > into.size) std::swap(root, other);
      if (from.n_small > 0) add_small(into, from.small, from.n_small);
      if (from.n_large > 0) add_large(into, from.cluster, from.last, from.n_large);
      into.size += from.size;
      from.root = -1;
    }
    parent_[other] = root;
    parent_[root] = -n_ - 1 - a;
    into.root = root;
  }
  void add_part(Joined& into, std::int32_t root) {
    const std::int32_t size = -parent_[root];
    if (size < min_size_) {
      add_small(into, root, size);
    } else {
      out_.clusters[link_[root]].size = size;
      add_large(into, link_[root], link_[root], 1);
    }
    into.size += size;
  }
  void add_small(Joined& into, std::int32_t point, std::int32_t count) {
    if (into.n_small == 0) into.small = point;
    else chain(into.small, into.n_small, point, count);
    into.n_small += count;
  }
  void add_large(Joined& into, std::int32_t first, std::int32_t last, std::int32_t count) {
    if (into.n_large == 0) into.cluster = first;
    else out_.clusters[into.last].sibling = first;
    into.last = last;
    into.n_large += count;
  }
  void close(const Joined& joined, double height) {
    parent_[joined.root] = -joined.size;
    if (joined.size < min_size_) return;
    std::int32_t cluster = joined.cluster;
    if (joined.n_large != 1) cluster = open_cluster(joined.cluster, joined.size, height);
    depart(cluster, height);
    if (joined.n_small > 0) leave(cluster, joined.small, joined.n_small);
    link_[joined.root] = cluster;
  }

  const EdgeRecord* edges_;
  const std::int32_t n_, min_size_;
  std::int32_t n_left_ = 0;
  Buffer<std::int32_t> parent_;  // of a root: its size, negative
  Buffer<std::int32_t> link_;    // of a point of a small part: the next one of its ring; of a large one's root: its cluster
  std::vector<Joined> joined_;
  Hierarchy out_;
};

}  // namespace mreach
