// What a kernel of attention is told, for both of its kinds.

struct Attention {
    Numbers q, kv;
    // One tensor of keys and values for each span, where this is not zero.
    const u64 *caches;
    // For each span: first query row, queries, first key row, keys, position of the first query.
    const u32 *spans;
    // Pairs of a span and its first query (or key) of each block.
    const u32 *tiles;
    u32 q_stride, kv_stride, key_column, value_column;
    u32 heads, kv_heads, width, causal;
    // At most 2^30, so that no sum with a position overflows.
    u64 distance;
    float scale, cap;
};

struct Span {
    u32 q_first, queries, k_first, keys, offset;
    Numbers kv;
};

__device__ inline Span span_of(const Attention &a, u32 number) {
    const u32 *s = a.spans + 5 * number;
    Span span = {s[0], s[1], s[2], s[3], s[4], a.kv};
    if (a.caches) span.kv.start = (void *)a.caches[number];
    return span;
}

// The keys that query i sees: from `begin` to before `end`.
__device__ inline void visible(const Attention &a, const Span &s, u32 i, u32 *begin, u32 *end) {
    u32 position = s.offset + i;
    *begin = position > (u32)a.distance ? position - (u32)a.distance : 0;
    u32 last = a.causal ? position : position + (u32)a.distance;
    *end = last + 1 < s.keys ? last + 1 : s.keys;
}

// A probability and the gradient of its score.
__device__ inline void slope(
    const Attention &a, bool seen, float score, float dp, float log_sum, float inner, float *p, float *ds) {
    float bend = 1.f;
    if (a.cap > 0.f) {
        float t = tanhf(score * (a.scale / a.cap));
        bend = fmaf(-t, t, 1.f);
        score = a.cap * t;
    } else {
        score *= a.scale;
    }
    *p = seen ? expf(score - log_sum) : 0.f;
    *ds = *p * (dp - inner) * a.scale * bend;
}

