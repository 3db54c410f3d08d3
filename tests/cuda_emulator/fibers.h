// The threads of one CUDA block as fibers of one OS thread: switching, barriers, warp collectives, launches.
//
// A fiber runs until it waits at a collective or ends; the last thread to arrive completes the collective for all.
// Nothing else interrupts a fiber, unless MREACH_EMULATOR_SCHEDULE asks for a random order.
#pragma once

#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#if defined(__x86_64__) && !defined(MREACH_EMULATOR_UCONTEXT)
#define EMU_ASM_SWITCH 1
extern "C" __attribute__((visibility("hidden"))) void emu_switch(void** save, void* load);
asm(R"(
    .text
    .p2align 4
    .hidden emu_switch
    .globl emu_switch
    .type emu_switch, @function
emu_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    popq %rcx
    jmp *%rcx
    .size emu_switch, .-emu_switch
)");
#else
#define EMU_ASM_SWITCH 0
#endif

struct uint3 {
    unsigned x, y, z;
};

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

namespace emu {

constexpr unsigned MAX_THREADS = 1024;
constexpr unsigned WARP = 32;
constexpr size_t STACK = 64 << 10;
constexpr size_t MAX_SHARED = 256 << 10;
constexpr unsigned char POISON = 0xA5;
constexpr unsigned char CANARY = 0xC9;

enum Kind { RUNNING, SYNC_THREADS, SYNC_WARP, SHUFFLE, VOTE, LOAD_MATRIX, MMA, DONE };
inline const char* const KIND_NAMES[] = {"running",  "__syncthreads", "__syncwarp", "a __shfl",
                                         "a vote",   "ldmatrix",      "mma",        "done"};

struct PendingCopy {
    void* to;
    const void* from;
    unsigned group;
};

struct Fiber {
#if EMU_ASM_SWITCH
    void* stack_pointer;
#else
    ucontext_t context;
#endif
    uint3 thread;
    unsigned index, lane;
    Kind waits_at;
    unsigned mask;
    const char* file;
    int line;
    unsigned n_copies, copy_group;
    PendingCopy copies[64];
};

// Lanes that have reached a collective of one kind with one mask. What each lane exchanges lies on its own stack.
struct Group {
    unsigned mask, arrived;
    Kind kind;
    const char* file;
    int line;
    void* exchange[WARP];
};

struct Shared {
    void* address;
    size_t size;
};

// One object for all translation units of a library; its addresses are known at link time.
struct State {
    Fiber* current = nullptr;
    dim3 block, grid;
    uint3 block_index{0, 0, 0};
    unsigned char* dynamic_shared = nullptr;

    Fiber* fibers = nullptr;
    unsigned char* stacks = nullptr;
    unsigned char* shared_region = nullptr;
    size_t dynamic_size = 0;
    Shared registered[256];
    unsigned n_registered = 0;

    Fiber* ready[MAX_THREADS];
    unsigned first = 0, n_ready = 0, n_threads = 0, n_alive = 0;
    Group groups[MAX_THREADS / WARP][WARP];
    unsigned n_groups[MAX_THREADS / WARP];

    unsigned n_arrived = 0;
    int votes = 0, barrier_votes = 0;
    const char* barrier_file = nullptr;
    int barrier_line = 0, barrier_operation = 0;

    void (*body)(void**) = nullptr;
    void** arguments = nullptr;
    const char* kernel = "";
    bool random = false, reverse = false;
    uint64_t random_state = 1;
    int mma_rounding = 0;
    double mma_error = 0;

#if EMU_ASM_SWITCH
    void* main_stack_pointer = nullptr;
#else
    ucontext_t main_context;
#endif
    sigjmp_buf crash;
    bool failed = false;
    unsigned long long crash_offset = 0;
    char message[4096];
};
__attribute__((visibility("hidden"))) inline State state;

inline unsigned random_below(unsigned n) {
    uint64_t& s = state.random_state;
    s ^= s << 13;
    s ^= s >> 7;
    s ^= s << 17;
    return unsigned((s >> 33) % n);
}

inline void push(Fiber* fiber) {
    state.ready[(state.first + state.n_ready++) % MAX_THREADS] = fiber;
}

inline Fiber* pop() {
    if (state.n_ready == 0) return nullptr;
    Fiber*& front = state.ready[state.first];
    if (state.random) {
        Fiber*& other = state.ready[(state.first + random_below(state.n_ready)) % MAX_THREADS];
        Fiber* chosen = other;
        other = front;
        front = chosen;
    }
    Fiber* fiber = front;
    state.first = (state.first + 1) % MAX_THREADS;
    --state.n_ready;
    return fiber;
}

inline void switch_to_main() {
#if EMU_ASM_SWITCH
    void* unused;
    emu_switch(&unused, state.main_stack_pointer);
#else
    setcontext(&state.main_context);
#endif
}

inline void switch_to(Fiber* next) {
    Fiber* previous = state.current;
    if (next == previous) return;
    state.current = next;
#if EMU_ASM_SWITCH
    emu_switch(&previous->stack_pointer, next->stack_pointer);
#else
    swapcontext(&previous->context, &next->context);
#endif
}

inline size_t append(size_t length, const char* format, ...) __attribute__((format(printf, 2, 3)));
inline size_t append(size_t length, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int more = vsnprintf(state.message + length, sizeof state.message - length, format, arguments);
    va_end(arguments);
    length += more > 0 ? size_t(more) : 0;
    return length < sizeof state.message ? length : sizeof state.message - 1;
}

inline size_t describe_place() {
    return append(0, "%s, block %u, thread %u: ", state.kernel, state.block_index.x,
                  state.current ? state.current->index : 0);
}

// End the launch with a message; does not return.
[[noreturn]] inline void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));
[[noreturn]] inline void fail(const char* format, ...) {
    size_t length = describe_place();
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(state.message + length, sizeof state.message - length, format, arguments);
    va_end(arguments);
    state.failed = true;
    switch_to_main();
    abort();
}

// No fiber can run any more: say who waits where.
[[noreturn]] inline void fail_deadlock() {
    size_t length = append(0, "%s, block %u: deadlock: ", state.kernel, state.block_index.x);
    bool told[MAX_THREADS] = {};
    unsigned n_done = 0;
    for (unsigned i = 0; i < state.n_threads; ++i) {
        const Fiber& fiber = state.fibers[i];
        if (fiber.waits_at == DONE) ++n_done;
        if (told[i] || fiber.waits_at == DONE) continue;
        unsigned n = 0;
        for (unsigned j = i; j < state.n_threads; ++j) {
            const Fiber& other = state.fibers[j];
            bool same = other.waits_at == fiber.waits_at && other.mask == fiber.mask && other.line == fiber.line &&
                        other.file == fiber.file;
            if (fiber.waits_at != SYNC_THREADS && other.index / WARP != fiber.index / WARP) same = false;
            if (same && !told[j]) told[j] = true, ++n;
        }
        length = append(length, "%u threads from thread %u on wait at %s (%s:%d", n, i, KIND_NAMES[fiber.waits_at],
                        fiber.file, fiber.line);
        if (fiber.waits_at != SYNC_THREADS) length = append(length, ", mask %08x", fiber.mask);
        length = append(length, "); ");
    }
    append(length, "%u threads have exited", n_done);
    state.failed = true;
    switch_to_main();
    abort();
}

inline void wait() {
    Fiber* next = pop();
    if (next == nullptr) fail_deadlock();
    switch_to(next);
}

// Where the order is random, let others run here now and then.
inline void maybe_yield() {
    if (!state.random || random_below(4) != 0) return;
    push(state.current);
    switch_to(pop());
}

inline void wait_at(Kind kind, unsigned mask, const char* file, int line) {
    Fiber* fiber = state.current;
    fiber->waits_at = kind;
    fiber->mask = mask;
    fiber->file = file;
    fiber->line = line;
    wait();
}

inline void wake(Fiber* fiber) {
    fiber->waits_at = RUNNING;
    push(fiber);
}

// operation: 0 none, 1 or, 2 and, 3 count
inline int block_barrier(int operation, bool vote, const char* file, int line) {
    if (state.n_arrived == 0) {
        state.votes = 0;
        state.barrier_file = file;
        state.barrier_line = line;
        state.barrier_operation = operation;
    } else if (state.barrier_line != line || state.barrier_file != file || state.barrier_operation != operation) {
        fail("reached __syncthreads at %s:%d while others wait at %s:%d", file, line, state.barrier_file,
             state.barrier_line);
    }
    state.votes += vote;
    if (++state.n_arrived < state.n_threads) {
        wait_at(SYNC_THREADS, 0, file, line);
        return state.barrier_votes;
    }
    state.n_arrived = 0;
    state.barrier_votes = operation == 1   ? state.votes > 0
                          : operation == 2 ? state.votes == int(state.n_threads)
                                           : state.votes;
    int result = state.barrier_votes;
    for (unsigned i = 0; i < state.n_threads; ++i)
        if (&state.fibers[i] != state.current) wake(&state.fibers[i]);
    maybe_yield();
    return result;
}

// Wait until all lanes of the mask have come here; the last one runs finish(group) before any of them goes on.
template <class Finish>
inline void warp_collective(Kind kind, unsigned mask, void* exchange, const char* file, int line, Finish finish) {
    Fiber* fiber = state.current;
    unsigned lane = fiber->lane, warp = fiber->index / WARP;
    if (!(mask >> lane & 1)) fail("lane %u is not in the mask %08x of %s (%s:%d)", lane, mask, KIND_NAMES[kind], file, line);
    Group* groups = state.groups[warp];
    unsigned& n_groups = state.n_groups[warp];
    unsigned g = 0;
    for (; g < n_groups; ++g) {
        const Group& other = groups[g];
        if (other.mask == mask && other.kind == kind && other.line == line && other.file == file) break;
        // Each would wait for the other for ever.
        if ((other.mask >> lane & 1) && (other.arrived & mask))
            fail("reached %s (%s:%d, mask %08x) while lanes of its mask wait for it at %s (%s:%d, mask %08x)",
                 KIND_NAMES[kind], file, line, mask, KIND_NAMES[other.kind], other.file, other.line, other.mask);
    }
    if (g == n_groups) groups[n_groups++] = Group{mask, 0, kind, file, line, {}};
    Group& group = groups[g];
    group.exchange[lane] = exchange;
    group.arrived |= 1u << lane;
    if (group.arrived != mask) {
        wait_at(kind, mask, file, line);
        return;
    }
    finish(group);
    for (unsigned rest = mask & ~(1u << lane); rest; rest &= rest - 1)
        wake(&state.fibers[warp * WARP + unsigned(__builtin_ctz(rest))]);
    groups[g] = groups[--n_groups];
    maybe_yield();
}

inline void register_shared(void* address, size_t size) {
    if (state.n_registered == sizeof state.registered / sizeof *state.registered) fail("too many __shared__ variables");
    state.registered[state.n_registered++] = Shared{address, size};
    memset(address, POISON, size);
}

inline void fiber_main() {
    state.body(state.arguments);
    state.current->waits_at = DONE;
    --state.n_alive;
    Fiber* next = pop();
    if (next == nullptr) {
        if (state.n_alive) fail_deadlock();
        switch_to_main();
    }
    switch_to(next);
    abort();
}

}  // namespace emu
