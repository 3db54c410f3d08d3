// One row tile against many column tiles: which tiles, in which order, and the pipeline that feeds the filter.
//
// Each warp owns WARP_ROWS rows of the tile: what is searched for them, and how far, is the warp's own. Tiles is
// HalfTiles, WarpgroupTiles or FrameTiles. A Search says what is looked for:
//   int tile_at(i64 place)         the column tile at a place of the search's order, or -1
//   bool admits(int tile)          false where no pair with the tile can count
//   float reach_squared()          of the warp's rows: farther boxes hold nothing for them
//   void prepare(tiles, margin)    thresholds of the warp's rows for the tile that comes
//   void take_hits(tiles, tile)    look at the pairs that they do not exclude
//   void offer_to_block(), take_from_block()   what admits() needs of all warps, a barrier between them
#pragma once
#include "common.cuh"

constexpr int MAX_LEADING = 64;  // leading coordinates that boxes have at most
constexpr int WARPS = SCAN_THREADS / LANES;
constexpr int FIRST_PLACES = 16;  // places that are listed before any row reaches less far than all

struct Boxes {  // of the leading coordinates of each tile, rounded outward
  const float* low;   // (n_leading, n_tiles)
  const float* high;
  int n_tiles, n_leading;
};

template <class TileMargin>
struct TileList {  // tiles to be compared, the nearest first as far as the order of places knows
  int tile[SCAN_THREADS];
  float distance[SCAN_THREADS];  // squared, from box to box, rounded down
  TileMargin margin[SCAN_THREADS];
  int warp_count[WARPS];
  float warp_reach[WARPS];
  float row_low[MAX_LEADING], row_high[MAX_LEADING];
};

template <class List>
__device__ __forceinline__ void load_row_box(List& list, const Boxes& rows, int row_tile) {
  if (threadIdx.x < rows.n_leading) {
    list.row_low[threadIdx.x] = rows.low[static_cast<i64>(threadIdx.x) * rows.n_tiles + row_tile];
    list.row_high[threadIdx.x] = rows.high[static_cast<i64>(threadIdx.x) * rows.n_tiles + row_tile];
  }
}

// Squared distance between two boxes, rounded down. Written so that NaN counts as no gap: it keeps the pair.
template <class List>
__device__ __forceinline__ float box_distance(const List& list, const Boxes& columns, int tile) {
  float squared = 0.f;
#pragma unroll 4
  for (int f = 0; f < columns.n_leading; ++f) {
    const i64 at = static_cast<i64>(f) * columns.n_tiles + tile;
    const float gap = fmaxf(0.f, fmaxf(__fsub_rd(list.row_low[f], columns.high[at]), __fsub_rd(columns.low[at], list.row_high[f])));
    squared = __fmaf_rd(gap, gap, squared);
  }
  return squared;
}

// The largest reach of all warps, for whole tiles. Barriers inside.
template <class List, class Search>
__device__ __forceinline__ float reach_of_block(List& list, Search& search) {
  __syncthreads();  // nobody reads the previous list any more
  if (threadIdx.x % LANES == 0) {
    list.warp_reach[threadIdx.x / LANES] = search.reach_squared();
    search.offer_to_block();
  }
  __syncthreads();
  search.take_from_block();
  float most = list.warp_reach[0];
#pragma unroll
  for (int w = 1; w < WARPS; ++w) most = fmaxf(most, list.warp_reach[w]);
  return most;
}

// The next SCAN_THREADS places from `first`, before `end`: list the tiles that may hold a pair, in order; return how many.
template <class Tiles, class List, class Search>
__device__ __forceinline__ int list_tiles(const Tiles& tiles, List& list, Search& search, const Boxes& columns, i64 first, i64 end) {
  const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
  const float reach_squared = reach_of_block(list, search);
  const int tile = first + threadIdx.x < end ? search.tile_at(first + threadIdx.x) : -1;
  bool kept = tile >= 0 && search.admits(tile);
  float distance = 0.f;
  if (kept) {
    distance = box_distance(list, columns, tile);
    kept = !(distance > reach_squared);
  }
  const unsigned vote = __ballot_sync(ALL_LANES, kept);
  if (lane == 0) list.warp_count[warp] = __popc(vote);
  __syncthreads();
  int before = 0, total = 0;
#pragma unroll
  for (int w = 0; w < WARPS; ++w) {
    before += w < warp ? list.warp_count[w] : 0;
    total += list.warp_count[w];
  }
  if (kept) {
    const int at = before + __popc(vote & ((1u << lane) - 1u));
    list.tile[at] = tile;
    list.distance[at] = distance;
    list.margin[at] = tiles.tile_margin(tile);
  }
  __syncthreads();
  return total;
}

// Slabs in shared memory, copied by all threads; one barrier of the block a slab.
template <class Tiles>
struct BarrierRing {
  static constexpr int AHEAD = Tiles::STAGES - 1;

  const Tiles& tiles;
  const typename Tiles::List* list;
  int n_tiles, tile, slab, filled, used;  // what is copied next and where to; which stage is used next

  __device__ __forceinline__ BarrierRing(const Tiles& tiles_) : tiles(tiles_) {}

  __device__ __forceinline__ void start(const typename Tiles::List& list_, int n) {
    list = &list_, n_tiles = n, tile = slab = filled = used = 0;
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) copy();
  }
  __device__ __forceinline__ void copy() {
    if (tile < n_tiles) {
      tiles.issue(filled, list->tile[tile], slab);
      if (++slab == tiles.n_slabs) slab = 0, ++tile;
    }
    copy_async_commit();
    if (++filled == Tiles::STAGES) filled = 0;
  }
  // The stage of the next slab. The barrier serves two ends: the slab is here for all, and the stage to refill is free.
  __device__ __forceinline__ int take() {
    copy_async_wait<AHEAD - 1>();
    __syncthreads();
    copy();
    return used;
  }
  __device__ __forceinline__ void release() {
    if (++used == Tiles::STAGES) used = 0;
  }
  __device__ __forceinline__ void finish() { copy_async_wait<0>(); }
};

// Compare the rows with the first `n` tiles of the list. Returns how many were compared.
template <class Tiles, class Search>
__device__ __forceinline__ int compare_listed(Tiles& tiles, typename Tiles::Ring& ring, Search& search, const typename Tiles::List& list, int n) {
  ring.start(list, n);
  int compared = 0;
  for (int i = 0; i < n; ++i) {
    int stage = ring.take();
    search.prepare(tiles, list.margin[i]);
    const bool near = !(list.distance[i] > search.reach_squared());
    if (near || !Tiles::WARPS_SKIP) tiles.template multiply<true>(stage);
    ring.release();
    if (!Tiles::ONE_SLAB) {
      for (int slab = 1; slab < tiles.n_slabs; ++slab) {
        stage = ring.take();
        if (near || !Tiles::WARPS_SKIP) tiles.template multiply<false>(stage);
        ring.release();
      }
    }
    if (near) search.take_hits(tiles, list.tile[i]);
    compared += near;
  }
  ring.finish();
  return compared;
}
