// Tile pairs of halves by Hopper's warpgroup products: 64 rows x 128 columns for each of two groups of four warps.
//
// Both factors are read from shared memory, rows of 128 bytes whose 16-byte chunks stand at (chunk XOR row % 8): the
// "128B swizzle" of the hardware, which lets eight rows be read without a bank conflict. They lie so in global memory
// too, slab by slab: one thread has the copy engine fetch a slab whole.
#pragma once
#include "half_sums.cuh"
#include "scan.cuh"

#ifndef MREACH_STAGES
#define MREACH_STAGES 5  // slabs in shared memory: AHEAD of them under way, one in use, the others let warps drift apart
#endif

// Slabs in shared memory, filled by the copy engine. No barrier of the block: a warp waits for a slab to be full, and the
// thread that has it filled waits for all warps to be done with what was there before.
template <class Tiles>
struct BulkRing {
  static constexpr int AHEAD = 3;
  static_assert(AHEAD < Tiles::STAGES, "a slab in use is not filled");

  const Tiles& tiles;
  u64* full;   // [STAGES]
  u64* empty;  // [STAGES]
  const typename Tiles::List* list;
  int n_tiles, tile, slab;   // what is fetched next, known to thread 0
  unsigned issued, used;     // slabs so far

  __device__ __forceinline__ BulkRing(const Tiles& tiles_) : tiles(tiles_), full(tiles_.barriers), empty(tiles_.barriers + Tiles::STAGES), issued(0), used(0) {}

  __device__ __forceinline__ void start(const typename Tiles::List& list_, int n) {
    list = &list_, n_tiles = n, tile = slab = 0;
    if (threadIdx.x == 0)
      for (int i = 0; i < AHEAD; ++i) fetch();
    __syncwarp();
  }
  __device__ __forceinline__ void fetch() {
    if (tile >= n_tiles) return;
    const unsigned stage = issued % Tiles::STAGES, turn = issued / Tiles::STAGES;
    if (turn > 0) barrier_wait(&empty[stage], (turn - 1) % 2);
    tiles.issue(stage, list->tile[tile], slab, &full[stage]);
    if (++slab == tiles.n_slabs) slab = 0, ++tile;
    ++issued;
  }
  // The stage of the next slab, which is there.
  __device__ __forceinline__ int take() {
    if (threadIdx.x == 0) fetch();
    __syncwarp();
    const unsigned stage = used % Tiles::STAGES;
    barrier_wait(&full[stage], used / Tiles::STAGES % 2);
    return static_cast<int>(stage);
  }
  // The warp is done with the slab that it took last.
  __device__ __forceinline__ void release() {
    __syncwarp();
    if (threadIdx.x % LANES == 0) barrier_arrive(&empty[used % Tiles::STAGES]);
    ++used;
  }
  __device__ __forceinline__ void finish() {}
};

// ONE_SLAB: all features fit into one slab, so the rows stay in shared memory.
template <bool ONE_SLAB_>
struct WarpgroupTiles : HalfSums {
  static constexpr bool ONE_SLAB = ONE_SLAB_;
  static constexpr bool WARPS_SKIP = false;  // four warps multiply together
  static constexpr int STAGES = MREACH_STAGES;
  static constexpr int SLAB = 64;           // features: 128 bytes, the width of the swizzle
  static constexpr int SLAB_BYTES = TILE * SLAB * 2;
  static constexpr int ALIGNMENT = 1024;    // of a slab, which the swizzle repeats after
  static constexpr int GROUP_ROWS = 64;     // rows of a warpgroup
  using List = TileList<TileMargin>;
  using Ring = BulkRing<WarpgroupTiles>;

  half_bits* shared_rows;     // [ONE_SLAB ? 1 : STAGES][TILE][SLAB], swizzled
  half_bits* shared_columns;  // [STAGES][TILE][SLAB], swizzled
  float* shared_start;        // [STAGES][TILE]
  u64* barriers;              // full and empty of each stage, then that of the rows

  __device__ __forceinline__ void open(unsigned char* shared) {
    n_slabs = ONE_SLAB ? 1 : width / SLAB;
    const unsigned address = shared_address(shared);
    shared_rows = reinterpret_cast<half_bits*>(shared + (ALIGNMENT - address % ALIGNMENT) % ALIGNMENT);
    shared_columns = shared_rows + (ONE_SLAB ? 1 : STAGES) * TILE * SLAB;
    shared_start = reinterpret_cast<float*>(shared_columns + STAGES * TILE * SLAB);
    barriers = reinterpret_cast<u64*>(shared_start + STAGES * TILE);
    if (threadIdx.x == 0) {
      for (int stage = 0; stage < STAGES; ++stage) {
        barrier_open(&barriers[stage], 1);
        barrier_open(&barriers[STAGES + stage], SCAN_THREADS / LANES);
      }
      barrier_open(&barriers[2 * STAGES], 1);
      publish_barriers();
    }
    __syncthreads();
    if (!ONE_SLAB) return;
    if (threadIdx.x == 0) {
      barrier_expect(&barriers[2 * STAGES], SLAB_BYTES);
      copy_bulk(shared_rows, slab_of(rows.halves, row_tile, 0), SLAB_BYTES, &barriers[2 * STAGES]);
    }
    __syncwarp();
    barrier_wait(&barriers[2 * STAGES], 0);
  }
  __device__ __forceinline__ const half_bits* slab_of(const half_bits* halves, i64 tile, int slab) const {
    return halves + (tile * n_slabs + slab) * (TILE * SLAB);
  }

  // Have a slab of a column tile fetched (and of the rows, where they do not fit at once). One thread calls it.
  __device__ __forceinline__ void issue(int stage, int column_tile, int slab, u64* full) const {
    barrier_expect(full, SLAB_BYTES * (ONE_SLAB ? 1 : 2) + TILE * 4);
    copy_bulk(shared_columns + stage * TILE * SLAB, slab_of(columns.halves, column_tile, slab), SLAB_BYTES, full);
    if (!ONE_SLAB) copy_bulk(shared_rows + stage * TILE * SLAB, slab_of(rows.halves, row_tile, slab), SLAB_BYTES, full);
    copy_bulk(shared_start + stage * TILE, columns.start + static_cast<i64>(column_tile) * TILE, TILE * 4, full);
  }

  template <bool FIRST>
  __device__ __forceinline__ void multiply(int stage) {
    if (FIRST) begin(shared_start + stage * TILE);
    warpgroup_multiply_64x128x64(
        sum, shared_rows + (ONE_SLAB ? 0 : stage * TILE * SLAB) + threadIdx.x / GROUP_THREADS * GROUP_ROWS * SLAB,
        shared_columns + stage * TILE * SLAB);
  }
};
