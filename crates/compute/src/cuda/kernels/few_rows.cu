// Products with few rows of bf16. What costs here is reading the weights, once.

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
