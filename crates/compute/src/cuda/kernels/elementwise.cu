// One pass over whole tensors.

#define NONE (Numbers{0, 0, 0})

extern "C" __global__ void fill(Numbers x, u64 n, float value) {
    each(
        n,
        [=](u64 i) {
            Four f = {{value, value, value, value}};
            put4(x, i, f);
        },
        [=](u64 i) { put(x, i, value); });
}

// Copies, from one precision to another where they differ.
extern "C" __global__ void convert(Numbers into, Numbers x, u64 n) {
    map(n, into, x, NONE, NONE, [](float x, float, float) { return x; });
}

extern "C" __global__ void multiply(Numbers x, Numbers y, u64 n) {
    map(n, x, x, y, NONE, [](float x, float y, float) { return x * y; });
}

extern "C" __global__ void scale(Numbers x, float factor, u64 n) {
    map(n, x, x, NONE, NONE, [=](float x, float, float) { return x * factor; });
}

extern "C" __global__ void divide(Numbers x, float divisor, u64 n) {
    map(n, x, x, NONE, NONE, [=](float x, float, float) { return x / divisor; });
}

// x *= factor, where the factor is on the device.
extern "C" __global__ void scale_by(Numbers x, Numbers factor, u64 n) {
    float by = get(factor, 0);
    if (by != 1.f) map(n, x, x, NONE, NONE, [=](float x, float, float) { return x * by; });
}

extern "C" __global__ void shift(Numbers into, Numbers x, float offset, u64 n) {
    map(n, into, x, NONE, NONE, [=](float x, float, float) { return x + offset; });
}

extern "C" __global__ void add_scaled(Numbers x, Numbers y, float factor, u64 n) {
    map(n, x, x, y, NONE, [=](float x, float y, float) { return x + factor * y; });
}

extern "C" __global__ void add_scaled_difference(Numbers x, Numbers to, Numbers from, float factor, u64 n) {
    map(n, x, x, to, from, [=](float x, float to, float from) { return x + factor * (to - from); });
}

extern "C" __global__ void subtract(Numbers into, Numbers x, Numbers y, u64 n) {
    map(n, into, x, y, NONE, [](float x, float y, float) { return x - y; });
}

extern "C" __global__ void soft_cap(Numbers x, float cap, u64 n) {
    map(n, x, x, NONE, NONE, [=](float x, float, float) { return cap * tanhf(x / cap); });
}

extern "C" __global__ void soft_cap_backward(Numbers dy, Numbers y, float cap, u64 n) {
    map(n, dy, dy, y, NONE, [=](float dy, float y, float) {
        float t = y / cap;
        return dy * fmaf(-t, t, 1.f);
    });
}

// Applies an activation in place; its derivative is written where wanted.
extern "C" __global__ void activate(Numbers y, Numbers derivative, u32 kind, u64 n) {
    each(
        n,
        [=](u64 i) {
            Four x = get4(y, i), slope;
            for (int k = 0; k < 4; k++) x.v[k] = activated(kind, x.v[k], &slope.v[k]);
            put4(y, i, x);
            if (derivative.start) put4(derivative, i, slope);
        },
        [=](u64 i) {
            float slope, x = activated(kind, get(y, i), &slope);
            put(y, i, x);
            if (derivative.start) put(derivative, i, slope);
        });
}

// y = activation(gate) * up, where a row of x is gate then up.
extern "C" __global__ void gated(Numbers x, Numbers y, u32 kind, u32 rows, u32 width) {
    u64 n = (u64)rows * width, step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        u64 row = i / width, gate = row * 2 * width + i % width;
        float slope;
        put(y, i, activated(kind, get(x, gate), &slope) * get(x, gate + width));
    }
}

extern "C" __global__ void gated_backward(
    Numbers x, Numbers dy, Numbers dx, u32 kind, u32 rows, u32 width) {
    u64 n = (u64)rows * width, step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        u64 row = i / width, gate = row * 2 * width + i % width;
        float slope, d = get(dy, i), value = activated(kind, get(x, gate), &slope);
        put(dx, gate + width, d * value);
        put(dx, gate, d * get(x, gate + width) * slope);
    }
}

// Turns the first heads of each row by the angles of its position: feature i with feature i + half.
extern "C" __global__ void rotate(
    Numbers x, const u32 *positions, const float *cosines, const float *sines, float sign, u32 rows,
    u32 cols, u32 heads, u32 half) {
    u64 n = (u64)rows * heads * half, step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        u32 pair = i % half, head = i / half % heads;
        u64 row = i / half / heads, angle = (u64)positions[row] * half + pair;
        u64 first = row * cols + head * 2 * half + pair;
        float c = cosines[angle], s = sines[angle] * sign;
        float a = get(x, first), b = get(x, first + half);
        put(x, first, a * c - b * s);
        put(x, first + half, a * s + b * c);
    }
}

// x[i] *= factors[i], row by row; a factor of zero makes zeros of anything.
extern "C" __global__ void scale_rows(Numbers into, Numbers x, const float *factors, u32 rows, u32 cols, u32 stride) {
    u64 n = (u64)rows * cols, step = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        u64 row = i / cols;
        float factor = factors[row];
        put(into, i, factor == 0.f ? 0.f : get(x, row * stride + i % cols) * factor);
    }
}

// The sum of squares of each block's share; `total` adds them in order.
extern "C" __global__ void squares(Numbers x, u64 n, double *parts) {
    __shared__ double sums[256];
    double sum = 0;
    each(
        n,
        [&](u64 i) {
            Four f = get4(x, i);
            for (int k = 0; k < 4; k++) sum += (double)f.v[k] * f.v[k];
        },
        [&](u64 i) { sum += (double)get(x, i) * get(x, i); });
    sums[threadIdx.x] = sum;
    for (u32 half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0) parts[blockIdx.x] = sums[0];
}
