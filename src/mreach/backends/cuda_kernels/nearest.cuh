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
  static constexpr int ROW_LANES = Tiles::ROW_LANES;
  static constexpr int LANE_ROWS = Tiles::LANE_ROWS;
  static constexpr int LANE_COLUMNS = TILE / ROW_LANES;  // sums that a lane has of a row: hits of a tile at most
  static constexpr int GIVEN_UP = -1;

  // Of each row; a warp reads and writes its own only.
  struct Shared {
    float reach[TILE];                        // upper bound of the k-th distance; GIVEN_UP: exact brute force takes the row
    unsigned short count[TILE][ROW_LANES];    // entries of each lane, while rows are tightened
  };

  Shared& shared;
  // Of this row tile: (TILE, row_pitch). The capacity of a row is shared out evenly to its lanes, so that none of them
  // asks another where to write; large buffers have as much again to tighten through.
  u64* entries;
  i64 n_columns;
  int row_tile, n_tiles, k, limit, capacity, row_pitch;
  float distance_slack;  // what float64 may lose of a distance where squares underflow
  float box_factor;      // (1 + rounding) of a squared distance in leading coordinates, above 1
  typename Tiles::RowMargin margin;  // of the row that this lane stands for, the first WARP_ROWS lanes one each
  float threshold;                   // of that row
  float reach2;
  bool filled;
  unsigned n_hits;
  int counted[LANE_ROWS];  // entries of this lane, of each of its rows

  __device__ __forceinline__ static int first_row() { return threadIdx.x / LANES * WARP_ROWS; }
  __device__ __forceinline__ static int stands_for() { return first_row() + threadIdx.x % WARP_ROWS; }
  __device__ __forceinline__ static int lane_of_row() { return threadIdx.x % ROW_LANES; }
  __device__ __forceinline__ int lane_capacity() const { return capacity / ROW_LANES; }

  __device__ __forceinline__ int tile_at(i64 place) const {
    const i64 tile = place ^ row_tile;
    return tile < n_tiles ? static_cast<int>(tile) : -1;
  }
  __device__ __forceinline__ bool admits(int) const { return true; }
  __device__ __forceinline__ void offer_to_block() {}
  __device__ __forceinline__ void take_from_block() {}
  __device__ __forceinline__ float reach_squared() const { return reach2; }

  __device__ __forceinline__ void find_reach() {
    const float most = warp_max(shared.reach[stands_for()]);
    reach2 = most < 0.f ? -1.f : __fmul_ru(__fmul_ru(most, most), box_factor);
  }
  __device__ __forceinline__ void prepare(const Tiles& tiles, const typename Tiles::TileMargin& tile) {
    threshold = tiles.threshold_of(margin, tile, shared.reach[stands_for()]);
  }

  __device__ __forceinline__ void take_hits(Tiles& tiles, int tile) {
    tiles.visit([&](int row) { return __shfl_sync(ALL_LANES, threshold, row); }, *this, tile);
    if (!__any_sync(ALL_LANES, filled)) return;
    tighten_rows(tiles, false);
    find_reach();
    filled = false;
  }
  __device__ __forceinline__ void hit(int r, int tile, int column, float value) {
    const i64 position = static_cast<i64>(tile) * TILE + column;
    const int row = first_row() + Tiles::lane_row() + r * Tiles::ROW_STEP;
    if (position >= n_columns || shared.reach[row] < 0.f) return;  // a sum that is NaN still hits a row that was given up
    entries[static_cast<i64>(row) * row_pitch + lane_of_row() * lane_capacity() + counted[r]] = entry_of(value, static_cast<int>(position));
    ++counted[r];
    filled |= counted[r] > lane_capacity() - LANE_COLUMNS;
    ++n_hits;
  }

  // Tighten the rows of the warp. At the end, `packed`: their entries stand together, and each row has been tightened.
  __device__ __forceinline__ void tighten_rows(const Tiles& tiles, bool packed) {
    __syncwarp();
#pragma unroll
    for (int r = 0; r < LANE_ROWS; ++r)
      shared.count[first_row() + Tiles::lane_row() + r * Tiles::ROW_STEP][lane_of_row()] = static_cast<unsigned short>(counted[r]);
    __syncwarp();
    for (int row = first_row(); row < first_row() + WARP_ROWS; ++row) {
      int count = 0, most = 0;
      for (int lane = 0; lane < ROW_LANES; ++lane) count += shared.count[row][lane], most = max(most, static_cast<int>(shared.count[row][lane]));
      if (count == 0 || (!packed && most <= lane_capacity() - LANE_COLUMNS)) continue;
      u64* own = entries + static_cast<i64>(row) * row_pitch;
      const i64 x = static_cast<i64>(row_tile) * TILE + row;
      float reach;
      int kept = capacity <= SMALL_CAPACITY ? tighten_small(tiles, row, x, own, count, packed, reach)
                                            : tighten_large(tiles, row, x, own, count, packed, reach);
      __syncwarp();
      const bool given_up = kept > limit;  // too many too near to one another to tell apart
      if (given_up) kept = 0;
      const int lane = threadIdx.x % LANES;
      if (lane == 0) shared.reach[row] = given_up ? static_cast<float>(GIVEN_UP) : fminf(shared.reach[row], reach);
      if (lane < ROW_LANES) shared.count[row][lane] = static_cast<unsigned short>(packed ? (lane == 0 ? kept : 0) : (kept + ROW_LANES - 1 - lane) / ROW_LANES);
      __syncwarp();
    }
#pragma unroll
    for (int r = 0; r < LANE_ROWS; ++r) counted[r] = shared.count[first_row() + Tiles::lane_row() + r * Tiles::ROW_STEP][lane_of_row()];
  }

  __device__ __forceinline__ float beyond(float kth) const { return __fmaf_ru(kth, 1.f + 0x1p-21f, distance_slack); }

  // Where the i-th kept entry of a row goes: to its lanes in turn, or one behind the other.
  __device__ __forceinline__ int place_of(int i, bool packed) const { return packed ? i : i % ROW_LANES * lane_capacity() + i / ROW_LANES; }

  __device__ __forceinline__ int tighten_small(const Tiles& tiles, int row, i64 x, u64* own, int count, bool packed, float& reach) const {
    constexpr int EACH = SMALL_CAPACITY / LANES;
    const int lane = threadIdx.x % LANES;
    u64 entry[EACH];
    float upper[EACH];
    unsigned valid = 0;
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const int at = i * LANES + lane, owner = at / lane_capacity();
      const bool there = at < capacity && at - owner * lane_capacity() < shared.count[row][min(owner, ROW_LANES - 1)];
      entry[i] = there ? own[at] : 0;
      upper[i] = there ? tiles.upper(x, column_of(entry[i]), value_of(entry[i])) : float_infinity();
      valid |= static_cast<unsigned>(there) << i;
    }
    const auto for_each = [&](auto&& f) {
#pragma unroll
      for (int i = 0; i < EACH; ++i)
        if (valid >> i & 1u) f(__float_as_uint(upper[i]));
    };
    reach = beyond(kth_upper(for_each, count, k));
    int kept = 0;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const bool keep = (valid >> i & 1u) && !(tiles.lower(x, column_of(entry[i]), upper[i]) > reach);
      const unsigned vote = __ballot_sync(ALL_LANES, keep);
      if (keep) own[place_of(kept + __popc(vote & ((1u << lane) - 1u)), packed)] = entry[i];
      kept += __popc(vote);
    }
    return kept;
  }

  __device__ __forceinline__ int tighten_large(const Tiles& tiles, int row, i64 x, u64* own, int count, bool packed, float& reach) const {
    const int lane = threadIdx.x % LANES;
    u64* aside = own + capacity;
    const auto upper_of = [&](u64 entry) { return tiles.upper(x, column_of(entry), value_of(entry)); };
    int moved = 0;  // first all of them together, aside
    for (int owner = 0; owner < ROW_LANES; ++owner) {
      const int n = shared.count[row][owner];
      for (int i = lane; i < n; i += LANES) aside[moved + i] = own[owner * lane_capacity() + i];
      moved += n;
    }
    __syncwarp();
    const auto for_each = [&](auto&& f) {
      for (int i = lane; i < count; i += LANES) f(__float_as_uint(upper_of(aside[i])));
    };
    reach = beyond(kth_upper(for_each, count, k));
    int kept = 0;
    for (int first = 0; first < count; first += LANES) {
      const bool valid = first + lane < count;
      const u64 entry = valid ? aside[first + lane] : 0;
      const bool keep = valid && !(tiles.lower(x, column_of(entry), upper_of(entry)) > reach);
      const unsigned vote = __ballot_sync(ALL_LANES, keep);
      const int at = kept + __popc(vote & ((1u << lane) - 1u));
      if (keep && at < limit) own[place_of(at, packed)] = entry;  // more than the limit are given up
      kept += __popc(vote);
    }
    return kept;
  }
};

// Rows of one tile of a launch against the column tiles at places [first_place, end_place).
// reach, counts and entries carry over from launch to launch: (n_row_tiles of the launch, TILE[, row_pitch]); counts is
// GIVEN_UP for rows that exact brute force is to take.
template <class Tiles>
__device__ __forceinline__ void search_nearest(Tiles& tiles, unsigned char* shared_tiles, const Boxes& boxes, i64 n_columns,
                                               i64 first_place, i64 end_place, int k, int limit, int capacity, float distance_slack,
                                               float box_factor, float* reach, int* counts, u64* entries, u64* statistics) {
  using Search = NearestSearch<Tiles>;
  __shared__ typename Search::Shared shared;
  __shared__ typename Tiles::List list;
  const i64 slot = static_cast<i64>(blockIdx.x) * TILE;
  const int row_pitch = capacity <= SMALL_CAPACITY ? capacity : 2 * capacity;
  Search search{shared, entries + slot * row_pitch, n_columns, tiles.row_tile, boxes.n_tiles, k, limit, capacity, row_pitch,
                distance_slack, box_factor, tiles.row_margin(Search::stands_for()), 0.f, 0.f, false, 0u, {}};
  if (threadIdx.x % LANES < WARP_ROWS) shared.reach[Search::stands_for()] = reach[slot + Search::stands_for()];
  load_row_box(list, boxes, tiles.row_tile);
  __syncwarp();
  if (first_place > 0) {  // what an earlier launch left stands together: in the first lanes' parts, then in all
#pragma unroll
    for (int r = 0; r < Search::LANE_ROWS; ++r) {
      const int row = Search::first_row() + Tiles::lane_row() + r * Tiles::ROW_STEP;
      search.counted[r] = min(max(0, counts[slot + row] - Search::lane_of_row() * search.lane_capacity()), search.lane_capacity());
    }
    search.tighten_rows(tiles, false);
  }
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
  search.tighten_rows(tiles, true);
  if (threadIdx.x % LANES < WARP_ROWS) {
    const int row = Search::stands_for();
    reach[slot + row] = shared.reach[row];
    counts[slot + row] = shared.reach[row] < 0.f ? Search::GIVEN_UP : shared.count[row][0];
  }
  const int hits = warp_sum(static_cast<int>(search.n_hits));
  if (threadIdx.x % LANES == 0) {
    atomicAdd(&statistics[0], compared);  // by every warp: eighths of tile pairs
    atomicAdd(&statistics[1], static_cast<u64>(hits));
  }
}
