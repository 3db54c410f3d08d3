// The emulator's stand-in for the device's primitives.cuh: halves, tensor core steps, matrix loads, asynchronous copies.
#pragma once

typedef unsigned long long u64;
typedef long long i64;
typedef unsigned short half_bits;

inline half_bits half_from_float(float value) {
    unsigned bits = __float_as_uint(value), sign = bits >> 16 & 0x8000u, rest = bits & 0x7FFFFFFFu;
    if (rest > 0x7F800000u) return half_bits(sign | 0x7E00u);
    if (rest >= 0x47800000u) return half_bits(sign | 0x7C00u);  // from 65536 on; what rounds up to it carries below
    if (rest < 0x38800000u) {                                   // below 2^-14: subnormal, a multiple of 2^-24
        if (rest < 0x33000000u) return half_bits(sign);
        unsigned shift = 126u - (rest >> 23), significand = (rest & 0x7FFFFFu) | 0x800000u;
        unsigned whole = significand >> shift, left = significand & ((1u << shift) - 1), tie = 1u << (shift - 1);
        return half_bits(sign | (whole + (left > tie || (left == tie && (whole & 1)))));
    }
    unsigned whole = (rest - 0x38000000u) >> 13, left = rest & 0x1FFFu;
    return half_bits(sign | (whole + (left > 0x1000u || (left == 0x1000u && (whole & 1)))));
}

inline float float_from_half(half_bits half) {
    unsigned sign = (half & 0x8000u) << 16, exponent = half >> 10 & 31u, fraction = half & 0x3FFu;
    if (exponent == 0) {
        float size = float(fraction) * 0x1p-24f;
        return sign ? -size : size;
    }
    return __uint_as_float(sign | (exponent == 31 ? 0x7F800000u : (exponent + 112u) << 23) | fraction << 13);
}

namespace emu {

// The emulator's own arithmetic needs no checks.
#define EMU_FAST __attribute__((optimize("O3", "fp-contract=off"), no_sanitize("undefined")))

struct MmaLane {
    float* c;
    const unsigned* a;
    const unsigned* b;
};

EMU_FAST inline void unpack(unsigned pair, float& low, float& high) {
#if defined(__F16C__)
    low = _cvtsh_ss(half_bits(pair & 0xFFFFu));
    high = _cvtsh_ss(half_bits(pair >> 16));
#else
    low = float_from_half(half_bits(pair & 0xFFFFu));
    high = float_from_half(half_bits(pair >> 16));
#endif
}

// 2^exponent for a normal double.
EMU_FAST inline double power_of_two(int exponent) { return same_bits<double>((long long)(exponent + 1023) << 52); }

// Add terms[0..n) to a sum as tensor cores do: all aligned to the largest exponent and cut to `bits` bits there.
EMU_FAST inline float add_truncated(float sum, const float* terms, int n, int bits) {
    unsigned largest = __float_as_uint(sum) & 0x7FFFFFFFu;
    for (int k = 0; k < n; ++k) {
        unsigned size = __float_as_uint(terms[k]) & 0x7FFFFFFFu;
        largest = size > largest ? size : largest;
    }
    if (largest >= 0x7F800000u) {
        for (int k = 0; k < n; ++k) sum += terms[k];
        return sum;
    }
    int exponent = int(largest >> 23) - 127 - bits + 1;
    double inverse = power_of_two(-exponent), total = double((long long)(double(sum) * inverse));
    for (int k = 0; k < n; ++k) total += double((long long)(double(terms[k]) * inverse));
    return __double2float_rz(total * power_of_two(exponent));
}

// Add 16 products to a sum as the tensor cores of the architecture do, or as the rounding asked for has it.
EMU_FAST inline float add_products(float c, const float (&products)[16]) {
#if __CUDA_ARCH__ >= 900
    constexpr int CHUNK = 16, BITS = 25;
#elif __CUDA_ARCH__ >= 800
    constexpr int CHUNK = 8, BITS = 24;
#else
    constexpr int CHUNK = 4, BITS = 24;
#endif
    if (state.mma_rounding == 0) {
        for (int k = 0; k < 16; ++k) c += products[k];
        return c;
    }
    if (state.mma_rounding == 1) {
        for (int k = 0; k < 16; k += CHUNK) c = add_truncated(c, products + k, CHUNK, BITS);
        return c;
    }
    double sum = c, size = fabs(sum);
    for (int k = 0; k < 16; ++k) sum += products[k], size += fabs(double(products[k]));
    double direction = state.mma_rounding == 2   ? -1
                       : state.mma_rounding == 3 ? 1
                                                 : (int(random_below(2001)) - 1000) / 1000.0;
    return float(sum + direction * state.mma_error * size);
}

EMU_FAST inline void mma_16x8x16(float (&c)[16][8], const float (&a)[16][16], const float (&b)[16][8]) {
    if (state.mma_rounding == 0) {
        for (int i = 0; i < 16; ++i) {
            float row[8];
            for (int j = 0; j < 8; ++j) row[j] = c[i][j];
            for (int k = 0; k < 16; ++k)
                for (int j = 0; j < 8; ++j) row[j] += a[i][k] * b[k][j];
            for (int j = 0; j < 8; ++j) c[i][j] = row[j];
        }
        return;
    }
    for (int i = 0; i < 16; ++i) {
        for (int j = 0; j < 8; ++j) {
            float products[16];  // exact: 11 bits times 11 bits
            for (int k = 0; k < 16; ++k) products[k] = a[i][k] * b[k][j];
            c[i][j] = add_products(c[i][j], products);
        }
    }
}

EMU_FAST inline void mma_of_lanes(Group& group) {
    float matrix_a[16][16], matrix_b[16][8], matrix_c[16][8];
    for (int lane = 0; lane < 32; ++lane) {
        const auto& one = *static_cast<MmaLane*>(group.exchange[lane]);
        int g = lane / 4, t = lane % 4 * 2;
        for (int i = 0; i < 4; ++i) {
            int row = g + 8 * (i & 1), k = t + 8 * (i >> 1);
            unpack(one.a[i], matrix_a[row][k], matrix_a[row][k + 1]);
            matrix_c[g + 8 * (i >> 1)][t + (i & 1)] = one.c[i];
        }
        for (int i = 0; i < 2; ++i) unpack(one.b[i], matrix_b[t + 8 * i][g], matrix_b[t + 8 * i + 1][g]);
    }
    mma_16x8x16(matrix_c, matrix_a, matrix_b);
    for (int lane = 0; lane < 32; ++lane) {
        const auto& one = *static_cast<MmaLane*>(group.exchange[lane]);
        for (int i = 0; i < 4; ++i) one.c[i] = matrix_c[lane / 4 + 8 * (i >> 1)][lane % 4 * 2 + (i & 1)];
    }
}

}  // namespace emu

// Fragments as in PTX: g = lane / 4, t = lane % 4; a pair is the lower half first.
// a0 (row g, k 2t), a1 (g + 8, 2t), a2 (g, 2t + 8), a3 (g + 8, 2t + 8); b0 (k 2t, column g), b1 (k 2t + 8, column g);
// c0, c1 (row g, columns 2t, 2t + 1), c2, c3 (row g + 8).
inline void mma_m16n8k16(float* c, const unsigned (&a)[4], const unsigned (&b)[2], EMU_PLACE) {
    emu::MmaLane mine{c, a, b};
    emu::warp_collective(emu::MMA, 0xFFFFFFFFu, &mine, file, line, emu::mma_of_lanes);
}

namespace emu {
struct MatrixLane {
    unsigned* r;
    const void* row;
};
}  // namespace emu

// Lane l names row l % 8 of matrix l / 8 (8 halves, 16 bytes); register i gets matrix i at row lane / 4, pair lane % 4.
inline void load_matrix_x4(unsigned (&r)[4], const void* shared_row, EMU_PLACE) {
    if (reinterpret_cast<uintptr_t>(shared_row) % 16) emu::fail("ldmatrix: the row is not aligned to 16 bytes (%s:%d)", file, line);
    emu::MatrixLane mine{r, shared_row};
    emu::warp_collective(emu::LOAD_MATRIX, 0xFFFFFFFFu, &mine, file, line, [](emu::Group& group) {
        for (int lane = 0; lane < 32; ++lane) {
            for (int i = 0; i < 4; ++i) {
                const void* row = static_cast<emu::MatrixLane*>(group.exchange[8 * i + lane / 4])->row;
                memcpy(&static_cast<emu::MatrixLane*>(group.exchange[lane])->r[i],
                       static_cast<const char*>(row) + lane % 4 * 4, 4);
            }
        }
    });
}

#if __CUDA_ARCH__ >= 800
// The bytes arrive as late as they may, at the wait; until then the destination holds garbage.
inline void copy_async_16(void* shared, const void* global, EMU_PLACE) {
    auto& fiber = *emu::state.current;
    if ((reinterpret_cast<uintptr_t>(shared) | reinterpret_cast<uintptr_t>(global)) % 16)
        emu::fail("cp.async: an address is not aligned to 16 bytes (%s:%d)", file, line);
    if (fiber.n_copies == 64) emu::fail("more than 64 asynchronous copies under way (%s:%d)", file, line);
    memset(shared, emu::POISON, 16);
    fiber.copies[fiber.n_copies++] = emu::PendingCopy{shared, global, fiber.copy_group};
}
inline void copy_async_commit() { ++emu::state.current->copy_group; }
template <int N>
inline void copy_async_wait() {
    auto& fiber = *emu::state.current;
    unsigned kept = 0;
    for (unsigned i = 0; i < fiber.n_copies; ++i) {
        const auto& copy = fiber.copies[i];
        if (copy.group + N < fiber.copy_group) memcpy(copy.to, copy.from, 16);
        else fiber.copies[kept++] = copy;
    }
    fiber.n_copies = kept;
}
#else
inline void copy_async_16(void* shared, const void* global) { memcpy(shared, global, 16); }
inline void copy_async_commit() {}
template <int N>
inline void copy_async_wait() {}
#endif

constexpr int GROUP_THREADS = 128;

// Both factors lie in shared memory, so each thread adds up its own sums: no exchange. Row r, chunk of eight halves k at
// r * 64 + (k XOR r % 8) * 8.
EMU_FAST inline void warpgroup_multiply_64x128x64(float (&c)[64], const void* a, const void* b) {
    const auto half_at = [](const void* rows, int row, int k) {
        return float_from_half(static_cast<const half_bits*>(rows)[row * 64 + ((k / 8) ^ (row % 8)) * 8 + k % 8]);
    };
    const int lane = threadIdx.x % 32, first_row = threadIdx.x / 32 % 4 * 16 + lane / 4;
    for (int i = 0; i < 64; ++i) {
        const int row = first_row + i % 4 / 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
        for (int step = 0; step < 64; step += 16) {
            float products[16];
            for (int k = 0; k < 16; ++k) products[k] = half_at(a, row, step + k) * half_at(b, column, step + k);
            c[i] = emu::add_products(c[i], products);
        }
    }
}

// Barriers that count arrivals and bytes. Fields of the 64 bits: turn, arrivals left, arrivals of a turn, bytes left.
namespace emu {
struct Barrier {
    unsigned turn : 1, left : 15, arrivals : 16;
    int bytes;
};
static_assert(sizeof(Barrier) == sizeof(u64), "as large as the hardware's");
inline Barrier& barrier_at(u64* place) { return *reinterpret_cast<Barrier*>(place); }
inline void end_turn(Barrier& barrier) {
    if (barrier.left == 0 && barrier.bytes == 0) barrier.turn ^= 1, barrier.left = barrier.arrivals;
}
}  // namespace emu
inline void barrier_open(u64* barrier, unsigned arrivals) { emu::barrier_at(barrier) = emu::Barrier{0, arrivals, arrivals, 0}; }
inline unsigned shared_address(const void* shared) { return unsigned(reinterpret_cast<uintptr_t>(shared)); }
inline void publish_barriers() {}
inline void barrier_arrive(u64* barrier) {
    auto& one = emu::barrier_at(barrier);
    if (one.left == 0) emu::fail("a barrier got more arrivals than it was opened for");
    one.left -= 1;
    emu::end_turn(one);
    emu::maybe_yield();
}
inline void barrier_expect(u64* barrier, unsigned bytes) {
    emu::barrier_at(barrier).bytes += int(bytes);
    barrier_arrive(barrier);
}
inline void barrier_wait(u64* barrier, unsigned parity) {
    for (int tries = 0; tries < 1 << 20; ++tries) {
        if (emu::barrier_at(barrier).turn != parity) return;
        emu::push(emu::state.current);
        emu::switch_to(emu::pop());
    }
    emu::fail("a wait at a barrier never ended");
}
inline void copy_bulk(void* shared, const void* global, unsigned bytes, u64* barrier) {
    if ((reinterpret_cast<uintptr_t>(shared) | reinterpret_cast<uintptr_t>(global) | bytes) % 16)
        emu::fail("cp.async.bulk: an address or size is not a multiple of 16 bytes");
    memcpy(shared, global, bytes);
    auto& one = emu::barrier_at(barrier);
    one.bytes -= int(bytes);
    emu::end_turn(one);
}

inline int warp_sum(int x) {
    for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}
inline unsigned warp_max(unsigned x) {
    for (int step = 16; step > 0; step /= 2) x = max(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}
inline unsigned warp_min(unsigned x) { return ~warp_max(~x); }

inline float root_above(float x) { return sqrtf(fmaxf(x, 0x1p-100f)) * (1.f + 0x1p-21f); }
inline float root_below(float x) { return x < 0x1p-100f ? 0.f : sqrtf(x) * (1.f - 0x1p-21f); }

inline double widened(float x) { return x; }
inline double widened(double x) { return x; }
