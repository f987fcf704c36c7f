// Losses of rows of logits: each turns logits into the gradient of the loss and gives the loss of the row.

// Shows each number of a row, in fours where the row allows it.
template <class F>
__device__ inline void over(u32 cols, Numbers x, u64 first, F show) {
    if (cols % 4 == 0) {
        for (u32 i = 4 * threadIdx.x; i < cols; i += 4 * blockDim.x) {
            Four f = get4(x, first + i);
            for (u32 k = 0; k < 4; k++) show(i + k, f.v[k]);
        }
    } else {
        for (u32 i = threadIdx.x; i < cols; i += blockDim.x) show(i, get(x, first + i));
    }
}

// Cross-entropy with the column that a row should have predicted, with or without a cap on the logits
// (cap * tanh(l / cap)), smoothing (`share`, with the sum `all` of the classes' weights) and weights of
// classes. A block does a row.
extern "C" __global__ void cross_entropy(
    Numbers logits, const u32 *labels, const float *weights, const float *class_weights, float cap,
    float divisor, float share, float all, float *losses, u32 cols) {
    u64 first = (u64)blockIdx.x * cols;
    u32 label = labels[blockIdx.x];
    float weight = weights ? weights[blockIdx.x] : 1.f, slope = weight / divisor;
    float inverse = cap > 0.f ? 1.f / cap : 0.f;
    float max = -INFINITY;
    over(cols, logits, first, [&](u32, float x) {
        if (cap > 0.f) x = cap * tanhf(x * inverse);
        max = fmaxf(max, x);
    });
    max = block_max(max);
    float sum = 0.f, spread = 0.f;
    over(cols, logits, first, [&](u32 i, float x) {
        if (cap > 0.f) x = cap * tanhf(x * inverse);
        sum += expf(x - max);
        if (share > 0.f) spread += (class_weights ? class_weights[i] : 1.f) * (x - max);
    });
    sum = block_sum(sum);
    if (share > 0.f) spread = block_sum(spread);
    float chosen = get(logits, first + label);
    if (cap > 0.f) chosen = cap * tanhf(chosen * inverse);
    __syncthreads();
    float own = 1.f, each = 0.f, total = 1.f;
    if (share > 0.f) {
        own = (1.f - share) * (class_weights ? class_weights[label] : 1.f);
        each = share / cols;
        total = own + each * all;
    }
    if (threadIdx.x == 0) {
        losses[blockIdx.x] = weight * (total * logf(sum) - own * (chosen - max) - each * spread);
    }
    float scale = slope * total / sum;
    auto slope_of = [&](u32 i, float x) {
        if (cap > 0.f) x = cap * tanhf(x * inverse);
        float d = scale * expf(x - max);
        if (each > 0.f) d -= slope * each * (class_weights ? class_weights[i] : 1.f);
        if (i == label) d -= slope * own;
        if (cap > 0.f) d *= 1.f - x * inverse * (x * inverse);
        return d;
    };
    if (cols % 4 == 0) {
        for (u32 i = 4 * threadIdx.x; i < cols; i += 4 * blockDim.x) {
            Four f = get4(logits, first + i);
            for (u32 k = 0; k < 4; k++) f.v[k] = slope_of(i + k, f.v[k]);
            put4(logits, first + i, f);
        }
    } else {
        for (u32 i = threadIdx.x; i < cols; i += blockDim.x) put(logits, first + i, slope_of(i, get(logits, first + i)));
    }
}

// Binary cross-entropy of every logit with its target; a block does a row.
extern "C" __global__ void binary_cross_entropy(
    Numbers x, const float *targets, const float *weights, float divisor, float *losses, u32 cols) {
    u64 first = (u64)blockIdx.x * cols;
    float weight = weights ? weights[blockIdx.x] : 1.f, sum = 0.f;
    for (u32 i = threadIdx.x; i < cols; i += blockDim.x) {
        float logit = get(x, first + i), target = targets[first + i];
        sum += log1pf(expf(-fabsf(logit))) + fmaxf(logit, 0.f) - logit * target;
        put(x, first + i, weight / divisor * (1.f / (1.f + expf(-logit)) - target));
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) losses[blockIdx.x] = weight * sum;
}

// The sum of the rows' losses divided, or added to what is there; one block.
extern "C" __global__ void total(Numbers into, const float *losses, u32 rows, float divisor, u32 adds) {
    __shared__ double sums[256];
    double sum = 0;
    for (u32 i = threadIdx.x; i < rows; i += 256) sum += losses[i];
    sums[threadIdx.x] = sum;
    for (u32 half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0) put(into, 0, (float)(sums[0] / divisor) + (adds ? get(into, 0) : 0.f));
}
