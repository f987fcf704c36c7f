// Products with few rows of bf16. What costs here is reading the weights, once: by warps that add up as they read for up
// to 8 rows, and by tensor cores for up to 32.

// Eight bf16 that are read once.
__device__ inline uint4 streamed(const u16 *x) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(x));
    return v;
}

// A weight of bf16, a row for each output, and its bias.
struct Weight {
    const u16 *start;
    Numbers bias;
    u64 outputs;
};

// The sums over all inputs of P outputs for each row of x; there are at most R rows. Weights that nobody writes are
// read before the kernels in front are done, x behind them.
template <int R, int P>
__device__ inline void dot(const u16 *const (&from)[P], const u16 *x, u32 rows, u32 inputs, float (&sums)[P][R]) {
    constexpr int DEPTH = R > 2 ? 2 : 8 / P;
    u32 lane = threadIdx.x % 32;
    for (int p = 0; p < P; p++) {
        for (int r = 0; r < R; r++) sums[p][r] = 0.f;
    }
    uint4 w[P][DEPTH];
    auto load = [&](u32 first) {
#pragma unroll
        for (int n = 0; n < DEPTH; n++) {
            u32 k = first + 256 * n + 8 * lane;
#pragma unroll
            for (int p = 0; p < P; p++) {
                w[p][n] = k < inputs ? streamed(from[p] + k) : make_uint4(0, 0, 0, 0);
            }
        }
    };
    load(0);
    after_previous();
    for (u32 first = 0; first < inputs; first += 256 * DEPTH) {
        uint4 now[P][DEPTH];
#pragma unroll
        for (int n = 0; n < DEPTH; n++) {
#pragma unroll
            for (int p = 0; p < P; p++) now[p][n] = w[p][n];
        }
        if (first + 256 * DEPTH < inputs) load(first + 256 * DEPTH);
#pragma unroll
        for (int n = 0; n < DEPTH; n++) {
            u32 k = first + 256 * n + 8 * lane;
            if (k >= inputs) break;
            Eight u[P];
#pragma unroll
            for (int p = 0; p < P; p++) u[p] = unpacked(now[p][n]);
#pragma unroll
            for (int r = 0; r < R; r++) {
                Eight y = load8(x + (u64)min((u32)r, rows - 1) * inputs + k);
#pragma unroll
                for (int p = 0; p < P; p++) {
                    for (int i = 0; i < 8; i++) sums[p][r] = fmaf(u[p].v[i], y.v[i], sums[p][r]);
                }
            }
        }
    }
    for (int p = 0; p < P; p++) {
        for (int r = 0; r < R; r++) sums[p][r] = warp_sum(sums[p][r]);
    }
}

// Once per output: not worth the time to compile it in many places.
__device__ __noinline__ float applied(u32 activation, float x) {
    float slope;
    return activation > 4 ? x : activated(activation, x, &slope);
}

// y = activation(x W^T + bias + residual) for weights side by side; a warp for every P outputs.
// An activation above 4 is none.
template <int R, int P>
__device__ inline void few_rows(
    Weight w0, Weight w1, Weight w2, const u16 *x, u32 rows, u32 inputs, Numbers y, Numbers residual, u32 activation) {
    let_next_begin();
    u32 outputs = w0.outputs + w1.outputs + w2.outputs;
    u32 first = P * (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32);
    if (first >= outputs) return;
    const u16 *from[P];
    Numbers biases[P];
    u32 at[P];
#pragma unroll
    for (int p = 0; p < P; p++) {
        u32 output = min(first + p, outputs - 1);
        const Weight *of = &w0;
        if (output >= w0.outputs) {
            output -= w0.outputs, of = &w1;
            if (output >= w1.outputs) output -= w1.outputs, of = &w2;
        }
        from[p] = of->start + (u64)output * inputs;
        biases[p] = of->bias, at[p] = output;
    }
    float sums[P][R];
    dot<R, P>(from, x, rows, inputs, sums);
    if (threadIdx.x % 32 != 0) return;
#pragma unroll
    for (int p = 0; p < P; p++) {
        if (first + p >= outputs) break;
        float bias = biases[p].start ? get(biases[p], at[p]) : 0.f;
#pragma unroll
        for (u32 r = 0; r < R; r++) {
            if (r >= rows) break;
            u64 into = (u64)r * outputs + first + p;
            float sum = sums[p][r] + bias;
            if (residual.start) sum += get(residual, into);
            put(y, into, applied(activation, sum));
        }
    }
}

// y = activation(x G^T + g) * (x U^T + u); a warp for each output.
template <int R>
__device__ inline void few_rows_gated(
    Weight gate, Weight up, const u16 *x, u32 rows, u32 inputs, Numbers y, u32 activation) {
    let_next_begin();
    u32 output = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (output >= gate.outputs) return;
    const u16 *from[2] = {gate.start + (u64)output * inputs, up.start + (u64)output * inputs};
    float sums[2][R];
    dot<R, 2>(from, x, rows, inputs, sums);
    if (threadIdx.x % 32 != 0) return;
#pragma unroll
    for (u32 r = 0; r < R; r++) {
        if (r >= rows) break;
        float g = sums[0][r], u = sums[1][r];
        if (gate.bias.start) g += get(gate.bias, output);
        if (up.bias.start) u += get(up.bias, output);
        put(y, (u64)r * gate.outputs + output, applied(activation, g) * u);
    }
}

// Up to 8 N rows by tensor cores: a block does 16 outputs of P weights, and its four warps share the inputs. A lane reads
// eight inputs of a row at once, for weights and x alike; so the inputs are added up in another order than they lie
// in memory, the same for both.
template <int N, int P>
__device__ inline void some_rows(
    const u16 *const (&from)[P][2], const u16 *x, u32 rows, u32 inputs, float (&sums)[4][P][N][4][32]) {
    constexpr int DEPTH = 4 / P, STEP = 128;
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, own = 32 * warp + 8 * (lane % 4);
    uint4 w[DEPTH][P][2];
    float c[P][N][4] = {};
    auto load = [&](u32 first) {
#pragma unroll
        for (int n = 0; n < DEPTH; n++) {
            u32 k = first + STEP * n + own;
#pragma unroll
            for (int p = 0; p < P; p++) {
                for (int h = 0; h < 2; h++) w[n][p][h] = k < inputs ? streamed(from[p][h] + k) : make_uint4(0, 0, 0, 0);
            }
        }
    };
    load(0);
    after_previous();
    for (u32 first = 0; first < inputs; first += STEP * DEPTH) {
        uint4 now[DEPTH][P][2];
#pragma unroll
        for (int i = 0; i < DEPTH * P * 2; i++) now[i / (2 * P)][i / 2 % P][i % 2] = w[i / (2 * P)][i / 2 % P][i % 2];
        if (first + STEP * DEPTH < inputs) load(first + STEP * DEPTH);
#pragma unroll
        for (int n = 0; n < DEPTH; n++) {
            u32 k = first + STEP * n + own;
            if (first + STEP * n + 32 * warp >= inputs) break;
#pragma unroll
            for (int tile = 0; tile < N; tile++) {
                u64 row = min(8 * tile + lane / 4, rows - 1);
                uint4 b = k < inputs ? *(const uint4 *)(x + row * inputs + k) : make_uint4(0, 0, 0, 0);
#pragma unroll
                for (int p = 0; p < P; p++) {
                    uint4 low = now[n][p][0], high = now[n][p][1];
                    u32 one[4] = {low.x, high.x, low.y, high.y}, other[4] = {low.z, high.z, low.w, high.w};
                    multiply(c[p][tile], one, b.x, b.y);
                    multiply(c[p][tile], other, b.z, b.w);
                }
            }
        }
    }
#pragma unroll
    for (int i = 0; i < P * N * 4; i++) sums[warp][i / (4 * N)][i / 4 % N][i % 4][lane] = c[i / (4 * N)][i / 4 % N][i % 4];
    __syncthreads();
}

// The sum for an output of the block and a row.
template <int N, int P>
__device__ inline float some_sum(const float (&sums)[4][P][N][4][32], int p, u32 output, u32 row) {
    float sum = 0.f;
    u32 i = output / 8 * 2 + row % 2, lane = 4 * (output % 8) + row % 8 / 2;
    for (int warp = 0; warp < 4; warp++) sum += sums[warp][p][row / 8][i][lane];
    return sum;
}

template <int N>
__device__ inline void some_rows_side_by_side(
    Weight w0, Weight w1, Weight w2, const u16 *x, u32 rows, u32 inputs, Numbers y, Numbers residual, u32 activation) {
    let_next_begin();
    __shared__ float sums[4][1][N][4][32];
    u32 outputs = w0.outputs + w1.outputs + w2.outputs, first = 16 * blockIdx.x;
    auto of = [&](u32 output, u32 *at) -> const Weight & {
        *at = output;
        if (output < w0.outputs) return w0;
        *at -= w0.outputs;
        if (*at < w1.outputs) return w1;
        *at -= w1.outputs;
        return w2;
    };
    const u16 *from[1][2];
    for (int h = 0; h < 2; h++) {
        u32 at, output = min(first + threadIdx.x % 32 / 4 + 8 * h, outputs - 1);
        const u16 *start = of(output, &at).start;
        from[0][h] = start + (u64)at * inputs;
    }
    some_rows<N, 1>(from, x, rows, inputs, sums);
    for (u32 i = threadIdx.x; i < 16 * rows; i += blockDim.x) {
        u32 row = i / 16, output = first + i % 16, at;
        if (output >= outputs) continue;
        Numbers bias = of(output, &at).bias;
        float sum = some_sum<N, 1>(sums, 0, i % 16, row);
        if (bias.start) sum += get(bias, at);
        u64 into = (u64)row * outputs + output;
        if (residual.start) sum += get(residual, into);
        put(y, into, applied(activation, sum));
    }
}

template <int N>
__device__ inline void some_rows_gated(
    Weight gate, Weight up, const u16 *x, u32 rows, u32 inputs, Numbers y, u32 activation) {
    let_next_begin();
    __shared__ float sums[4][2][N][4][32];
    u32 outputs = gate.outputs, first = 16 * blockIdx.x;
    const u16 *from[2][2];
    for (int h = 0; h < 2; h++) {
        u64 output = min(first + threadIdx.x % 32 / 4 + 8 * h, outputs - 1);
        from[0][h] = gate.start + output * inputs, from[1][h] = up.start + output * inputs;
    }
    some_rows<N, 2>(from, x, rows, inputs, sums);
    for (u32 i = threadIdx.x; i < 16 * rows; i += blockDim.x) {
        u32 row = i / 16, output = first + i % 16;
        if (output >= outputs) continue;
        float g = some_sum<N, 2>(sums, 0, i % 16, row), u = some_sum<N, 2>(sums, 1, i % 16, row);
        if (gate.bias.start) g += get(gate.bias, output);
        if (up.bias.start) u += get(up.bias, output);
        put(y, (u64)row * outputs + output, applied(activation, g) * u);
    }
}

#define FEW_ROWS(R, P)                                                                                  \
    extern "C" __global__ void __launch_bounds__(128) few_rows_##R##_##P(                                \
        Weight w0, Weight w1, Weight w2, const u16 *x, u32 rows, u32 inputs, Numbers y, Numbers residual, \
        u32 activation) {                                                                                \
        few_rows<R, P>(w0, w1, w2, x, rows, inputs, y, residual, activation);                            \
    }
#define GATED(R)                                                                                        \
    extern "C" __global__ void __launch_bounds__(128) few_rows_gated_##R(                                \
        Weight gate, Weight up, const u16 *x, u32 rows, u32 inputs, Numbers y, u32 activation) {         \
        few_rows_gated<R>(gate, up, x, rows, inputs, y, activation);                                     \
    }
FEW_ROWS(1, 1)
FEW_ROWS(1, 2)
FEW_ROWS(2, 2)
FEW_ROWS(4, 2)
FEW_ROWS(8, 2)
GATED(1)
GATED(2)
GATED(4)
GATED(8)

#define SOME_ROWS(N)                                                                                    \
    extern "C" __global__ void __launch_bounds__(128) some_rows_##N(                                     \
        Weight w0, Weight w1, Weight w2, const u16 *x, u32 rows, u32 inputs, Numbers y, Numbers residual, \
        u32 activation) {                                                                                \
        some_rows_side_by_side<N>(w0, w1, w2, x, rows, inputs, y, residual, activation);                 \
    }                                                                                                    \
    extern "C" __global__ void __launch_bounds__(128) some_rows_gated_##N(                               \
        Weight gate, Weight up, const u16 *x, u32 rows, u32 inputs, Numbers y, u32 activation) {         \
        some_rows_gated<N>(gate, up, x, rows, inputs, y, activation);                                    \
    }
SOME_ROWS(2)
SOME_ROWS(4)
