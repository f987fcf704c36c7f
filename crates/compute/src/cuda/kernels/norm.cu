// Layer norm and root-mean-square norm, over rows and over groups of columns.
//
//   forward   n = (x - m) r      y = n * weight + bias      r = 1 / sqrt(var + eps)
//   backward  h = dy * weight    dx = r (h - mean h - n mean(h n))     (RMS: m = 0, no mean h)

// A row is the work of one warp, or of a whole block where it is long.
template <bool WIDE>
struct Team {
    __device__ static u32 rank() { return WIDE ? threadIdx.x : threadIdx.x % 32; }
    __device__ static u32 size() { return WIDE ? blockDim.x : 32; }
    __device__ static u64 row() { return WIDE ? blockIdx.x : (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; }
    __device__ static float sum(float x) { return WIDE ? block_sum(x) : warp_sum(x); }
};

// Runs over a row in fours, which `cols` is a multiple of, or one by one.
template <class T, class F, class G>
__device__ inline void over(u32 cols, F four, G one) {
    if (cols % 4 == 0) {
        for (u32 i = 4 * T::rank(); i < cols; i += 4 * T::size()) four(i);
    } else {
        for (u32 i = T::rank(); i < cols; i += T::size()) one(i);
    }
}

// A row of four numbers a thread, which are read once; weights are read before the kernel in front is done.
__device__ inline void forward_at_once(
    u32 centred, float epsilon, Numbers x, Numbers weight, Numbers bias, Numbers y, float *stats, u32 cols) {
    u32 i = 4 * threadIdx.x;
    u64 row = blockIdx.x, first = row * cols;
    bool there = i < cols;
    Four f = {}, w = {}, b = {};
    if (there) w = get4(weight, i);
    if (there && bias.start) b = get4(bias, i);
    after_previous();
    if (there) f = get4(x, first + i);
    float mean = centred ? block_sum(f.v[0] + f.v[1] + (f.v[2] + f.v[3])) / cols : 0.f, square = 0.f;
    for (int k = 0; k < 4; k++) {
        f.v[k] = there ? f.v[k] - mean : 0.f;
        square = fmaf(f.v[k], f.v[k], square);
    }
    float inverse = 1.f / sqrtf(block_sum(square) / cols + epsilon);
    for (int k = 0; k < 4; k++) f.v[k] = fmaf(f.v[k] * inverse, w.v[k], b.v[k]);
    if (there) put4(y, first + i, f);
    if (i == 0) stats[2 * row] = mean, stats[2 * row + 1] = inverse;
}

template <bool WIDE>
__device__ void forward(
    u32 centred, float epsilon, Numbers x, Numbers weight, Numbers bias, Numbers y, float *stats, u32 rows, u32 cols) {
    typedef Team<WIDE> T;
    let_next_begin();
    if (WIDE && cols % 4 == 0 && cols <= 4 * blockDim.x) {
        return forward_at_once(centred, epsilon, x, weight, bias, y, stats, cols);
    }
    after_previous();
    u64 row = T::row();
    if (row >= rows) return;
    u64 first = row * cols;
    float mean = 0.f;
    if (centred) {
        over<T>(
            cols,
            [&](u32 i) {
                Four f = get4(x, first + i);
                mean += f.v[0] + f.v[1] + (f.v[2] + f.v[3]);
            },
            [&](u32 i) { mean += get(x, first + i); });
        mean = T::sum(mean) / cols;
    }
    float square = 0.f;
    auto squared = [&](float x) {
        float d = x - mean;
        square = fmaf(d, d, square);
    };
    over<T>(
        cols,
        [&](u32 i) {
            Four f = get4(x, first + i);
            for (int k = 0; k < 4; k++) squared(f.v[k]);
        },
        [&](u32 i) { squared(get(x, first + i)); });
    float inverse = 1.f / sqrtf(T::sum(square) / cols + epsilon);
    over<T>(
        cols,
        [&](u32 i) {
            Four f = get4(x, first + i), w = get4(weight, i), b = {};
            if (bias.start) b = get4(bias, i);
            for (int k = 0; k < 4; k++) f.v[k] = fmaf((f.v[k] - mean) * inverse, w.v[k], b.v[k]);
            put4(y, first + i, f);
        },
        [&](u32 i) {
            float n = (get(x, first + i) - mean) * inverse;
            put(y, first + i, fmaf(n, get(weight, i), bias.start ? get(bias, i) : 0.f));
        });
    if (T::rank() == 0) {
        stats[2 * row] = mean;
        stats[2 * row + 1] = inverse;
    }
}

extern "C" __global__ void norm_rows(
    u32 centred, float epsilon, Numbers x, Numbers weight, Numbers bias, Numbers y, float *stats, u32 rows, u32 cols) {
    forward<false>(centred, epsilon, x, weight, bias, y, stats, rows, cols);
}

extern "C" __global__ void __launch_bounds__(1024) norm_rows_wide(
    u32 centred, float epsilon, Numbers x, Numbers weight, Numbers bias, Numbers y, float *stats, u32 rows, u32 cols) {
    forward<true>(centred, epsilon, x, weight, bias, y, stats, rows, cols);
}

template <bool WIDE>
__device__ void backward(
    u32 centred, Numbers x, const float *stats, Numbers weight, Numbers dy, Numbers dx, u32 adds, u32 rows, u32 cols) {
    typedef Team<WIDE> T;
    u64 row = T::row();
    if (row >= rows) return;
    u64 first = row * cols;
    float mean = stats[2 * row], inverse = stats[2 * row + 1], h_sum = 0.f, hn_sum = 0.f;
    auto add = [&](float x, float dy, float weight) {
        float h = dy * weight;
        h_sum += h;
        hn_sum = fmaf(h, (x - mean) * inverse, hn_sum);
    };
    over<T>(
        cols,
        [&](u32 i) {
            Four f = get4(x, first + i), d = get4(dy, first + i), w = get4(weight, i);
            for (int k = 0; k < 4; k++) add(f.v[k], d.v[k], w.v[k]);
        },
        [&](u32 i) { add(get(x, first + i), get(dy, first + i), get(weight, i)); });
    float h_mean = centred ? T::sum(h_sum) / cols : 0.f, hn_mean = T::sum(hn_sum) / cols;
    auto slope = [&](float x, float dy, float weight) {
        return inverse * (dy * weight - h_mean - (x - mean) * inverse * hn_mean);
    };
    over<T>(
        cols,
        [&](u32 i) {
            Four f = get4(x, first + i), d = get4(dy, first + i), w = get4(weight, i), old = {};
            if (adds) old = get4(dx, first + i);
            for (int k = 0; k < 4; k++) f.v[k] = old.v[k] + slope(f.v[k], d.v[k], w.v[k]);
            put4(dx, first + i, f);
        },
        [&](u32 i) {
            float d = slope(get(x, first + i), get(dy, first + i), get(weight, i));
            put(dx, first + i, adds ? get(dx, first + i) + d : d);
        });
}

extern "C" __global__ void norm_backward(
    u32 centred, Numbers x, const float *stats, Numbers weight, Numbers dy, Numbers dx, u32 adds, u32 rows, u32 cols) {
    backward<false>(centred, x, stats, weight, dy, dx, adds, rows, cols);
}

extern "C" __global__ void __launch_bounds__(1024) norm_backward_wide(
    u32 centred, Numbers x, const float *stats, Numbers weight, Numbers dy, Numbers dx, u32 adds, u32 rows, u32 cols) {
    backward<true>(centred, x, stats, weight, dy, dx, adds, rows, cols);
}

// For each run of rows the gradients of weight and of bias: blocks of 128 columns, four a thread, by 8 rows.
extern "C" __global__ void norm_weight_sums(
    Numbers x, const float *stats, Numbers dy, const u32 *starts, const u32 *ends, float *weights, float *biases, u32 cols) {
    u32 column = blockIdx.x * 128 + 4 * threadIdx.x, run = blockIdx.y;
    __shared__ float sums[2][8][128];
    Four weight = {}, bias = {};
    bool whole = cols % 4 == 0;
    for (u32 row = starts[run] + threadIdx.y; column < cols && row < ends[run]; row += 8) {
        u64 i = (u64)row * cols + column;
        float mean = stats[2 * row], inverse = stats[2 * row + 1];
        Four f = {}, d = {};
        if (whole) {
            f = get4(x, i), d = get4(dy, i);
        } else {
            for (u32 k = 0; k < 4 && column + k < cols; k++) f.v[k] = get(x, i + k), d.v[k] = get(dy, i + k);
        }
        for (int k = 0; k < 4; k++) {
            weight.v[k] = fmaf(d.v[k], (f.v[k] - mean) * inverse, weight.v[k]);
            bias.v[k] += d.v[k];
        }
    }
    for (int k = 0; k < 4; k++) {
        sums[0][threadIdx.y][4 * threadIdx.x + k] = weight.v[k];
        sums[1][threadIdx.y][4 * threadIdx.x + k] = bias.v[k];
    }
    __syncthreads();
    u32 thread = 32 * threadIdx.y + threadIdx.x, which = thread / 128, at = thread % 128;
    if (blockIdx.x * 128 + at >= cols) return;
    float sum = 0.f;
    for (int k = 0; k < 8; k++) sum += sums[which][k][at];
    (which ? biases : weights)[(u64)run * cols + blockIdx.x * 128 + at] = sum;
}

// Groups of `width` columns from column `start` on: normalised (epsilon at least 0) and multiplied by a weight.
// A warp does a group.
extern "C" __global__ void scale_groups(
    Numbers x, Numbers weight, float epsilon, u32 rows, u32 cols, u32 start, u32 groups, u32 width) {
    u64 warp = (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (warp >= (u64)rows * groups) return;
    u64 first = warp / groups * cols + start + warp % groups * width;
    u32 lane = threadIdx.x % 32;
    float inverse = 1.f;
    if (epsilon >= 0.f) {
        float square = 0.f;
        for (u32 i = lane; i < width; i += 32) {
            float v = get(x, first + i);
            square = fmaf(v, v, square);
        }
        inverse = 1.f / sqrtf(warp_sum(square) / width + epsilon);
    }
    for (u32 i = lane; i < width; i += 32) put(x, first + i, get(x, first + i) * inverse * get(weight, i));
}

// Adds a row of numbers to `width` columns from column `start` on.
extern "C" __global__ void shift_columns(Numbers x, Numbers by, u32 rows, u32 cols, u32 start, u32 width) {
    u64 step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < (u64)rows * width; i += step) {
        u64 at = i / width * cols + start + i % width;
        put(x, at, get(x, at) + get(by, i % width));
    }
}

// For each row of a weight with its low-rank correction: a magnitude over its norm, and one over its norm. A block does a
// row.
extern "C" __global__ void magnitude_factors(
    Numbers weight, Numbers a, Numbers b, float scale, Numbers magnitude, Numbers factors, Numbers inverses, u32 cols,
    u32 rank) {
    u32 row = blockIdx.x;
    float square = 0.f;
    for (u32 i = threadIdx.x; i < cols; i += blockDim.x) {
        float correction = 0.f;
        for (u32 k = 0; k < rank; k++) {
            correction = fmaf(get(b, (u64)row * rank + k), get(a, (u64)k * cols + i), correction);
        }
        float v = fmaf(scale, correction, get(weight, (u64)row * cols + i));
        square = fmaf(v, v, square);
    }
    float norm = sqrtf(block_sum(square));
    if (threadIdx.x > 0) return;
    put(factors, row, norm > 0.f ? get(magnitude, row) / norm : 0.f);
    put(inverses, row, norm > 0.f ? 1.f / norm : 0.f);
}

// Turns the gradient of normalised groups into that of their input.
extern "C" __global__ void norm_groups_backward(
    Numbers x, Numbers weight, float epsilon, Numbers dy, u32 rows, u32 cols, u32 start, u32 groups, u32 width) {
    u64 warp = (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (warp >= (u64)rows * groups) return;
    u64 first = warp / groups * cols + start + warp % groups * width;
    u32 lane = threadIdx.x % 32;
    float square = 0.f, inner = 0.f;
    for (u32 i = lane; i < width; i += 32) {
        float v = get(x, first + i);
        square = fmaf(v, v, square);
        inner = fmaf(v, get(dy, first + i) * get(weight, i), inner);
    }
    float inverse = 1.f / sqrtf(warp_sum(square) / width + epsilon);
    float mean = warp_sum(inner) * inverse / width;
    for (u32 i = lane; i < width; i += 32) {
        float h = get(dy, first + i) * get(weight, i);
        put(dy, first + i, inverse * (h - get(x, first + i) * inverse * mean));
    }
}

// For each run of rows the gradient of the weight of its groups; a block does a run, a thread some columns.
extern "C" __global__ void group_weight_sums(
    Numbers x, Numbers dy, float epsilon, const u32 *starts, const u32 *ends, float *into, u32 total, u32 column,
    u32 cols, u32 start, u32 groups, u32 width) {
    u32 run = blockIdx.x;
    __shared__ float inverses[32];
    u32 warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (u32 base = 0; base < width; base += blockDim.x) {
        float sum = 0.f;
        u64 pairs = (u64)(ends[run] - starts[run]) * groups;
        for (u64 pair = 0; pair < pairs; pair += warps) {
            if (epsilon >= 0.f) {
                __syncthreads();
                if (pair + warp < pairs) {
                    u64 own = starts[run] + (pair + warp) / groups;
                    u64 first = own * cols + start + (pair + warp) % groups * width;
                    float square = 0.f;
                    for (u32 i = lane; i < width; i += 32) {
                        float v = get(x, first + i);
                        square = fmaf(v, v, square);
                    }
                    square = warp_sum(square);
                    if (lane == 0) inverses[warp] = 1.f / sqrtf(square / width + epsilon);
                }
                __syncthreads();
            }
            u32 i = base + threadIdx.x;
            for (u32 k = 0; i < width && k < warps && pair + k < pairs; k++) {
                u64 row = starts[run] + (pair + k) / groups;
                u64 at = row * cols + start + (pair + k) % groups * width + i;
                float inverse = epsilon >= 0.f ? inverses[k] : 1.f;
                sum = fmaf(get(dy, at), get(x, at) * inverse, sum);
            }
        }
        if (base + threadIdx.x < width) into[(u64)run * total + column + base + threadIdx.x] = sum;
    }
}
