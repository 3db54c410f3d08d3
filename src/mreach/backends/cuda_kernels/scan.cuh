// One row tile against many column tiles: which tiles, in which order, and the pipeline that feeds the filter.
//
// Tiles is HalfTiles or FrameTiles. A Search says what is looked for:
//   int tile_at(i64 place)               the column tile at a place of the search's order, or -1
//   bool admits(int tile)                false where no pair with the tile can count
//   float reach_squared()                the same for all threads: farther boxes are skipped
//   void prepare(tiles, slot, tile)      fill thresholds[slot], of two, for the tile that comes next
//   bool is_full()                       this thread filled a buffer with its last tile
//   void make_room(tiles, slot, tile)    called by all threads when one was full; refills thresholds[slot]
//   void take_hits(tiles, slot, tile)    look at the pairs of the tile that thresholds[slot] does not exclude
#pragma once
#include "common.cuh"

constexpr int MAX_LEADING = 64;  // leading coordinates that boxes have at most

struct Boxes {  // of the leading coordinates of each tile, rounded outward
  const float* low;   // (n_leading, n_tiles)
  const float* high;
  int n_tiles, n_leading;
};

struct TileList {  // tiles to be compared, the nearest first as far as the order of places knows
  int tile[SCAN_THREADS];
  float distance[SCAN_THREADS];  // squared, from box to box, rounded down
  int warp_count[SCAN_THREADS / LANES];
  float row_low[MAX_LEADING], row_high[MAX_LEADING];
};

__device__ __forceinline__ void load_row_box(TileList& list, const Boxes& rows, int row_tile) {
  if (threadIdx.x < rows.n_leading) {
    list.row_low[threadIdx.x] = rows.low[static_cast<i64>(threadIdx.x) * rows.n_tiles + row_tile];
    list.row_high[threadIdx.x] = rows.high[static_cast<i64>(threadIdx.x) * rows.n_tiles + row_tile];
  }
}

// Squared distance between two boxes, rounded down. Written so that NaN counts as no gap: it keeps the pair.
__device__ __forceinline__ float box_distance(const TileList& list, const Boxes& columns, int tile) {
  float squared = 0.f;
#pragma unroll 4
  for (int f = 0; f < columns.n_leading; ++f) {
    const i64 at = static_cast<i64>(f) * columns.n_tiles + tile;
    const float gap = fmaxf(0.f, fmaxf(__fsub_rd(list.row_low[f], columns.high[at]), __fsub_rd(columns.low[at], list.row_high[f])));
    squared = __fmaf_rd(gap, gap, squared);
  }
  return squared;
}

// The next SCAN_THREADS places from `first`, before `end`: list the tiles that may hold a pair, in order; return how many.
template <class Search>
__device__ __forceinline__ int list_tiles(TileList& list, Search& search, const Boxes& columns, i64 first, i64 end) {
  const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
  const int tile = first + threadIdx.x < end ? search.tile_at(first + threadIdx.x) : -1;
  bool kept = tile >= 0 && search.admits(tile);
  float distance = 0.f;
  if (kept) {
    distance = box_distance(list, columns, tile);
    kept = !(distance > search.reach_squared());
  }
  const unsigned vote = __ballot_sync(ALL_LANES, kept);
  __syncthreads();  // nobody reads the previous list any more
  if (lane == 0) list.warp_count[warp] = __popc(vote);
  __syncthreads();
  int before = 0, total = 0;
#pragma unroll
  for (int w = 0; w < SCAN_THREADS / LANES; ++w) {
    before += w < warp ? list.warp_count[w] : 0;
    total += list.warp_count[w];
  }
  if (kept) {
    const int at = before + __popc(vote & ((1u << lane) - 1u));
    list.tile[at] = tile;
    list.distance[at] = distance;
  }
  __syncthreads();
  return total;
}

// The slabs of the listed tiles, one after another, through a ring of stages in shared memory.
template <class Tiles>
struct SlabRing {
  static constexpr int AHEAD = Tiles::STAGES - 1;
  const Tiles& tiles;
  const TileList& list;
  int n_tiles;
  int tile = 0, slab = 0, filled = 0, used = 0;  // what is copied next and where to; which stage is used next

  __device__ __forceinline__ void copy_next() {
    if (tile < n_tiles) {
      tiles.issue(filled, list.tile[tile], slab);
      if (++slab == tiles.n_slabs) slab = 0, ++tile;
    }
    copy_async_commit();
    if (++filled == Tiles::STAGES) filled = 0;
  }
  // The stage of the next slab. Also tells whether any thread said `filled_buffer`: the one barrier of a slab serves
  // three ends: the slab is here for all threads, the stage to be refilled is free, and was a buffer full?
  __device__ __forceinline__ int take(bool filled_buffer, bool& any_filled) {
    copy_async_wait<AHEAD - 1>();
    Tiles::publish();
    any_filled = __syncthreads_or(filled_buffer);
    copy_next();
    const int stage = used;
    if (++used == Tiles::STAGES) used = 0;
    return stage;
  }
};

// Compare the rows with the first `n` tiles of the list. Returns how many were compared.
template <class Tiles, class Search>
__device__ __forceinline__ int compare_listed(Tiles& tiles, Search& search, const TileList& list, int n) {
  if (n == 0) return 0;
  search.prepare(tiles, 0, list.tile[0]);
  SlabRing<Tiles> ring{tiles, list, n};
#pragma unroll
  for (int i = 0; i < SlabRing<Tiles>::AHEAD; ++i) ring.copy_next();
  int compared = 0;
  for (int i = 0; i < n; ++i) {
    bool full, ignored;
    int stage = ring.take(search.is_full(), full);
    if (full) search.make_room(tiles, i & 1, list.tile[i]);
    if (i + 1 < n) search.prepare(tiles, (i + 1) & 1, list.tile[i + 1]);
    const bool near = !(list.distance[i] > search.reach_squared());
    if (near) tiles.template multiply<true>(stage, 0);
    if (!Tiles::ONE_SLAB) {
      for (int slab = 1; slab < tiles.n_slabs; ++slab) {
        stage = ring.take(false, ignored);
        if (near) tiles.template multiply<false>(stage, slab);
      }
    }
    if (near) search.take_hits(tiles, i & 1, list.tile[i]);
    compared += near;
  }
  copy_async_wait<0>();
  return compared;
}
