// One pass over all parameters that change: SGD, momentum or AdamW.

struct Change {
    float *weight, *first, *second;
    Numbers slope;
    // bf16 copy of the weight that products read, if there is one.
    u16 *copy;
    // For a table: the row of `slope` of each of its rows, or ~0 where its gradient is zero.
    const u32 *row_of;
    u64 elements;
    u64 chunk; // its first chunk
    u32 cols, solver;
    float rate, keep, beta1, beta2, epsilon, decay, correction, unused;
};

extern "C" __global__ void optimise(const Change *changes, u32 count, u32 chunk) {
    u32 low = 0, high = count;
    while (high - low > 1) {
        u32 middle = (low + high) / 2;
        if (changes[middle].chunk <= blockIdx.x) low = middle; else high = middle;
    }
    Change c = changes[low];
    u64 first = (blockIdx.x - c.chunk) * chunk;
    for (u64 i = first + threadIdx.x; i < first + chunk && i < c.elements; i += blockDim.x) {
        float g = 0.f, w = c.weight[i];
        if (c.row_of) {
            u32 row = c.row_of[i / c.cols];
            if (row != ~0u) g = get(c.slope, (u64)row * c.cols + i % c.cols);
        } else {
            g = get(c.slope, i);
        }
        if (c.solver == 0) {
            w -= c.rate * fmaf(c.decay, w, g);
        } else if (c.solver == 1) {
            float m = fmaf(c.beta1, c.first[i], fmaf(c.decay, w, g));
            c.first[i] = m;
            w -= c.rate * m;
        } else {
            float m = fmaf(c.beta1, c.first[i], (1.f - c.beta1) * g);
            float v = fmaf(c.beta2, c.second[i], (1.f - c.beta2) * g * g);
            c.first[i] = m;
            c.second[i] = v;
            w = w * c.keep - c.rate * m / (sqrtf(v * c.correction) + c.epsilon);
        }
        c.weight[i] = w;
        if (c.copy) c.copy[i] = rounded(w);
    }
}
