// The next token of a few sequences: attention of one query over a cache, and the likeliest word.

// Keys that one block reads.
#define CHUNK 128
#define THREADS 256
// Keys that a team of lanes reads at a time.
#define AT_ONCE 4

// Eight features of a head from `first` on, turned by the angles of a row where there are any.
__device__ inline Eight turned(
    const u16 *head, u32 first, u32 half, const float *cosines, const float *sines) {
    Eight x = load8(head + first);
    if (!cosines) return x;
    Eight r;
    if (half % 8 == 0) {
        bool low = first < half;
        u32 pair = low ? first : first - half;
        Eight other = load8(head + (low ? first + half : pair));
        for (u32 k = 0; k < 8; k++) {
            float turn = low ? -sines[pair + k] : sines[pair + k];
            r.v[k] = fmaf(other.v[k], turn, x.v[k] * cosines[pair + k]);
        }
        return r;
    }
    for (u32 k = 0; k < 8; k++) {
        u32 i = first + k;
        bool low = i < half;
        u32 pair = low ? i : i - half;
        float other = widened(head[low ? i + half : i - half]);
        float turn = low ? -sines[pair] : sines[pair];
        r.v[k] = fmaf(other, turn, x.v[k] * cosines[pair]);
    }
    return r;
}

__device__ inline uint4 packed(Eight e) {
    u32 words[4];
    for (int k = 0; k < 4; k++) words[k] = rounded(e.v[2 * k]) | (u32)rounded(e.v[2 * k + 1]) << 16;
    return make_uint4(words[0], words[1], words[2], words[3]);
}

__device__ __noinline__ float capped(float score, float cap) {
    return cap * tanhf(score / cap);
}

// One new token for each span: its key and value are turned, added to the span's cache and read with the rest.
// `a.q` has queries, keys and values side by side. LANES lanes share a key; a block has THREADS / LANES such teams, and
// reads CHUNK keys for G query heads of one key head. The last block of a span's head joins what all have found.
template <int LANES, int G>
__device__ inline void decode_attention(
    const Attention &a, const float *cosines, const float *sines, Numbers out, float *partial, u32 *arrived) {
    constexpr int TEAMS = THREADS / LANES;
    let_next_begin();
    after_previous();
    u32 sharing = a.heads / a.kv_heads, groups = (sharing + G - 1) / G;
    u32 kv_head = blockIdx.y / groups, group = blockIdx.y % groups, number = blockIdx.z;
    Span s = span_of(a, number);
    u32 begin, end;
    visible(a, s, 0, &begin, &end);
    u32 chunks = (end - begin + CHUNK - 1) / CHUNK;
    if (blockIdx.x >= chunks) return;
    u32 first_key = begin + blockIdx.x * CHUNK, last_key = min(first_key + CHUNK, end);
    u32 d = a.width, lane = threadIdx.x % LANES, team = threadIdx.x / LANES, feature = 8 * lane;
    bool works = feature < d;
    const u16 *row = (const u16 *)a.q.start + (u64)s.q_first * a.q_stride;
    if (cosines) cosines += (u64)s.q_first * (d / 2), sines += (u64)s.q_first * (d / 2);
    u32 head = kv_head * sharing + group * G, count = min((u32)G, sharing - group * G);
    Eight q[G], sum[G];
    float most[G], total[G];
    for (int g = 0; g < G; g++) {
        most[g] = -INFINITY, total[g] = 0.f, q[g] = {}, sum[g] = {};
        if (works && g < count) q[g] = turned(row + (head + g) * d, feature, d / 2, cosines, sines);
    }
    u16 *cache = (u16 *)s.kv.start;
    u32 key_at = a.key_column + kv_head * d, value_at = a.value_column + kv_head * d;
    const u16 *new_key = row + a.heads * d + kv_head * d, *new_value = new_key + a.kv_heads * d;
    uint4 own_key = {}, own_value = {};
    if (works && last_key == end) {
        own_key = packed(turned(new_key, feature, d / 2, cosines, sines));
        own_value = *(const uint4 *)(new_value + feature);
    }
    // Several keys at a time, so that loads wait for each other's answers together.
    for (u32 j0 = first_key + team; j0 < first_key + CHUNK; j0 += AT_ONCE * TEAMS) {
        uint4 keys[AT_ONCE], values[AT_ONCE];
#pragma unroll
        for (int n = 0; n < AT_ONCE; n++) {
            u32 j = j0 + n * TEAMS;
            keys[n] = values[n] = make_uint4(0, 0, 0, 0);
            if (!works || j >= last_key) continue;
            u64 at = (u64)j * a.kv_stride + feature;
            if (j != s.offset) {
                keys[n] = *(const uint4 *)(cache + at + key_at);
                values[n] = *(const uint4 *)(cache + at + value_at);
                continue;
            }
            keys[n] = own_key, values[n] = own_value;
            if (group == 0) {
                *(uint4 *)(cache + at + key_at) = keys[n];
                *(uint4 *)(cache + at + value_at) = values[n];
            }
        }
#pragma unroll
        for (int g = 0; g < G; g++) {
            float scores[AT_ONCE], higher = most[g];
#pragma unroll
            for (int n = 0; n < AT_ONCE; n++) {
                Eight k = unpacked(keys[n]);
                float score = 0.f;
                for (int i = 0; i < 8; i++) score = fmaf(q[g].v[i], k.v[i], score);
                for (int step = LANES / 2; step > 0; step /= 2) {
                    score += __shfl_xor_sync(0xffffffffu, score, step);
                }
                score *= a.scale;
                if (a.cap > 0.f) score = capped(score, a.cap);
                scores[n] = j0 + n * TEAMS < last_key ? score : -INFINITY;
                higher = fmaxf(higher, scores[n]);
            }
            if (higher == -INFINITY) continue;
            float before = __expf(most[g] - higher);
            most[g] = higher;
            total[g] *= before;
            for (int i = 0; i < 8; i++) sum[g].v[i] *= before;
#pragma unroll
            for (int n = 0; n < AT_ONCE; n++) {
                Eight v = unpacked(values[n]);
                float p = __expf(scores[n] - higher);
                total[g] += p;
                for (int i = 0; i < 8; i++) sum[g].v[i] = fmaf(p, v.v[i], sum[g].v[i]);
            }
        }
    }
    // Teams join through shared memory, in their order.
    __shared__ float mosts[G][TEAMS], totals[G][TEAMS];
    __shared__ float sums[G][TEAMS][8 * LANES];
    for (int g = 0; g < G; g++) {
        if (lane == 0) mosts[g][team] = most[g], totals[g][team] = total[g];
        for (int i = 0; i < 8; i++) sums[g][team][feature + i] = sum[g].v[i];
    }
    __syncthreads();
    __shared__ bool is_last;
    u64 place = ((u64)number * a.heads + head) * gridDim.x * (d + 2);
    for (u32 at = threadIdx.x; at < count * d; at += blockDim.x) {
        u32 g = at / d, i = at % d;
        float highest = -INFINITY, all = 0.f, joined = 0.f;
        for (int t = 0; t < TEAMS; t++) highest = fmaxf(highest, mosts[g][t]);
        for (int t = 0; t < TEAMS; t++) {
            float share = totals[g][t] > 0.f ? __expf(mosts[g][t] - highest) : 0.f;
            all = fmaf(share, totals[g][t], all);
            joined = fmaf(share, sums[g][t][i], joined);
        }
        if (chunks == 1) {
            put(out, (u64)s.q_first * a.heads * d + (head + g) * d + i, joined / all);
        } else {
            float *into = partial + place + ((u64)g * gridDim.x + blockIdx.x) * (d + 2);
            into[2 + i] = joined;
            if (i == 0) into[0] = highest, into[1] = all;
        }
    }
    if (chunks == 1) return;
    __threadfence();
    __syncthreads();
    u32 *counter = arrived + (u64)number * gridDim.y + blockIdx.y;
    if (threadIdx.x == 0) is_last = atomicAdd(counter, 1u) == chunks - 1;
    __syncthreads();
    if (!is_last) return;
    // The next launch finds it as this one did.
    if (threadIdx.x == 0) *counter = 0;
    __threadfence();
    for (u32 at = threadIdx.x; at < count * d; at += blockDim.x) {
        u32 g = at / d, i = at % d;
        const float *from = partial + place + (u64)g * gridDim.x * (d + 2);
        float highest = -INFINITY, all = 0.f, joined = 0.f;
        for (u32 c = 0; c < chunks; c++) highest = fmaxf(highest, __ldcg(from + (u64)c * (d + 2)));
        for (u32 c = 0; c < chunks; c++) {
            const float *part = from + (u64)c * (d + 2);
            float share = __expf(__ldcg(part) - highest);
            all = fmaf(share, __ldcg(part + 1), all);
            joined = fmaf(share, __ldcg(part + 2 + i), joined);
        }
        put(out, (u64)s.q_first * a.heads * d + (head + g) * d + i, joined / all);
    }
}

#define DECODE_ATTENTION(LANES, G)                                                                      \
    extern "C" __global__ void __launch_bounds__(THREADS) decode_attention_##LANES##_##G(                    \
        Attention a, const float *cosines, const float *sines, Numbers out, float *partial,              \
        u32 *arrived) {                                                                                  \
        decode_attention<LANES, G>(a, cosines, sines, out, partial, arrived);                            \
    }
DECODE_ATTENTION(4, 1)
DECODE_ATTENTION(4, 4)
DECODE_ATTENTION(8, 1)
DECODE_ATTENTION(8, 4)
DECODE_ATTENTION(16, 1)
DECODE_ATTENTION(16, 4)
DECODE_ATTENTION(32, 1)
DECODE_ATTENTION(32, 4)

// For each row the column of its highest number, the first of equal ones; all bits set where one is not a number.
extern "C" __global__ void __launch_bounds__(1024) argmax(Numbers x, u32 cols, u32 *into) {
    __shared__ float values[32];
    __shared__ u32 places[32];
    float value = -INFINITY;
    u32 place = 0xfffffffeu;
    auto join = [&](float other, u32 at) {
        if (place == 0xffffffffu) return;
        bool higher = other > value || (other == value && at < place) || at == 0xffffffffu;
        if (higher) value = other, place = at;
    };
    auto see = [&](float found, u32 at) { join(found, found == found ? at : 0xffffffffu); };
    u64 row = (u64)blockIdx.x * cols;
    u32 whole = cols % 4 == 0 ? cols : 0;
#pragma unroll 4
    for (u32 i = 4 * threadIdx.x; i < whole; i += 4 * blockDim.x) {
        Four four = get4(x, row + i);
        for (u32 k = 0; k < 4; k++) see(four.v[k], i + k);
    }
    for (u32 i = whole + threadIdx.x; i < cols; i += blockDim.x) see(get(x, row + i), i);
    auto over_lanes = [&]() {
        for (int step = 16; step > 0; step /= 2) {
            float other = __shfl_xor_sync(0xffffffffu, value, step);
            u32 at = __shfl_xor_sync(0xffffffffu, place, step);
            join(other, at);
        }
    };
    over_lanes();
    if (threadIdx.x % 32 == 0) values[threadIdx.x / 32] = value, places[threadIdx.x / 32] = place;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    value = values[threadIdx.x], place = places[threadIdx.x];
    over_lanes();
    if (threadIdx.x == 0) into[blockIdx.x] = place;
}
