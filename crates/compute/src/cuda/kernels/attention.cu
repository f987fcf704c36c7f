// Attention over packed sequences, in f32 arithmetic; the matrix of scores exists 32 keys at a time.
//
//   P = exp(s Q K^T - L)    O = P V    L = log-sum-exp of the row
//   dP = dO V^T    dS = s P * (dP - rowsum(O * dO))    dQ = dS K    dK = dS^T Q    dV = P^T dO
//
// With a cap c, s Q K^T becomes c t with t = tanh(s Q K^T / c), and dS is multiplied by 1 - t^2. A block
// does 16 queries (or 16 keys) of a head, a warp four of them; a lane does one key (or query) of 32 for the
// scores and every 32nd feature for the sums. Every sum has a fixed order.

#define OWN 4    // queries (or keys) of a warp
#define BLOCK 16 // of a block

// Copies rows of one head to shared memory as f32, zeros behind the last row or feature.
template <int D>
__device__ inline void load(
    float *into, int stride, int count, Numbers from, u64 row, u32 rows, u32 columns, u32 column, u32 width) {
    for (int i = threadIdx.x; i < count * D; i += blockDim.x) {
        int r = i / D, c = i % D;
        bool there = r < (int)rows && c < (int)width;
        into[r * stride + c] = there ? get(from, (row + r) * columns + column + c) : 0.f;
    }
}

template <int NC>
__device__ void forward(const Attention &a, Numbers out, float *log_sums) {
    const int D = 32 * NC;
    extern __shared__ float memory[];
    float *k = memory, *v = k + 32 * (D + 1), *q = v + 32 * D;
    Span s = span_of(a, a.tiles[2 * blockIdx.x]);
    u32 first = a.tiles[2 * blockIdx.x + 1], head = blockIdx.y, kv_head = head / (a.heads / a.kv_heads);
    u32 count = s.queries - first < BLOCK ? s.queries - first : BLOCK;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    load<D>(q, D, BLOCK, a.q, s.q_first + first, count, a.q_stride, head * a.width, a.width);
    u32 begin, end, ignored;
    visible(a, s, first, &begin, &ignored);
    visible(a, s, first + count - 1, &ignored, &end);
    float o[OWN][NC] = {}, m[OWN], l[OWN] = {};
    u32 from[OWN], to[OWN];
    for (int r = 0; r < OWN; r++) {
        u32 i = OWN * warp + r;
        m[r] = -INFINITY;
        from[r] = to[r] = 0;
        if (i < count) visible(a, s, first + i, &from[r], &to[r]);
    }
    for (u32 base = begin; base < end; base += 32) {
        u32 rows = end - base < 32 ? end - base : 32;
        __syncthreads();
        load<D>(k, D + 1, 32, s.kv, s.k_first + base, rows, a.kv_stride, a.key_column + kv_head * a.width, a.width);
        load<D>(v, D, 32, s.kv, s.k_first + base, rows, a.kv_stride, a.value_column + kv_head * a.width, a.width);
        __syncthreads();
        float p[OWN] = {};
        for (int c = 0; c < D; c++) {
            float key = k[lane * (D + 1) + c];
            for (int r = 0; r < OWN; r++) p[r] = fmaf(q[(OWN * warp + r) * D + c], key, p[r]);
        }
        for (int r = 0; r < OWN; r++) {
            float score = a.cap > 0.f ? a.cap * tanhf(p[r] * (a.scale / a.cap)) : p[r] * a.scale;
            bool seen = base + lane >= from[r] && base + lane < to[r];
            score = seen ? score : -INFINITY;
            float most = fmaxf(m[r], warp_max(score));
            float before = m[r] == -INFINITY ? 0.f : expf(m[r] - most);
            p[r] = seen ? expf(score - most) : 0.f;
            l[r] = l[r] * before + warp_sum(p[r]);
            m[r] = most;
            for (int c = 0; c < NC; c++) o[r][c] *= before;
        }
        for (int j = 0; j < 32; j++) {
            for (int r = 0; r < OWN; r++) {
                float share = __shfl_sync(0xffffffffu, p[r], j);
                for (int c = 0; c < NC; c++) o[r][c] = fmaf(share, v[j * D + lane + 32 * c], o[r][c]);
            }
        }
    }
    for (int r = 0; r < OWN; r++) {
        u32 i = OWN * warp + r;
        if (i >= count) continue;
        u64 row = s.q_first + first + i;
        for (int c = 0; c < NC; c++) {
            u32 feature = lane + 32 * c;
            if (feature < a.width) put(out, (row * a.heads + head) * a.width + feature, o[r][c] / l[r]);
        }
        if (log_sums && lane == 0) log_sums[row * a.heads + head] = m[r] + logf(l[r]);
    }
}

template <int NC>
__device__ void query_slopes(
    const Attention &a, Numbers dout, const float *log_sums, const float *inner, Numbers dq, u32 dq_stride) {
    const int D = 32 * NC;
    extern __shared__ float memory[];
    float *k = memory, *v = k + 32 * (D + 1), *q = v + 32 * (D + 1), *d = q + BLOCK * D;
    Span s = span_of(a, a.tiles[2 * blockIdx.x]);
    u32 first = a.tiles[2 * blockIdx.x + 1], head = blockIdx.y, kv_head = head / (a.heads / a.kv_heads);
    u32 count = s.queries - first < BLOCK ? s.queries - first : BLOCK;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    load<D>(q, D, BLOCK, a.q, s.q_first + first, count, a.q_stride, head * a.width, a.width);
    load<D>(d, D, BLOCK, dout, s.q_first + first, count, a.heads * a.width, head * a.width, a.width);
    u32 begin, end, ignored;
    visible(a, s, first, &begin, &ignored);
    visible(a, s, first + count - 1, &ignored, &end);
    float sum[OWN][NC] = {}, log_sum[OWN] = {}, product[OWN] = {};
    u32 from[OWN] = {}, to[OWN] = {};
    for (int r = 0; r < OWN; r++) {
        u32 i = OWN * warp + r;
        if (i >= count) continue;
        u64 at = (u64)(s.q_first + first + i) * a.heads + head;
        visible(a, s, first + i, &from[r], &to[r]);
        log_sum[r] = log_sums[at];
        product[r] = inner[at];
    }
    for (u32 base = begin; base < end; base += 32) {
        u32 rows = end - base < 32 ? end - base : 32;
        __syncthreads();
        load<D>(k, D + 1, 32, s.kv, s.k_first + base, rows, a.kv_stride, a.key_column + kv_head * a.width, a.width);
        load<D>(v, D + 1, 32, s.kv, s.k_first + base, rows, a.kv_stride, a.value_column + kv_head * a.width, a.width);
        __syncthreads();
        float score[OWN] = {}, dp[OWN] = {}, ds[OWN];
        for (int c = 0; c < D; c++) {
            float key = k[lane * (D + 1) + c], value = v[lane * (D + 1) + c];
            for (int r = 0; r < OWN; r++) {
                score[r] = fmaf(q[(OWN * warp + r) * D + c], key, score[r]);
                dp[r] = fmaf(d[(OWN * warp + r) * D + c], value, dp[r]);
            }
        }
        for (int r = 0; r < OWN; r++) {
            bool seen = base + lane >= from[r] && base + lane < to[r];
            float p;
            slope(a, seen, score[r], dp[r], log_sum[r], product[r], &p, &ds[r]);
        }
        for (int j = 0; j < 32; j++) {
            for (int r = 0; r < OWN; r++) {
                float share = __shfl_sync(0xffffffffu, ds[r], j);
                for (int c = 0; c < NC; c++) sum[r][c] = fmaf(share, k[j * (D + 1) + lane + 32 * c], sum[r][c]);
            }
        }
    }
    for (int r = 0; r < OWN; r++) {
        u32 i = OWN * warp + r;
        for (int c = 0; i < count && c < NC; c++) {
            u32 feature = lane + 32 * c;
            if (feature < a.width) {
                put(dq, (u64)(s.q_first + first + i) * dq_stride + head * a.width + feature, sum[r][c]);
            }
        }
    }
}

template <int NC>
__device__ void key_slopes(const Attention &a, Numbers dout, const float *log_sums, const float *inner, Numbers dkv) {
    const int D = 32 * NC;
    extern __shared__ float memory[];
    float *q = memory, *d = q + 32 * (D + 1), *k = d + 32 * (D + 1), *v = k + BLOCK * D;
    Span s = span_of(a, a.tiles[2 * blockIdx.x]);
    u32 first = a.tiles[2 * blockIdx.x + 1], kv_head = blockIdx.y, group = a.heads / a.kv_heads;
    u32 count = s.keys - first < BLOCK ? s.keys - first : BLOCK;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    u32 key_column = a.key_column + kv_head * a.width, value_column = a.value_column + kv_head * a.width;
    load<D>(k, D, BLOCK, s.kv, s.k_first + first, count, a.kv_stride, key_column, a.width);
    load<D>(v, D, BLOCK, s.kv, s.k_first + first, count, a.kv_stride, value_column, a.width);
    float dk[OWN][NC] = {}, dv[OWN][NC] = {};
    for (u32 head = kv_head * group; head < (kv_head + 1) * group; head++) {
        for (u32 base = 0; base < s.queries; base += 32) {
            u32 rows = s.queries - base < 32 ? s.queries - base : 32;
            u32 begin, end, ignored;
            visible(a, s, base, &begin, &ignored);
            visible(a, s, base + rows - 1, &ignored, &end);
            if (end <= first || begin >= first + count) continue;
            __syncthreads();
            load<D>(q, D + 1, 32, a.q, s.q_first + base, rows, a.q_stride, head * a.width, a.width);
            load<D>(d, D + 1, 32, dout, s.q_first + base, rows, a.heads * a.width, head * a.width, a.width);
            __syncthreads();
            float log_sum = 0.f, product = 0.f;
            u32 from = 0, to = 0;
            if (lane < (int)rows) {
                u64 at = (u64)(s.q_first + base + lane) * a.heads + head;
                visible(a, s, base + lane, &from, &to);
                log_sum = log_sums[at];
                product = inner[at];
            }
            float p[OWN] = {}, dp[OWN] = {}, ds[OWN];
            for (int c = 0; c < D; c++) {
                float query = q[lane * (D + 1) + c], gradient = d[lane * (D + 1) + c];
                for (int r = 0; r < OWN; r++) {
                    p[r] = fmaf(query, k[(OWN * warp + r) * D + c], p[r]);
                    dp[r] = fmaf(gradient, v[(OWN * warp + r) * D + c], dp[r]);
                }
            }
            for (int r = 0; r < OWN; r++) {
                u32 key = first + OWN * warp + r;
                slope(a, key >= from && key < to, p[r], dp[r], log_sum, product, &p[r], &ds[r]);
            }
            for (int j = 0; j < 32; j++) {
                for (int r = 0; r < OWN; r++) {
                    float share = __shfl_sync(0xffffffffu, p[r], j), part = __shfl_sync(0xffffffffu, ds[r], j);
                    for (int c = 0; c < NC; c++) {
                        dv[r][c] = fmaf(share, d[j * (D + 1) + lane + 32 * c], dv[r][c]);
                        dk[r][c] = fmaf(part, q[j * (D + 1) + lane + 32 * c], dk[r][c]);
                    }
                }
            }
        }
    }
    for (int r = 0; r < OWN; r++) {
        u32 i = OWN * warp + r;
        for (int c = 0; i < count && c < NC; c++) {
            u32 feature = lane + 32 * c;
            if (feature >= a.width) continue;
            u64 row = (u64)(s.k_first + first + i) * a.kv_stride + feature;
            put(dkv, row + key_column, dk[r][c]);
            put(dkv, row + value_column, dv[r][c]);
        }
    }
}

#define WIDTH(NC)                                                                                                       \
    extern "C" __global__ void attention_##NC(Attention a, Numbers out, float *log_sums) {                             \
        forward<NC>(a, out, log_sums);                                                                                  \
    }                                                                                                                   \
    extern "C" __global__ void attention_queries_##NC(                                                                 \
        Attention a, Numbers dout, const float *log_sums, const float *inner, Numbers dq, u32 dq_stride) {             \
        query_slopes<NC>(a, dout, log_sums, inner, dq, dq_stride);                                                      \
    }                                                                                                                   \
    extern "C" __global__ void attention_keys_##NC(                                                                    \
        Attention a, Numbers dout, const float *log_sums, const float *inner, Numbers dkv) {                           \
        key_slopes<NC>(a, dout, log_sums, inner, dkv);                                                                  \
    }

// Heads of up to 32, 64, 96, 128 and 256 features.
WIDTH(1)
WIDTH(2)
WIDTH(3)
WIDTH(4)
WIDTH(8)
