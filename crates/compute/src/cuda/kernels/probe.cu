// The attention that a probe counts, from queries, keys and the log-sums of attention: for each span and key head
//
//   sum over its heads, i, j of q_i P_ij k_j      and by key      sum over its heads, i of q_i P_ij
//
// A block does a span and key head: 32 keys at a time, a lane for each, and 16 queries, four a warp.

#define KEYS 32
#define QUERIES 16

__device__ inline void load(float *into, u32 stride, u32 count, Numbers from, u64 row, u32 rows, u32 columns,
                            u32 column, u32 width) {
    for (u32 i = threadIdx.x; i < count * width; i += blockDim.x) {
        u32 r = i / width, c = i % width;
        into[r * stride + c] = r < rows ? get(from, (row + r) * columns + column + c) : 0.f;
    }
}

extern "C" __global__ void __launch_bounds__(128) probe(
    Attention a, const float *log_sums, const float *query_weights, const float *key_weights, u32 key_rows,
    float *received, double *masses) {
    extern __shared__ float memory[];
    __shared__ float by_warp[4][KEYS];
    __shared__ double parts[4];
    float *k = memory, *q = memory + KEYS * (a.width + 1);
    Span s = span_of(a, blockIdx.x);
    u32 kv_head = blockIdx.y, group = a.heads / a.kv_heads;
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    double mass = 0;
    for (u32 base = 0; base < s.keys; base += KEYS) {
        u32 keys = s.keys - base < KEYS ? s.keys - base : KEYS;
        float counts = lane < keys ? key_weights[s.k_first + base + lane] : 0.f;
        if (!__syncthreads_or(received || counts != 0.f)) continue;
        load(k, a.width + 1, KEYS, s.kv, s.k_first + base, keys, a.kv_stride, a.key_column + kv_head * a.width,
             a.width);
        float own = 0.f;
        for (u32 head = kv_head * group; head < (kv_head + 1) * group; head++) {
            for (u32 first = 0; first < s.queries; first += QUERIES) {
                u32 rows = s.queries - first < QUERIES ? s.queries - first : QUERIES;
                __syncthreads();
                load(q, a.width, QUERIES, a.q, s.q_first + first, rows, a.q_stride, head * a.width, a.width);
                __syncthreads();
                for (u32 i = warp * (QUERIES / 4); i < (warp + 1) * (QUERIES / 4) && i < rows; i++) {
                    u64 row = s.q_first + first + i;
                    float weight = query_weights[row];
                    if (weight == 0.f) continue;
                    float score = 0.f;
                    for (u32 c = 0; c < a.width; c++) score = fmaf(q[i * a.width + c], k[lane * (a.width + 1) + c], score);
                    score = a.cap > 0.f ? a.cap * tanhf(score * (a.scale / a.cap)) : score * a.scale;
                    u32 from, to;
                    visible(a, s, first + i, &from, &to);
                    bool seen = lane < keys && base + lane >= from && base + lane < to;
                    float p = seen ? weight * expf(score - log_sums[row * a.heads + head]) : 0.f;
                    own += p;
                    mass += (double)p * counts;
                }
            }
        }
        by_warp[warp][lane] = own;
        __syncthreads();
        if (received && warp == 0 && lane < keys) {
            float sum = by_warp[0][lane] + by_warp[1][lane] + by_warp[2][lane] + by_warp[3][lane];
            received[(u64)kv_head * key_rows + s.k_first + base + lane] = sum;
        }
        __syncthreads();
    }
    for (int step = 16; step > 0; step /= 2) mass += __shfl_xor_sync(0xffffffffu, mass, step);
    if (lane == 0) parts[warp] = mass;
    __syncthreads();
    if (threadIdx.x == 0) masses[(u64)blockIdx.x * a.kv_heads + kv_head] = parts[0] + parts[1] + parts[2] + parts[3];
}
