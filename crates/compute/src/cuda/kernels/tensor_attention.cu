// Attention by tensor cores: bf16 factors, f32 sums. The formulas are those of attention.cu. Heads have HEAD
// features, which whoever compiles this defines.
//
// Forward and for the gradients of queries a block does 128 queries of a head (64 of a wide one) and goes through the
// keys; for the gradients of keys and values it does 64 keys and goes through the queries. What it goes through comes in
// steps into two stages of shared memory, so that the next step is on its way while one is computed. Scores live in
// registers only, and no mask is looked at where a warp sees all keys of a step.

#define LOG2_E 1.4426950408889634f
#define LN_2 0.6931471805599453f

constexpr int THREADS = 128;
// Rows of 16 queries that a warp has, and queries of a block.
constexpr int STRIPS = HEAD <= 64 ? 2 : 1, OWN = 16 * STRIPS, QUERIES = THREADS / 32 * OWN;
// Keys of a block, 16 of a warp.
constexpr int KEYS = THREADS / 2;
// Keys of a step through them, and queries of a step through these.
constexpr int KEY_STEP = 64, QUERY_STEP = HEAD <= 64 ? 64 : 32;
// Factors of 16 columns.
constexpr int PARTS = HEAD / 16;
// Blocks that a multiprocessor should have room for.
constexpr int QUERY_BLOCKS = HEAD <= 32 ? 3 : 2, KEY_BLOCKS = HEAD <= 32 ? 4 : HEAD <= 64 ? 3 : 2;

typedef Tile<HEAD> Rows;

__device__ inline float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

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

// Where a thread's numbers of a 16 x 8 sum are: rows `group` and `group + 8`, columns `pair` and `pair + 1`.
struct Lane {
    int warp, group, pair;

    __device__ Lane() : warp(threadIdx.x / 32), group(threadIdx.x % 32 / 4), pair(threadIdx.x % 4 * 2) {}
};

// The queries of a block, and the keys that they see.
struct Queries {
    Span s;
    u32 first, count, head, kv_head, begin, end;
    // What any query of this warp sees, and what all of them see.
    u32 low, high, low_of_all, high_of_all;
    // What each of this thread's queries sees: so many keys from one on.
    u32 from[STRIPS][2], seen[STRIPS][2];

    __device__ Queries(const Attention &a, const Lane &lane) {
        s = span_of(a, a.tiles[2 * blockIdx.x]);
        first = a.tiles[2 * blockIdx.x + 1];
        count = min(s.queries - first, (u32)QUERIES);
        head = blockIdx.y, kv_head = head / (a.heads / a.kv_heads);
        u32 ignored;
        visible(a, s, first, &begin, &ignored);
        visible(a, s, first + count - 1, &ignored, &end);
        low = high = low_of_all = high_of_all = 0;
        u32 own = OWN * lane.warp, last = min(own + OWN, count);
        if (own < last) {
            visible(a, s, first + own, &low, &high_of_all);
            visible(a, s, first + last - 1, &low_of_all, &high);
        }
        for (int m = 0; m < STRIPS; m++) {
            for (int r = 0; r < 2; r++) {
                u32 i = row(lane, m, r), to = 0;
                from[m][r] = 0;
                if (i < count) visible(a, s, first + i, &from[m][r], &to);
                seen[m][r] = to - from[m][r];
            }
        }
    }

    __device__ u32 row(const Lane &lane, int m, int r) const {
        return OWN * lane.warp + 16 * m + lane.group + 8 * r;
    }

    __device__ u32 steps() const {
        return end > begin ? (end - begin + KEY_STEP - 1) / KEY_STEP : 0;
    }

    // Whether some query of this warp sees one of 16 keys.
    __device__ bool sees(u32 key) const {
        return key < high && key + 16 > low;
    }

    // Whether all queries of this warp see all keys of a step.
    __device__ bool sees_all(u32 base) const {
        return base >= low_of_all && base + KEY_STEP <= high_of_all;
    }

    // Begins to copy the keys and values of a step into its stage.
    __device__ void fetch(const Attention &a, u16 *memory, u32 step) const {
        u32 base = begin + step * KEY_STEP, rows = min(end - base, (u32)KEY_STEP), column = kv_head * HEAD;
        keys(memory, step).fetch<KEY_STEP, THREADS>(s.kv, s.k_first + base, rows, a.kv_stride, a.key_column + column);
        values(memory, step).fetch<KEY_STEP, THREADS>(s.kv, s.k_first + base, rows, a.kv_stride, a.value_column + column);
    }

    static __device__ Rows keys(u16 *memory, u32 step) {
        return {memory + step % 2 * (2 * KEY_STEP * Rows::STRIDE)};
    }

    static __device__ Rows values(u16 *memory, u32 step) {
        return {keys(memory, step).start + KEY_STEP * Rows::STRIDE};
    }

    // Calls `compute` for each step with its number, whose keys and values are there.
    template <class F>
    __device__ void each_step(const Attention &a, u16 *memory, F compute) const {
        u32 count = steps();
        for (u32 step = 0; step < count; step++) {
            if (step + 1 < count) fetch(a, memory, step + 1);
            close_group();
            await_groups<1>();
            __syncthreads();
            compute(step);
            __syncthreads();
        }
    }
};

// One step of the forward pass: `most` and `total` are of each row so far, `o` is its sum.
template <bool MASKED>
__device__ __forceinline__ void forward_step(
    const Attention &a, const Lane &lane, const Queries &own, u32 base, Rows k, Rows v, const u32 (&query)[STRIPS][PARTS][4],
    float (&o)[STRIPS][HEAD / 8][4], float (&most)[STRIPS][2], float (&total)[STRIPS][2]) {
    float p[STRIPS][KEY_STEP / 8][4] = {}, by = a.cap > 0.f ? LOG2_E : a.scale * LOG2_E;
#pragma unroll
    for (int n = 0; n < KEY_STEP / 16; n++) {
        if (MASKED && !own.sees(base + 16 * n)) continue;
#pragma unroll
        for (int c = 0; c < PARTS; c++) {
            u32 b[4];
            k.right(b, 16 * n, 16 * c);
#pragma unroll
            for (int m = 0; m < STRIPS; m++) {
                multiply(p[m][2 * n], query[m][c], b[0], b[1]);
                multiply(p[m][2 * n + 1], query[m][c], b[2], b[3]);
            }
        }
    }
    if (a.cap > 0.f) {
#pragma unroll
        for (int i = 0; i < STRIPS * KEY_STEP / 2; i++) {
            float *score = &p[i / (KEY_STEP / 2)][i / 4 % (KEY_STEP / 8)][i % 4];
            *score = a.cap * tanhf(*score * (a.scale / a.cap));
        }
    }
#pragma unroll
    for (int m = 0; m < STRIPS; m++) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float higher = most[m][r];
#pragma unroll
            for (int n = 0; n < KEY_STEP / 8; n++) {
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    float *score = &p[m][n][2 * r + e];
                    u32 key = base + 8 * n + lane.pair + e;
                    if (MASKED && key - own.from[m][r] >= own.seen[m][r]) *score = -INFINITY;
                    higher = fmaxf(higher, *score);
                }
            }
            higher = quad_max(higher);
            // Nothing seen so far: any number in place of the maximum gives zeros.
            float safe = MASKED && higher == -INFINITY ? 0.f : higher;
            float before = power_of_two((most[m][r] - safe) * by), sum = 0.f;
            most[m][r] = higher;
#pragma unroll
            for (int n = 0; n < KEY_STEP / 8; n++) {
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    float *score = &p[m][n][2 * r + e];
                    *score = power_of_two(fmaf(*score, by, -safe * by));
                    sum += *score;
                }
            }
            total[m][r] = fmaf(total[m][r], before, sum);
#pragma unroll
            for (int n = 0; n < HEAD / 8; n++) o[m][n][2 * r] *= before, o[m][n][2 * r + 1] *= before;
        }
    }
#pragma unroll
    for (int n = 0; n < KEY_STEP / 16; n++) {
        if (MASKED && !own.sees(base + 16 * n)) continue;
        u32 left[STRIPS][4];
#pragma unroll
        for (int m = 0; m < STRIPS; m++) as_left(left[m], p[m] + 2 * n);
#pragma unroll
        for (int c = 0; c < PARTS; c++) {
            u32 b[4];
            v.right_turned(b, 16 * n, 16 * c);
#pragma unroll
            for (int m = 0; m < STRIPS; m++) {
                multiply(o[m][2 * c], left[m], b[0], b[1]);
                multiply(o[m][2 * c + 1], left[m], b[2], b[3]);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, QUERY_BLOCKS) tensor_attention(Attention a, Numbers out, float *log_sums) {
    extern __shared__ __align__(16) u16 memory[];
    Lane lane;
    Queries own(a, lane);
    // Queries pass through the second stage.
    Rows q = Queries::keys(memory, 1);
    q.fetch<QUERIES, THREADS>(a.q, own.s.q_first + own.first, own.count, a.q_stride, own.head * HEAD);
    close_group();
    if (own.steps() > 0) own.fetch(a, memory, 0);
    close_group();
    await_groups<1>();
    __syncthreads();
    u32 query[STRIPS][PARTS][4];
#pragma unroll
    for (int i = 0; i < STRIPS * PARTS; i++) q.left(query[i / PARTS][i % PARTS], OWN * lane.warp + 16 * (i / PARTS), 16 * (i % PARTS));
    __syncthreads();
    float o[STRIPS][HEAD / 8][4] = {}, most[STRIPS][2], total[STRIPS][2] = {};
    for (int m = 0; m < STRIPS; m++) most[m][0] = most[m][1] = -INFINITY;
    own.each_step(a, memory, [&](u32 step) {
        u32 base = own.begin + step * KEY_STEP;
        Rows k = Queries::keys(memory, step), v = Queries::values(memory, step);
        if (own.sees_all(base)) {
            forward_step<false>(a, lane, own, base, k, v, query, o, most, total);
        } else if (base < own.high && base + KEY_STEP > own.low) {
            forward_step<true>(a, lane, own, base, k, v, query, o, most, total);
        }
    });
#pragma unroll
    for (int m = 0; m < STRIPS; m++) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float sum = quad_sum(total[m][r]), inverse = 1.f / sum;
            u32 i = own.row(lane, m, r);
            if (i >= own.count) continue;
            u64 at = (u64)(own.s.q_first + own.first + i) * a.heads + own.head;
            u16 *into = (u16 *)out.start + at * HEAD;
#pragma unroll
            for (int n = 0; n < HEAD / 8; n++) {
                *(u32 *)(into + 8 * n + lane.pair) = packed(o[m][n][2 * r] * inverse, o[m][n][2 * r + 1] * inverse);
            }
            if (log_sums && lane.pair == 0) {
                log_sums[at] = most[m][r] * (a.cap > 0.f ? 1.f : a.scale) + LN_2 * log2f(sum);
            }
        }
    }
}

// Turns the scores of two keys (or queries) into probabilities, and the gradients of these into those of scores, but for
// the factor `scale`. `log_sum` is of base two.
template <bool MASKED>
__device__ __forceinline__ void slopes(const Attention &a, bool seen, float log_sum, float inner, float *p, float *ds) {
    float bend = 1.f, score = *p * a.scale;
    if (a.cap > 0.f) {
        float t = tanhf(score / a.cap);
        bend = fmaf(-t, t, 1.f);
        score = a.cap * t;
    }
    *p = power_of_two(fmaf(score, LOG2_E, -log_sum));
    if (MASKED && !seen) *p = 0.f;
    *ds = *p * (*ds - inner) * bend;
}

template <bool MASKED>
__device__ __forceinline__ void query_step(
    const Attention &a, const Lane &lane, const Queries &own, u32 base, Rows k, Rows v, const u32 (&query)[STRIPS][PARTS][4],
    const u32 (&gradient)[STRIPS][PARTS][4], const float (&log_sum)[STRIPS][2], const float (&inner)[STRIPS][2],
    float (&sum)[STRIPS][HEAD / 8][4]) {
#pragma unroll
    for (int n = 0; n < KEY_STEP / 16; n++) {
        if (MASKED && !own.sees(base + 16 * n)) continue;
        float p[STRIPS][2][4] = {}, ds[STRIPS][2][4] = {};
#pragma unroll
        for (int c = 0; c < PARTS; c++) {
            u32 key[4], value[4];
            k.right(key, 16 * n, 16 * c);
            v.right(value, 16 * n, 16 * c);
#pragma unroll
            for (int m = 0; m < STRIPS; m++) {
                multiply(p[m][0], query[m][c], key[0], key[1]);
                multiply(p[m][1], query[m][c], key[2], key[3]);
                multiply(ds[m][0], gradient[m][c], value[0], value[1]);
                multiply(ds[m][1], gradient[m][c], value[2], value[3]);
            }
        }
        u32 left[STRIPS][4];
#pragma unroll
        for (int m = 0; m < STRIPS; m++) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                int j = i / 4, e = i % 4, r = e / 2;
                u32 key = base + 16 * n + 8 * j + lane.pair + e % 2;
                bool seen = key - own.from[m][r] < own.seen[m][r];
                slopes<MASKED>(a, seen, log_sum[m][r], inner[m][r], &p[m][j][e], &ds[m][j][e]);
            }
            as_left(left[m], ds[m]);
        }
#pragma unroll
        for (int c = 0; c < PARTS; c++) {
            u32 b[4];
            k.right_turned(b, 16 * n, 16 * c);
#pragma unroll
            for (int m = 0; m < STRIPS; m++) {
                multiply(sum[m][2 * c], left[m], b[0], b[1]);
                multiply(sum[m][2 * c + 1], left[m], b[2], b[3]);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, QUERY_BLOCKS) tensor_attention_queries(
    Attention a, Numbers dout, const float *log_sums, const float *inner, Numbers dq, u32 dq_stride) {
    extern __shared__ __align__(16) u16 memory[];
    Lane lane;
    Queries own(a, lane);
    // Queries and gradients pass through both stages.
    Rows q = {memory}, d = {memory + QUERIES * Rows::STRIDE};
    u32 row = own.s.q_first + own.first;
    q.fetch<QUERIES, THREADS>(a.q, row, own.count, a.q_stride, own.head * HEAD);
    d.fetch<QUERIES, THREADS>(dout, row, own.count, a.heads * HEAD, own.head * HEAD);
    close_group();
    float log_sum[STRIPS][2] = {}, product[STRIPS][2] = {};
    for (int m = 0; m < STRIPS; m++) {
        for (int r = 0; r < 2; r++) {
            u32 i = own.row(lane, m, r);
            if (i >= own.count) continue;
            log_sum[m][r] = log_sums[(u64)(row + i) * a.heads + own.head] * LOG2_E;
            product[m][r] = inner[(u64)(row + i) * a.heads + own.head];
        }
    }
    await_groups<0>();
    __syncthreads();
    u32 query[STRIPS][PARTS][4], gradient[STRIPS][PARTS][4];
#pragma unroll
    for (int i = 0; i < STRIPS * PARTS; i++) {
        int m = i / PARTS, c = i % PARTS;
        q.left(query[m][c], OWN * lane.warp + 16 * m, 16 * c);
        d.left(gradient[m][c], OWN * lane.warp + 16 * m, 16 * c);
    }
    __syncthreads();
    if (own.steps() > 0) own.fetch(a, memory, 0);
    close_group();
    float sum[STRIPS][HEAD / 8][4] = {};
    own.each_step(a, memory, [&](u32 step) {
        u32 base = own.begin + step * KEY_STEP;
        Rows k = Queries::keys(memory, step), v = Queries::values(memory, step);
        if (own.sees_all(base)) {
            query_step<false>(a, lane, own, base, k, v, query, gradient, log_sum, product, sum);
        } else {
            query_step<true>(a, lane, own, base, k, v, query, gradient, log_sum, product, sum);
        }
    });
#pragma unroll
    for (int m = 0; m < STRIPS; m++) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            u32 i = own.row(lane, m, r);
            if (i >= own.count) continue;
            u16 *into = (u16 *)dq.start + (u64)(row + i) * dq_stride + own.head * HEAD;
#pragma unroll
            for (int n = 0; n < HEAD / 8; n++) {
                float low = sum[m][n][2 * r] * a.scale, high = sum[m][n][2 * r + 1] * a.scale;
                *(u32 *)(into + 8 * n + lane.pair) = packed(low, high);
            }
        }
    }
}

// The left factors of a block's keys or values: in registers, where there is room for them.
struct Held {
    u32 parts[HEAD <= 64 ? PARTS : 1][4];
    Rows from;

    __device__ Held(Rows rows, int row) : from({rows.start + row * Rows::STRIDE}) {
        if (HEAD > 64) return;
#pragma unroll
        for (int c = 0; c < PARTS; c++) from.left(parts[HEAD <= 64 ? c : 0], 0, 16 * c);
    }

    __device__ const u32 *part(int c) {
        if (HEAD <= 64) return parts[c];
        from.left(parts[0], 0, 16 * c);
        return parts[0];
    }
};

// 16 queries from row `at` of their step on: keys by queries.
template <bool MASKED>
__device__ __forceinline__ void key_step(
    const Attention &a, const Lane &lane, const Span &s, u32 query, u32 key, int at, Held &keys, Held &values, Rows q, Rows d,
    const float *log_sums, const float *inner, float (&dk)[HEAD / 8][4], float (&dv)[HEAD / 8][4]) {
    float p[2][4] = {}, ds[2][4] = {};
#pragma unroll
    for (int c = 0; c < PARTS; c++) {
        u32 b[4];
        q.right(b, at, 16 * c);
        const u32 *left = keys.part(c);
        multiply(p[0], left, b[0], b[1]);
        multiply(p[1], left, b[2], b[3]);
        d.right(b, at, 16 * c);
        left = values.part(c);
        multiply(ds[0], left, b[0], b[1]);
        multiply(ds[1], left, b[2], b[3]);
    }
#pragma unroll
    for (int j = 0; j < 2; j++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
            int i = 8 * j + lane.pair + e;
            u32 from = 0, to = 0;
            if (MASKED) visible(a, s, query + i, &from, &to);
            float log_sum = log_sums[at + i] * LOG2_E, product = inner[at + i];
#pragma unroll
            for (int r = 0; r < 2; r++) {
                u32 own = key + lane.group + 8 * r;
                slopes<MASKED>(a, own >= from && own < to, log_sum, product, &p[j][2 * r + e], &ds[j][2 * r + e]);
            }
        }
    }
    u32 left[4], turned[4];
    as_left(left, p);
    as_left(turned, ds);
#pragma unroll
    for (int c = 0; c < PARTS; c++) {
        u32 b[4];
        d.right_turned(b, at, 16 * c);
        multiply(dv[2 * c], left, b[0], b[1]);
        multiply(dv[2 * c + 1], left, b[2], b[3]);
        q.right_turned(b, at, 16 * c);
        multiply(dk[2 * c], turned, b[0], b[1]);
        multiply(dk[2 * c + 1], turned, b[2], b[3]);
    }
}

// The queries that see a key of `count` from `first` on: from `begin` to before `end`.
__device__ inline void seeing(const Attention &a, const Span &s, u32 first, u32 count, u32 *begin, u32 *end) {
    u32 before = a.causal ? 0 : (u32)a.distance;
    u32 lowest = first > before ? first - before : 0, behind = first + count + (u32)a.distance;
    *begin = lowest > s.offset ? lowest - s.offset : 0;
    *end = behind > s.offset ? min(behind - s.offset, s.queries) : 0;
}

extern "C" __global__ void __launch_bounds__(THREADS, KEY_BLOCKS) tensor_attention_keys(
    Attention a, Numbers dout, const float *log_sums, const float *inner, Numbers dkv) {
    extern __shared__ __align__(16) u16 memory[];
    __shared__ float sums[2][2][QUERY_STEP];
    constexpr int SIZE = QUERY_STEP * Rows::STRIDE;
    Lane lane;
    // Keys and values pass through the stages, or stay in front of them.
    Rows k = {memory}, v = {memory + KEYS * Rows::STRIDE};
    u16 *stages = HEAD <= 64 ? memory : memory + 2 * KEYS * Rows::STRIDE;
    Span s = span_of(a, a.tiles[2 * blockIdx.x]);
    u32 first = a.tiles[2 * blockIdx.x + 1], kv_head = blockIdx.y, sharing = a.heads / a.kv_heads;
    u32 count = min(s.keys - first, (u32)KEYS), own = first + 16 * lane.warp;
    u32 key_column = a.key_column + kv_head * HEAD, value_column = a.value_column + kv_head * HEAD;
    k.fetch<KEYS, THREADS>(s.kv, s.k_first + first, count, a.kv_stride, key_column);
    v.fetch<KEYS, THREADS>(s.kv, s.k_first + first, count, a.kv_stride, value_column);
    close_group();
    await_groups<0>();
    __syncthreads();
    Held keys(k, 16 * lane.warp), values(v, 16 * lane.warp);
    __syncthreads();
    u32 begin, end;
    seeing(a, s, first, count, &begin, &end);
    u32 steps = end > begin ? (end - begin + QUERY_STEP - 1) / QUERY_STEP : 0, all = steps * sharing;
    auto fetch = [&](u32 step) {
        u32 head = kv_head * sharing + step / steps, base = begin + step % steps * QUERY_STEP;
        u32 rows = min(end - base, (u32)QUERY_STEP), row = s.q_first + base;
        Rows q = {stages + step % 2 * 2 * SIZE}, d = {q.start + SIZE};
        q.fetch<QUERY_STEP, THREADS>(a.q, row, rows, a.q_stride, head * HEAD);
        d.fetch<QUERY_STEP, THREADS>(dout, row, rows, a.heads * HEAD, head * HEAD);
        // Zeros behind the last query: its score, gradient and product are zero, and so is all that they add.
        if (threadIdx.x < 2 * QUERY_STEP) {
            u32 which = threadIdx.x / QUERY_STEP, i = threadIdx.x % QUERY_STEP;
            u64 at = (u64)(row + (i < rows ? i : 0)) * a.heads + head;
            copy_begun(&sums[step % 2][which][i], (which ? inner : log_sums) + at, i < rows);
        }
    };
    if (all > 0) fetch(0);
    close_group();
    float dk[HEAD / 8][4] = {}, dv[HEAD / 8][4] = {};
    for (u32 step = 0; step < all; step++) {
        if (step + 1 < all) fetch(step + 1);
        close_group();
        await_groups<1>();
        __syncthreads();
        u32 base = begin + step % steps * QUERY_STEP;
        Rows q = {stages + step % 2 * 2 * SIZE}, d = {q.start + SIZE};
        const float *logs = sums[step % 2][0], *products = sums[step % 2][1];
#pragma unroll 2
        for (int at = 0; at < QUERY_STEP; at += 16) {
            u32 query = base + at, last = min(query + 15, end - 1);
            if (query >= end || own >= first + count) continue;
            u32 low, high, low_of_all, high_of_all;
            visible(a, s, query, &low, &high_of_all);
            visible(a, s, last, &low_of_all, &high);
            if (high <= own || low >= own + 16) continue;
            if (low_of_all <= own && high_of_all >= min(own + 16, s.keys)) {
                key_step<false>(a, lane, s, query, own, at, keys, values, q, d, logs, products, dk, dv);
            } else {
                key_step<true>(a, lane, s, query, own, at, keys, values, q, d, logs, products, dk, dv);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        u32 i = 16 * lane.warp + lane.group + 8 * r;
        if (i >= count) continue;
        u16 *into = (u16 *)dkv.start + (u64)(s.k_first + first + i) * a.kv_stride;
#pragma unroll
        for (int n = 0; n < HEAD / 8; n++) {
            float low = dk[n][2 * r] * a.scale, high = dk[n][2 * r + 1] * a.scale;
            *(u32 *)(into + key_column + 8 * n + lane.pair) = packed(low, high);
            *(u32 *)(into + value_column + 8 * n + lane.pair) = packed(dv[n][2 * r], dv[n][2 * r + 1]);
        }
    }
}
