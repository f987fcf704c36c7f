// Attention by tensor cores: bf16 factors, f32 sums. The formulas are those of attention.cu.
//
// A block has four warps. Forward and for the gradients of queries it does 64 queries of a head, 16 a warp,
// and goes through the keys 64 at a time; for the gradients of keys and values it does 64 keys and goes
// through the queries 32 at a time. Scores live in registers only. Heads are as wide as the template says.

#define ROWS 64

// The left factor that 16 columns of a sum make.
__device__ inline void as_left(u32 *a, const float (*c)[4]) {
    a[0] = packed(c[0][0], c[0][1]);
    a[1] = packed(c[0][2], c[0][3]);
    a[2] = packed(c[1][0], c[1][1]);
    a[3] = packed(c[1][2], c[1][3]);
}

__device__ inline float quad_sum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

__device__ inline float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

#define LOG2_E 1.4426950408889634f

template <int D>
__device__ void forward(const Attention &a, Numbers out, float *log_sums) {
    extern __shared__ __align__(16) u16 memory[];
    Tile<D> q = {memory}, k = {q.start + ROWS * Tile<D>::STRIDE}, v = {k.start + ROWS * Tile<D>::STRIDE};
    Span s = span_of(a, a.tiles[2 * blockIdx.x]);
    u32 first = a.tiles[2 * blockIdx.x + 1], head = blockIdx.y, kv_head = head / (a.heads / a.kv_heads);
    u32 count = s.queries - first < ROWS ? s.queries - first : ROWS;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, pair = lane % 4 * 2;
    q.load(ROWS, a.q, s.q_first + first, count, a.q_stride, head * a.width);
    __syncthreads();
    u32 query[D / 16][4];
    for (int c = 0; c < D / 16; c++) q.left(query[c], 16 * warp, 16 * c);
    u32 begin, end, ignored;
    visible(a, s, first, &begin, &ignored);
    visible(a, s, first + count - 1, &ignored, &end);
    float o[D / 8][4] = {}, m[2] = {-INFINITY, -INFINITY}, l[2] = {};
    u32 from[2] = {}, to[2] = {};
    for (int r = 0; r < 2; r++) {
        u32 i = 16 * warp + group + 8 * r;
        if (i < count) visible(a, s, first + i, &from[r], &to[r]);
    }
    for (u32 base = begin; base < end; base += ROWS) {
        u32 rows = end - base < ROWS ? end - base : ROWS;
        __syncthreads();
        k.load(ROWS, s.kv, s.k_first + base, rows, a.kv_stride, a.key_column + kv_head * a.width);
        v.load(ROWS, s.kv, s.k_first + base, rows, a.kv_stride, a.value_column + kv_head * a.width);
        __syncthreads();
        float p[ROWS / 8][4] = {};
#pragma unroll
        for (int c = 0; c < D / 16; c++) {
#pragma unroll
            for (int n = 0; n < ROWS / 16; n++) {
                u32 b[4];
                k.right(b, 16 * n, 16 * c);
                multiply(p[2 * n], query[c], b[0], b[1]);
                multiply(p[2 * n + 1], query[c], b[2], b[3]);
            }
        }
        float most[2] = {m[0], m[1]};
#pragma unroll
        for (int n = 0; n < ROWS / 8; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                u32 key = base + 8 * n + pair + e % 2;
                float score = p[n][e] * a.scale;
                if (a.cap > 0.f) score = a.cap * tanhf(score / a.cap);
                bool seen = key >= from[e / 2] && key < to[e / 2];
                p[n][e] = seen ? score : -INFINITY;
                most[e / 2] = fmaxf(most[e / 2], p[n][e]);
            }
        }
        float before[2];
        for (int r = 0; r < 2; r++) {
            most[r] = quad_max(most[r]);
            // Nothing seen so far: any number in place of the maximum gives zeros.
            float safe = most[r] == -INFINITY ? 0.f : most[r];
            before[r] = exp2f((m[r] - safe) * LOG2_E);
            l[r] *= before[r];
            m[r] = most[r];
            most[r] = safe;
        }
#pragma unroll
        for (int n = 0; n < ROWS / 8; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                p[n][e] = exp2f((p[n][e] - most[e / 2]) * LOG2_E);
                l[e / 2] += p[n][e];
            }
        }
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) o[n][e] *= before[e / 2];
        }
#pragma unroll
        for (int c = 0; c < ROWS / 16; c++) {
            u32 left[4];
            as_left(left, p + 2 * c);
#pragma unroll
            for (int n = 0; n < D / 16; n++) {
                u32 b[4];
                v.right_turned(b, 16 * c, 16 * n);
                multiply(o[2 * n], left, b[0], b[1]);
                multiply(o[2 * n + 1], left, b[2], b[3]);
            }
        }
    }
    for (int r = 0; r < 2; r++) {
        u32 i = 16 * warp + group + 8 * r;
        float sum = quad_sum(l[r]);
        if (i >= count) continue;
        u64 row = s.q_first + first + i;
        u16 *into = (u16 *)out.start + (row * a.heads + head) * a.width;
        float inverse = 1.f / sum;
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            *(u32 *)(into + 8 * n + pair) = packed(o[n][2 * r] * inverse, o[n][2 * r + 1] * inverse);
        }
        if (log_sums && lane % 4 == 0) log_sums[row * a.heads + head] = m[r] + logf(sum);
    }
}

template <int D>
__device__ void query_slopes(
    const Attention &a, Numbers dout, const float *log_sums, const float *inner, Numbers dq, u32 dq_stride) {
    extern __shared__ __align__(16) u16 memory[];
    const int SIZE = ROWS * Tile<D>::STRIDE;
    Tile<D> q = {memory}, d = {memory + SIZE}, k = {memory + 2 * SIZE}, v = {memory + 3 * SIZE};
    Span s = span_of(a, a.tiles[2 * blockIdx.x]);
    u32 first = a.tiles[2 * blockIdx.x + 1], head = blockIdx.y, kv_head = head / (a.heads / a.kv_heads);
    u32 count = s.queries - first < ROWS ? s.queries - first : ROWS;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, pair = lane % 4 * 2;
    q.load(ROWS, a.q, s.q_first + first, count, a.q_stride, head * a.width);
    d.load(ROWS, dout, s.q_first + first, count, a.heads * a.width, head * a.width);
    u32 begin, end, ignored;
    visible(a, s, first, &begin, &ignored);
    visible(a, s, first + count - 1, &ignored, &end);
    float sum[D / 8][4] = {}, log_sum[2] = {}, product[2] = {};
    u32 from[2] = {}, to[2] = {};
    for (int r = 0; r < 2; r++) {
        u32 i = 16 * warp + group + 8 * r;
        if (i >= count) continue;
        u64 at = (u64)(s.q_first + first + i) * a.heads + head;
        visible(a, s, first + i, &from[r], &to[r]);
        log_sum[r] = log_sums[at];
        product[r] = inner[at];
    }
    for (u32 base = begin; base < end; base += ROWS) {
        u32 rows = end - base < ROWS ? end - base : ROWS;
        __syncthreads();
        k.load(ROWS, s.kv, s.k_first + base, rows, a.kv_stride, a.key_column + kv_head * a.width);
        v.load(ROWS, s.kv, s.k_first + base, rows, a.kv_stride, a.value_column + kv_head * a.width);
        __syncthreads();
        // 16 keys at a time: scores, their gradients, and the sum over them.
#pragma unroll
        for (int n = 0; n < ROWS / 16; n++) {
            float p[2][4] = {}, ds[2][4] = {};
#pragma unroll
            for (int c = 0; c < D / 16; c++) {
                u32 left[4], b[4];
                q.left(left, 16 * warp, 16 * c);
                k.right(b, 16 * n, 16 * c);
                multiply(p[0], left, b[0], b[1]);
                multiply(p[1], left, b[2], b[3]);
                d.left(left, 16 * warp, 16 * c);
                v.right(b, 16 * n, 16 * c);
                multiply(ds[0], left, b[0], b[1]);
                multiply(ds[1], left, b[2], b[3]);
            }
#pragma unroll
            for (int j = 0; j < 2; j++) {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    u32 key = base + 16 * n + 8 * j + pair + e % 2;
                    bool seen = key >= from[e / 2] && key < to[e / 2];
                    slope(a, seen, p[j][e], ds[j][e], log_sum[e / 2], product[e / 2], &p[j][e], &ds[j][e]);
                }
            }
            u32 left[4];
            as_left(left, ds);
#pragma unroll
            for (int c = 0; c < D / 16; c++) {
                u32 b[4];
                k.right_turned(b, 16 * n, 16 * c);
                multiply(sum[2 * c], left, b[0], b[1]);
                multiply(sum[2 * c + 1], left, b[2], b[3]);
            }
        }
    }
    for (int r = 0; r < 2; r++) {
        u32 i = 16 * warp + group + 8 * r;
        if (i >= count) continue;
        u16 *into = (u16 *)dq.start + (u64)(s.q_first + first + i) * dq_stride + head * a.width;
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            *(u32 *)(into + 8 * n + pair) = packed(sum[n][2 * r], sum[n][2 * r + 1]);
        }
    }
}

template <int D>
__device__ void key_slopes(const Attention &a, Numbers dout, const float *log_sums, const float *inner, Numbers dkv) {
    const int QUERIES = 32, SIZE = Tile<D>::STRIDE;
    extern __shared__ __align__(16) u16 memory[];
    Tile<D> k = {memory}, v = {memory + ROWS * SIZE}, q = {memory + 2 * ROWS * SIZE};
    Tile<D> d = {memory + (2 * ROWS + QUERIES) * SIZE};
    Span s = span_of(a, a.tiles[2 * blockIdx.x]);
    u32 first = a.tiles[2 * blockIdx.x + 1], kv_head = blockIdx.y, shared_by = a.heads / a.kv_heads;
    u32 count = s.keys - first < ROWS ? s.keys - first : ROWS;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, pair = lane % 4 * 2;
    u32 key_column = a.key_column + kv_head * a.width, value_column = a.value_column + kv_head * a.width;
    k.load(ROWS, s.kv, s.k_first + first, count, a.kv_stride, key_column);
    v.load(ROWS, s.kv, s.k_first + first, count, a.kv_stride, value_column);
    float dk[D / 8][4] = {}, dv[D / 8][4] = {};
    for (u32 head = kv_head * shared_by; head < (kv_head + 1) * shared_by; head++) {
        for (u32 base = 0; base < s.queries; base += QUERIES) {
            u32 rows = s.queries - base < QUERIES ? s.queries - base : QUERIES;
            u32 begin, end, ignored;
            visible(a, s, base, &begin, &ignored);
            visible(a, s, base + rows - 1, &ignored, &end);
            if (end <= first || begin >= first + count) continue;
            __syncthreads();
            q.load(QUERIES, a.q, s.q_first + base, rows, a.q_stride, head * a.width);
            d.load(QUERIES, dout, s.q_first + base, rows, a.heads * a.width, head * a.width);
            __syncthreads();
            // 16 queries at a time, keys by queries.
#pragma unroll
            for (int n = 0; n < QUERIES / 16; n++) {
                float p[2][4] = {}, ds[2][4] = {};
#pragma unroll
                for (int c = 0; c < D / 16; c++) {
                    u32 left[4], b[4];
                    k.left(left, 16 * warp, 16 * c);
                    q.right(b, 16 * n, 16 * c);
                    multiply(p[0], left, b[0], b[1]);
                    multiply(p[1], left, b[2], b[3]);
                    v.left(left, 16 * warp, 16 * c);
                    d.right(b, 16 * n, 16 * c);
                    multiply(ds[0], left, b[0], b[1]);
                    multiply(ds[1], left, b[2], b[3]);
                }
#pragma unroll
                for (int j = 0; j < 2; j++) {
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        u32 i = 16 * n + 8 * j + pair + e;
                        u32 from = 0, to = 0;
                        float log_sum = 0.f, product = 0.f;
                        if (i < rows) {
                            u64 at = (u64)(s.q_first + base + i) * a.heads + head;
                            visible(a, s, base + i, &from, &to);
                            log_sum = log_sums[at];
                            product = inner[at];
                        }
#pragma unroll
                        for (int r = 0; r < 2; r++) {
                            u32 key = first + 16 * warp + group + 8 * r;
                            float *score = &p[j][2 * r + e], *gradient = &ds[j][2 * r + e];
                            bool seen = key >= from && key < to;
                            slope(a, seen, *score, *gradient, log_sum, product, score, gradient);
                        }
                    }
                }
                u32 left[4], turned[4];
                as_left(left, p);
                as_left(turned, ds);
#pragma unroll
                for (int c = 0; c < D / 16; c++) {
                    u32 b[4];
                    d.right_turned(b, 16 * n, 16 * c);
                    multiply(dv[2 * c], left, b[0], b[1]);
                    multiply(dv[2 * c + 1], left, b[2], b[3]);
                    q.right_turned(b, 16 * n, 16 * c);
                    multiply(dk[2 * c], turned, b[0], b[1]);
                    multiply(dk[2 * c + 1], turned, b[2], b[3]);
                }
            }
        }
    }
    for (int r = 0; r < 2; r++) {
        u32 i = 16 * warp + group + 8 * r;
        if (i >= count) continue;
        u16 *into = (u16 *)dkv.start + (u64)(s.k_first + first + i) * a.kv_stride;
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            *(u32 *)(into + key_column + 8 * n + pair) = packed(dk[n][2 * r], dk[n][2 * r + 1]);
            *(u32 *)(into + value_column + 8 * n + pair) = packed(dv[n][2 * r], dv[n][2 * r + 1]);
        }
    }
}

#define WIDTH(D)                                                                                                        \
    extern "C" __global__ void __launch_bounds__(128)                                                                   \
        tensor_attention_##D(Attention a, Numbers out, float *log_sums) {                                               \
        forward<D>(a, out, log_sums);                                                                                   \
    }                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(128) tensor_attention_queries_##D(                                     \
        Attention a, Numbers dout, const float *log_sums, const float *inner, Numbers dq, u32 dq_stride) {              \
        query_slopes<D>(a, dout, log_sums, inner, dq, dq_stride);                                                       \
    }                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(128) tensor_attention_keys_##D(                                        \
        Attention a, Numbers dout, const float *log_sums, const float *inner, Numbers dkv) {                            \
        key_slopes<D>(a, dout, log_sums, inner, dkv);                                                                   \
    }

WIDTH(32)
WIDTH(64)
WIDTH(96)
WIDTH(128)
