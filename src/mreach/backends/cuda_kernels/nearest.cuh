// The k nearest of each row of a tile: bounds from the filter, never a value of it in the result.
//
// Column tiles come in the order place = 0, 1, 2, ... of tile = row tile XOR place: tiles stand in the order of the
// leaves of a balanced tree of splits, so this is its own tile, its sibling, its cousins, and so on outward. Each hit
// is kept with the filter's value. When a row's buffer is full, the k-th smallest upper bound bounds the k-th distance;
// entries whose lower bound is above it are dropped, and the row reaches only that far from then on.
#pragma once
#include "scan.cuh"

constexpr int SMALL_CAPACITY = 256;  // entries of a row that a warp holds in registers
constexpr int LOW_BITS = 9;          // of an upper bound that the search for the k-th leaves open: 2^-15 relative

__device__ __forceinline__ u64 entry_of(float value, int column) {
  return static_cast<u64>(__float_as_uint(value)) << 32 | static_cast<unsigned>(column);
}
__device__ __forceinline__ float value_of(u64 entry) { return __uint_as_float(static_cast<unsigned>(entry >> 32)); }
__device__ __forceinline__ int column_of(u64 entry) { return static_cast<int>(static_cast<unsigned>(entry)); }

// The k-th smallest of upper bounds that are spread over a warp, rounded up; infinity where there are fewer.
// for_each(f) calls f(bits) for each one of this lane.
template <class ForEach>
__device__ __forceinline__ float kth_upper(const ForEach& for_each, int count, int k) {
  if (count < k) return float_infinity();
  unsigned most = 0, least = 0xffffffffu;
  for_each([&](unsigned bits) { most = max(most, bits), least = min(least, bits); });
  most = warp_max(most), least = warp_min(least);
  const int open = most == least ? 0 : 32 - __clz(most ^ least);  // bits above are the same in all of them
  unsigned value = open >= 32 ? 0u : least >> open << open;
  for (int bit = open - 1; bit >= LOW_BITS; --bit) {
    const unsigned tried = value | 1u << bit;
    int below = 0;
    for_each([&](unsigned bits) { below += bits < tried; });
    if (warp_sum(below) < k) value = tried;
  }
  value = min(most, value | ((1u << min(open, LOW_BITS)) - 1u));
  return __uint_as_float(value);
}

template <class Tiles>
struct NearestSearch {
  // Of each row; a warp reads and writes its own only.
  struct Shared {
    float reach[TILE];  // upper bound of the k-th distance; -1: the row is given up, exact brute force takes it
    int count[TILE];    // entries; -1: given up
  };

  Shared& shared;
  u64* entries;    // (TILE, capacity) of this row tile
  i64 n_columns;
  int row_tile, n_tiles, k, limit, capacity;
  float distance_slack;  // what float64 may lose of a distance where squares underflow
  float box_factor;      // (1 + rounding) of a squared distance in leading coordinates, above 1
  typename Tiles::RowMargin margin;  // of the row that this lane stands for, the first WARP_ROWS lanes one each
  float threshold;                   // of that row
  float reach2;
  bool filled;
  unsigned n_hits;

  __device__ __forceinline__ static int first_row() { return threadIdx.x / LANES * WARP_ROWS; }
  __device__ __forceinline__ static int lane_row() { return first_row() + threadIdx.x % WARP_ROWS; }

  __device__ __forceinline__ int tile_at(i64 place) const {
    const i64 tile = place ^ row_tile;
    return tile < n_tiles ? static_cast<int>(tile) : -1;
  }
  __device__ __forceinline__ bool admits(int) const { return true; }
  __device__ __forceinline__ void offer_to_block() {}
  __device__ __forceinline__ void take_from_block() {}
  __device__ __forceinline__ float reach_squared() const { return reach2; }

  __device__ __forceinline__ void find_reach() {
    const float most = warp_max(shared.reach[lane_row()]);
    reach2 = most < 0.f ? -1.f : __fmul_ru(__fmul_ru(most, most), box_factor);
  }
  __device__ __forceinline__ void prepare(const Tiles& tiles, const typename Tiles::TileMargin& tile) {
    threshold = tiles.threshold_of(margin, tile, shared.reach[lane_row()]);
  }

  __device__ __forceinline__ void take_hits(Tiles& tiles, int tile) {
    tiles.visit([&](int row) { return __shfl_sync(ALL_LANES, threshold, row); }, *this, tile);
    if (!__any_sync(ALL_LANES, filled)) return;
    tighten_rows(tiles, limit);
    find_reach();
    filled = false;
  }
  __device__ __forceinline__ void hit(int row, int tile, int column, float value) {
    const i64 position = static_cast<i64>(tile) * TILE + column;
    if (position >= n_columns) return;
    const int at = atomicAdd(&shared.count[first_row() + row], 1);
    if (at < capacity) entries[static_cast<i64>(first_row() + row) * capacity + at] = entry_of(value, static_cast<int>(position));
    filled |= at >= limit;
    ++n_hits;
  }

  // Tighten the rows of the warp with more than `most` entries.
  __device__ __forceinline__ void tighten_rows(const Tiles& tiles, int most) {
    const int lane = threadIdx.x % LANES;
    __syncwarp();
    for (int row = first_row(); row < first_row() + WARP_ROWS; ++row) {
      const int count = shared.count[row];
      if (count <= most) continue;
      u64* own = entries + static_cast<i64>(row) * capacity;
      const i64 x = static_cast<i64>(row_tile) * TILE + row;
      float reach;
      const int kept = capacity <= SMALL_CAPACITY ? tighten_small(tiles, x, own, count, reach) : tighten_large(tiles, x, own, count, reach);
      __syncwarp();
      if (lane == 0) {
        const bool given_up = kept > limit;  // too many too near to one another to tell apart
        shared.count[row] = given_up ? -1 : kept;
        shared.reach[row] = given_up ? -1.f : fminf(shared.reach[row], reach);
      }
      __syncwarp();
    }
  }

  __device__ __forceinline__ float widened(float kth) const { return __fmaf_ru(kth, 1.f + 0x1p-21f, distance_slack); }

  __device__ __forceinline__ int tighten_small(const Tiles& tiles, i64 x, u64* own, int count, float& reach) const {
    constexpr int EACH = SMALL_CAPACITY / LANES;
    const int lane = threadIdx.x % LANES;
    u64 entry[EACH];
    float upper[EACH];
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const bool valid = i * LANES + lane < count;
      entry[i] = valid ? own[i * LANES + lane] : 0;
      upper[i] = valid ? tiles.upper(x, column_of(entry[i]), value_of(entry[i])) : float_infinity();
    }
    const auto for_each = [&](auto&& f) {
#pragma unroll
      for (int i = 0; i < EACH; ++i)
        if (i * LANES + lane < count) f(__float_as_uint(upper[i]));
    };
    reach = widened(kth_upper(for_each, count, k));
    int kept = 0;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const bool keep = i * LANES + lane < count && !(tiles.lower(x, column_of(entry[i]), upper[i]) > reach);
      const unsigned vote = __ballot_sync(ALL_LANES, keep);
      if (keep) own[kept + __popc(vote & ((1u << lane) - 1u))] = entry[i];
      kept += __popc(vote);
    }
    return kept;
  }

  __device__ __forceinline__ int tighten_large(const Tiles& tiles, i64 x, u64* own, int count, float& reach) const {
    const int lane = threadIdx.x % LANES;
    const auto upper_of = [&](u64 entry) { return tiles.upper(x, column_of(entry), value_of(entry)); };
    const auto for_each = [&](auto&& f) {
      for (int i = lane; i < count; i += LANES) f(__float_as_uint(upper_of(own[i])));
    };
    reach = widened(kth_upper(for_each, count, k));
    int kept = 0;
    for (int first = 0; first < count; first += LANES) {
      const bool valid = first + lane < count;
      const u64 entry = valid ? own[first + lane] : 0;
      const bool keep = valid && !(tiles.lower(x, column_of(entry), upper_of(entry)) > reach);
      const unsigned vote = __ballot_sync(ALL_LANES, keep);
      __syncwarp();  // all have read before the first writes: kept <= first
      if (keep) own[kept + __popc(vote & ((1u << lane) - 1u))] = entry;
      __syncwarp();
      kept += __popc(vote);
    }
    return kept;
  }
};

// Rows of one tile of a launch against the column tiles at places [first_place, end_place).
// reach, counts and entries carry over from launch to launch: (n_row_tiles of the launch, TILE[, capacity]).
template <class Tiles>
__device__ __forceinline__ void search_nearest(Tiles& tiles, unsigned char* shared_tiles, const Boxes& boxes, i64 n_columns,
                                               i64 first_place, i64 end_place, int k, int limit, int capacity, float distance_slack,
                                               float box_factor, float* reach, int* counts, u64* entries, bool last, u64* statistics) {
  using Search = NearestSearch<Tiles>;
  __shared__ typename Search::Shared shared;
  __shared__ typename Tiles::List list;
  const i64 slot = static_cast<i64>(blockIdx.x) * TILE;
  Search search{shared, entries + slot * capacity, n_columns, tiles.row_tile, boxes.n_tiles, k, limit, capacity,
                distance_slack, box_factor, tiles.row_margin(Search::lane_row()), 0.f, 0.f, false, 0u};
  if (threadIdx.x % LANES < WARP_ROWS) {
    const int row = Search::lane_row();
    shared.reach[row] = reach[slot + row];
    shared.count[row] = counts[slot + row];
    search.filled = shared.count[row] > limit;
  }
  load_row_box(list, boxes, tiles.row_tile);
  __syncwarp();
  search.find_reach();
  tiles.open(shared_tiles);
  typename Tiles::Ring ring(tiles);
  u64 compared = 0;
  const i64 n_lists = 1 + max(0ll, end_place - first_place - FIRST_PLACES + SCAN_THREADS - 1) / SCAN_THREADS;
  for (i64 i = 0; i < n_lists; ++i) {  // a short list first: after it the rows reach less far than all
    const i64 end = first_place + FIRST_PLACES + i * SCAN_THREADS;
    const int n = list_tiles(tiles, list, search, boxes, i == 0 ? first_place : end - SCAN_THREADS, min(end, end_place));
    compared += compare_listed(tiles, ring, search, list, n);
  }
  search.tighten_rows(tiles, last ? k : limit);
  if (threadIdx.x % LANES < WARP_ROWS) {
    const int row = Search::lane_row();
    reach[slot + row] = shared.reach[row];
    counts[slot + row] = shared.count[row];
  }
  const int hits = warp_sum(static_cast<int>(search.n_hits));
  if (threadIdx.x % LANES == 0) {
    atomicAdd(&statistics[0], compared);  // by every warp: eighths of tile pairs
    atomicAdd(&statistics[1], static_cast<u64>(hits));
  }
}
