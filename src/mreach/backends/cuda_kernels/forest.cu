// Boruvka rounds between the scans: listed edges, active rows, hooking, relabelling. All by position; pairs by the
// user's rows. Weights are compared by their bits, which order as they do.
#include "common.cuh"

constexpr int HOPS = 15;

// What an edge that the row does not list weighs at least. A list of all rows leaves none out.
__device__ __forceinline__ double unlisted_bound(double core, const double* distance, int list_length, int complete, double alpha) {
  return complete ? weight_of(NO_WEIGHT) : fmax(core, __ddiv_rn(distance[list_length - 1], alpha));
}

// Lower each component's best weight to that of the lightest listed edge out of it, and its bound to the smallest that an
// unlisted one can have. A thread a row.
extern "C" __global__ void listed_edges_kernel(const double* list_distance, const int* list_column, int list_length, int complete, i64 n,
                                               const double* core, const int* component, double alpha, u64* best, u64* bound) {
  const i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const int own = component[i];
  const double* distance = list_distance + i * list_length;
  double lightest = weight_of(NO_WEIGHT);
  for (int j = 0; j < list_length; ++j) {
    const double scaled = __ddiv_rn(distance[j], alpha);
    if (fmax(core[i], scaled) >= lightest) break;  // lists ascend
    const int other = list_column[i * list_length + j];
    if (component[other] != own) lightest = fmin(lightest, fmax(fmax(core[i], core[other]), scaled));
  }
  lower_to(&best[own], weight_bits(lightest));
  lower_to(&bound[own], weight_bits(unlisted_bound(core[i], distance, list_length, complete, alpha)));
}

// Rows that lists do not settle: an edge that they do not list might be as light as their component's best. Counts them
// by component; a component whose best is strictly below its bound has none.
extern "C" __global__ void count_active_rows_kernel(const double* list_distance, int list_length, int complete, i64 n, const double* core,
                                                    const int* component, double alpha, const u64* best, const u64* bound,
                                                    unsigned char* active, unsigned* n_active_of) {
  const i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const int own = component[i];
  const bool settled = best[own] < bound[own];
  const bool is_active =
      !settled && !(unlisted_bound(core[i], list_distance + i * list_length, list_length, complete, alpha) > weight_of(best[own]));
  active[i] = is_active;
  if (is_active) atomicAdd(&n_active_of[own], 1u);
}

// The component with the most active rows (the lowest of equals), as (rows << 32 | ~component): it waits for the others.
extern "C" __global__ void most_active_kernel(const unsigned* n_active_of, int n_components, u64* most) {
  const i64 c = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (c >= n_components || n_active_of[c] == 0) return;
  const u64 key = static_cast<u64>(n_active_of[c]) << 32 | static_cast<unsigned>(~static_cast<unsigned>(c));
  if (key > *static_cast<volatile u64*>(most)) atomicMax(most, key);
}

// Keys (component << 32 | position) of the active rows of all other components; the waiting one gets no best edge.
extern "C" __global__ void gather_active_rows_kernel(const unsigned char* active, const int* component, i64 n, const u64* most, u64* keys,
                                                     u64* n_gathered, u64* best) {
  const i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  const bool any = *most != 0;
  const int waiting = any ? static_cast<int>(~static_cast<unsigned>(*most)) : -1;
  if (i == 0 && any) best[waiting] = NO_WEIGHT;
  if (i >= n || !active[i] || component[i] == waiting) return;
  keys[atomicAdd(n_gathered, 1ull)] = static_cast<u64>(component[i]) << 32 | static_cast<unsigned>(i);
}

extern "C" __global__ void component_keys_kernel(const int* component, i64 n, u64* keys) {
  const i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) keys[i] = static_cast<u64>(component[i]) << 32 | static_cast<unsigned>(i);
}

extern "C" __global__ void positions_of_keys_kernel(const u64* keys, i64 n, int* positions) {
  const i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) positions[i] = static_cast<int>(static_cast<unsigned>(keys[i]));
}

// Of each tile: the component of all its rows, or -1; the smallest core distance. The same by column. One warp a tile.
extern "C" __global__ void component_tiles_kernel(const int* positions, i64 n, int n_tiles, const int* component, const double* core,
                                                  int* tile_component, double* tile_core, int* column_component,
                                                  float* column_core) {
  const i64 tile = (static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x) / LANES;
  const int lane = threadIdx.x % LANES;
  if (tile >= n_tiles) return;
  const int first = component[positions ? positions[tile * TILE] : tile * TILE];
  bool same = true;
  double least = weight_of(NO_WEIGHT);
  for (int r = lane; r < TILE; r += LANES) {
    const i64 i = tile * TILE + r;
    if (i >= n) break;
    const i64 p = positions ? positions[i] : i;
    same &= component[p] == first;
    column_component[i] = component[p], column_core[i] = __double2float_rd(core[p]);
    least = fmin(least, core[p]);
  }
#pragma unroll
  for (int step = LANES / 2; step > 0; step /= 2) least = fmin(least, __shfl_xor_sync(ALL_LANES, least, step));
  same = __all_sync(ALL_LANES, same);
  if (lane == 0) tile_component[tile] = same ? first : -1, tile_core[tile] = least;
}

// Among the listed edges as light as their component's best, the lowest pair. A thread a row.
extern "C" __global__ void listed_pairs_kernel(const double* list_distance, const int* list_column, int list_length, i64 n, const double* core,
                                               const int* component, const int* row_of, double alpha, const u64* best, u64* pair) {
  const i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const int own = component[i];
  if (best[own] == NO_WEIGHT) return;
  const double lightest = weight_of(best[own]);
  for (int j = 0; j < list_length; ++j) {
    const double scaled = __ddiv_rn(list_distance[i * list_length + j], alpha);
    if (fmax(core[i], scaled) > lightest) break;
    const int other = list_column[i * list_length + j];
    if (component[other] != own && fmax(fmax(core[i], core[other]), scaled) == lightest)
      lower_to(&pair[own], pair_of(row_of[i], row_of[other]));
  }
}

extern "C" __global__ void queued_pairs_kernel(const u64* queue, i64 n_queued, const u64* best, u64* pair) {
  const i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n_queued && queue[i * 3 + 1] == best[queue[i * 3]]) lower_to(&pair[queue[i * 3]], queue[i * 3 + 2]);
}

// Every component with a best edge hooks onto the one at the other end; where two chose the same edge, the lower stays.
// Each edge goes into the tree once.
extern "C" __global__ void hook_kernel(const u64* best, const u64* pair, int n_components, const int* component, const int* position_of,
                                       int* parent, u64* edge_weight, u64* edge_pair, u64* n_edges) {
  const i64 c = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (c >= n_components) return;
  parent[c] = static_cast<int>(c);
  const u64 edge = pair[c];
  if (edge == NO_PAIR) return;
  const int a = component[position_of[edge >> 32]], b = component[position_of[static_cast<unsigned>(edge)]];
  const int other = a == c ? b : a;
  const bool mutual = pair[other] == edge;
  if (!(mutual && c < other)) parent[c] = other;
  if (mutual && c > other) return;
  const u64 at = atomicAdd(n_edges, 1ull);
  edge_weight[at] = best[c], edge_pair[at] = edge;
}

// Follow parents for HOPS steps; a launch shortens every path to its HOPS + 1st part, until all point at the roots. Other
// threads may shorten the same path meanwhile: what is read is then nearer to the root, which is as good.
extern "C" __global__ void jump_kernel(int* parent, int n_components) {
  const i64 c = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (c >= n_components) return;
  volatile int* shared_parent = parent;
  int above = shared_parent[c];
  for (int hop = 0; hop < HOPS; ++hop) above = shared_parent[above];
  shared_parent[c] = above;
}

extern "C" __global__ void mark_roots_kernel(const int* parent, int n_components, i64* is_root) {
  const i64 c = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (c < n_components) is_root[c] = parent[c] == c;
}

// number: inclusive sums of is_root.
extern "C" __global__ void relabel_kernel(const int* parent, const i64* number, i64 n, int* component) {
  const i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) component[i] = static_cast<int>(number[parent[component[i]]]) - 1;
}

extern "C" __global__ void fill_kernel(u64* values, i64 n, u64 value) {
  const i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) values[i] = value;
}

// Sorted edges as the records that the host works with: source, target, weight.
extern "C" __global__ void pack_edges_kernel(const u64* edge_weight, const u64* edge_pair, const i64* order, i64 n, u64* records) {
  const i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const u64 pair = edge_pair[order[i]];
  records[i * 3] = pair >> 32;
  records[i * 3 + 1] = pair & 0xffffffffull;
  records[i * 3 + 2] = edge_weight[order[i]];
}

// ---- copies: rows equal to a row that stands for them

// The smallest row among the listed ones near enough to a row with copies; where the list cannot show all that are near
// enough, the row is gathered for a scan.
extern "C" __global__ void smallest_near_kernel(const double* list_distance, const int* list_column, int list_length, int complete, i64 n,
                                                const double* core, const int* row_of, const int* multiplicity, double alpha,
                                                unsigned* smallest, u64* unproven, u64* n_unproven) {
  const i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned least = static_cast<unsigned>(row_of[i]);
  if (multiplicity[i] > 1) {
    for (int j = 0; j < list_length; ++j) {
      if (__ddiv_rn(list_distance[i * list_length + j], alpha) > core[i]) break;
      const int other = list_column[i * list_length + j];
      if (core[other] <= core[i]) least = min(least, static_cast<unsigned>(row_of[other]));
    }
    if (!(unlisted_bound(0.0, list_distance + i * list_length, list_length, complete, alpha) > core[i]))
      unproven[atomicAdd(n_unproven, 1ull)] = static_cast<unsigned>(i);
  }
  smallest[i] = least;
}

// The edge of each copy: (core, lower, higher of itself and the smallest row near enough).
extern "C" __global__ void copy_edges_kernel(const int* copy_row, const int* copy_position, i64 n_copies, const double* core,
                                             const unsigned* smallest, u64* edge_weight, u64* edge_pair) {
  const i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n_copies) return;
  const int p = copy_position[i];
  edge_weight[i] = weight_bits(core[p]);
  edge_pair[i] = pair_of(static_cast<int>(smallest[p]), copy_row[i]);
}
