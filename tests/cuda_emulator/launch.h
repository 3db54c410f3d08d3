// Launches: set the blocks up, run one after the other, and turn crashes into messages.
#pragma once

#include "fibers.h"

#include <type_traits>
#include <utility>

namespace emu {

inline void crash_handler(int number, siginfo_t* info, void* context) {
    (void)context;
    size_t length = describe_place();
    const char* what = number == SIGSEGV || number == SIGBUS ? "access outside of any array, or stack overflow"
                       : number == SIGFPE                    ? "integer division by zero"
                                          : "undefined behaviour (index, alignment, shift, overflow or conversion)";
    length = append(length, "%s", what);
    if (number == SIGSEGV || number == SIGBUS) append(length, " (address %p)", info->si_addr);
#if defined(__x86_64__) && defined(__linux__)
    void* at = reinterpret_cast<void*>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
    Dl_info library;
    if (dladdr(at, &library)) state.crash_offset = static_cast<char*>(at) - static_cast<char*>(library.dli_fbase);
#endif
    siglongjmp(state.crash, 1);
}

inline void* map_memory(size_t size) {
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) abort();
    return memory;
}

inline void prepare() {
    if (state.fibers) return;
    state.fibers = static_cast<Fiber*>(map_memory(sizeof(Fiber) * MAX_THREADS));
    state.stacks = static_cast<unsigned char*>(map_memory(STACK * MAX_THREADS));
    for (unsigned i = 0; i < MAX_THREADS; ++i) mprotect(state.stacks + STACK * i, 4096, PROT_NONE);
    state.shared_region = static_cast<unsigned char*>(map_memory(MAX_SHARED + 4096));
    mprotect(state.shared_region + MAX_SHARED, 4096, PROT_NONE);
}

inline void prepare_fiber(unsigned i) {
    Fiber& fiber = state.fibers[i];
    // Tops of stacks at different offsets, so that they do not compete for the same cache sets.
    unsigned char* top = state.stacks + STACK * (i + 1) - (i % 61) * 192;
#if EMU_ASM_SWITCH
    void** frame = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(top) & ~uintptr_t(63)) - 2;
    frame[0] = reinterpret_cast<void*>(&fiber_main);
    frame[1] = nullptr;
    for (int k = 1; k <= 6; ++k) frame[-k] = nullptr;
    fiber.stack_pointer = frame - 6;
#else
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = state.stacks + STACK * i + 4096;
    fiber.context.uc_stack.ss_size = size_t(top - (state.stacks + STACK * i + 4096));
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, &fiber_main, 0);
#endif
    fiber.index = i;
    fiber.lane = i % WARP;
    fiber.thread = uint3{i % state.block.x, i / state.block.x % state.block.y, i / (state.block.x * state.block.y)};
    fiber.waits_at = RUNNING;
    fiber.n_copies = fiber.copy_group = 0;
}

inline void run_block() {
    for (unsigned i = 0; i < state.n_registered; ++i) memset(state.registered[i].address, POISON, state.registered[i].size);
    size_t room = (state.dynamic_size + 15) / 16 * 16;
    state.dynamic_shared = state.shared_region + MAX_SHARED - room;
    memset(state.dynamic_shared, POISON, room);
    memset(state.dynamic_shared - 64, CANARY, 64);
    memset(state.dynamic_shared + state.dynamic_size, CANARY, room - state.dynamic_size);

    state.first = state.n_ready = state.n_arrived = 0;
    state.n_alive = state.n_threads;
    memset(state.n_groups, 0, sizeof state.n_groups);
    for (unsigned i = 0; i < state.n_threads; ++i) prepare_fiber(i);
    for (unsigned i = 0; i < state.n_threads; ++i) push(&state.fibers[state.reverse ? state.n_threads - 1 - i : i]);
    Fiber* first = pop();
    state.current = first;
#if EMU_ASM_SWITCH
    emu_switch(&state.main_stack_pointer, first->stack_pointer);
#else
    volatile bool started = false;
    getcontext(&state.main_context);
    if (!started) {
        started = true;
        setcontext(&first->context);
    }
#endif
    if (state.failed) return;
    state.current = nullptr;
    bool touched = false;
    for (int i = 0; i < 64; ++i) touched |= state.dynamic_shared[-1 - i] != CANARY;
    for (size_t i = state.dynamic_size; i < room; ++i) touched |= state.dynamic_shared[i] != CANARY;
    if (touched) {
        append(describe_place(), "wrote outside of its dynamic shared memory");
        state.failed = true;
    }
}

inline void read_settings() {
    const char* schedule = getenv("MREACH_EMULATOR_SCHEDULE");
    state.random = schedule && strncmp(schedule, "random", 6) == 0;
    state.reverse = schedule && strcmp(schedule, "reverse") == 0;
    const char* seed = state.random ? strchr(schedule, ':') : nullptr;
    state.random_state = 0x9E3779B97F4A7C15ull * (1 + (seed ? strtoull(seed + 1, nullptr, 10) : 0)) | 1;
    const char* rounding = getenv("MREACH_EMULATOR_ROUNDING");
    const char* const names[] = {"nearest", "truncate", "down", "up", "random"};
    state.mma_rounding = 0;
    for (int i = 0; i < 5; ++i)
        if (rounding && strcmp(rounding, names[i]) == 0) state.mma_rounding = i;
    const char* error = getenv("MREACH_EMULATOR_MMA_ERROR");
    state.mma_error = error ? strtod(error, nullptr) : 0x1p-22;
}

inline int launch(const char* kernel, void (*body)(void**), const unsigned* grid, const unsigned* block, size_t shared,
                  void** arguments) {
    state.kernel = kernel;
    state.body = body;
    state.arguments = arguments;
    state.grid = dim3(grid[0], grid[1], grid[2]);
    state.block = dim3(block[0], block[1], block[2]);
    state.n_threads = block[0] * block[1] * block[2];
    state.dynamic_size = shared;
    state.failed = false;
    state.crash_offset = 0;
    state.message[0] = 0;
    prepare();
    read_settings();

    static unsigned char signal_stack[64 << 10];
    stack_t stack{}, old_stack{};
    stack.ss_sp = signal_stack;
    stack.ss_size = sizeof signal_stack;
    sigaltstack(&stack, &old_stack);
    struct sigaction action {}, old[4];
    action.sa_sigaction = crash_handler;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    const int signals[4] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
    for (int i = 0; i < 4; ++i) sigaction(signals[i], &action, &old[i]);
#if defined(__x86_64__)
    // A GPU does not share the CPU's float environment.
    volatile unsigned float_environment = _mm_getcsr();
    _mm_setcsr(0x1F80);
#endif
    if (sigsetjmp(state.crash, 1) == 0) {
        unsigned n_blocks = grid[0] * grid[1] * grid[2];
        for (unsigned i = 0; i < n_blocks && !state.failed; ++i) {
            unsigned b = state.reverse ? n_blocks - 1 - i : i;
            state.block_index = uint3{b % grid[0], b / grid[0] % grid[1], b / (grid[0] * grid[1])};
            run_block();
        }
    } else {
        state.failed = true;
    }
#if defined(__x86_64__)
    _mm_setcsr(float_environment);
#endif
    for (int i = 0; i < 4; ++i) sigaction(signals[i], &old[i], nullptr);
    sigaltstack(&old_stack, nullptr);
    state.current = nullptr;
    return state.failed;
}

// Kernel parameters, read from the kernel's own type: pointers to the arguments come in their order.
template <class... P, size_t... I>
inline void call(void (*kernel)(P...), void** arguments, std::index_sequence<I...>) {
    kernel(*static_cast<std::remove_cv_t<P>*>(arguments[I])...);
}

template <class... P>
inline void call(void (*kernel)(P...), void** arguments) {
    call(kernel, arguments, std::index_sequence_for<P...>{});
}

template <class T>
inline void describe_type(char*& out) {
    using U = std::remove_cv_t<T>;
    if constexpr (std::is_pointer_v<U>) {
        *out++ = 'P';
        describe_type<std::remove_pointer_t<U>>(out);
    } else {
        *out++ = std::is_same_v<U, void>            ? 'v'
                 : std::is_same_v<U, bool>          ? 'b'
                 : std::is_floating_point_v<U>      ? 'f'
                 : std::is_integral_v<U>            ? (std::is_signed_v<U> ? 'i' : 'u')
                                                    : 's';
        if constexpr (std::is_same_v<U, void>) out += sprintf(out, "0");
        else out += sprintf(out, "%zu", sizeof(U));
    }
}

// For each parameter [P]<kind><bytes>, separated by commas: "Pf4,i4,u8".
template <class... P>
inline const char* signature(void (*)(P...)) {
    static char text[2048];
    char* out = text;
    ((describe_type<P>(out), *out++ = ','), ...);
    if (out != text) --out;
    *out = 0;
    return text;
}

inline int first_of(int n, ...) { return n; }

}  // namespace emu
