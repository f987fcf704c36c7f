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

// Runs over rows of `width` numbers: `four(row, column)` in fours where the width allows it, else `one`.
template <class F, class G>
__device__ inline void each_of_rows(u32 rows, u32 width, F four, G one) {
    u64 step = (u64)gridDim.x * blockDim.x, at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (width % 4 == 0) {
        u32 fours = width / 4;
        for (u64 i = at; i < (u64)rows * fours; i += step) four(i / fours, 4 * (u32)(i % fours));
    } else {
        for (u64 i = at; i < (u64)rows * width; i += step) one(i / width, (u32)(i % width));
    }
}

// y = activation(gate) * up, where a row of x is gate then up.
extern "C" __global__ void gated(Numbers x, Numbers y, u32 kind, u32 rows, u32 width) {
    each_of_rows(
        rows, width,
        [=](u64 row, u32 i) {
            Four gate = get4(x, row * 2 * width + i), up = get4(x, row * 2 * width + width + i);
            float slope;
            for (int k = 0; k < 4; k++) gate.v[k] = activated(kind, gate.v[k], &slope) * up.v[k];
            put4(y, row * width + i, gate);
        },
        [=](u64 row, u32 i) {
            float slope, gate = get(x, row * 2 * width + i), up = get(x, row * 2 * width + width + i);
            put(y, row * width + i, activated(kind, gate, &slope) * up);
        });
}

extern "C" __global__ void gated_backward(
    Numbers x, Numbers dy, Numbers dx, u32 kind, u32 rows, u32 width) {
    each_of_rows(
        rows, width,
        [=](u64 row, u32 i) {
            u64 at = row * 2 * width + i;
            Four gate = get4(x, at), up = get4(x, at + width), d = get4(dy, row * width + i);
            for (int k = 0; k < 4; k++) {
                float slope, value = activated(kind, gate.v[k], &slope);
                gate.v[k] = d.v[k] * up.v[k] * slope;
                up.v[k] = d.v[k] * value;
            }
            put4(dx, at, gate);
            put4(dx, at + width, up);
        },
        [=](u64 row, u32 i) {
            u64 at = row * 2 * width + i;
            float slope, d = get(dy, row * width + i), value = activated(kind, get(x, at), &slope);
            put(dx, at, d * get(x, at + width) * slope);
            put(dx, at + width, d * value);
        });
}

// Turns the first heads of each row by the angles of its position: feature i with feature i + half.
extern "C" __global__ void rotate(
    Numbers x, const u32 *positions, const float *cosines, const float *sines, float sign, u32 rows,
    u32 cols, u32 heads, u32 half) {
    Numbers c = {(void *)cosines, 0, 0}, s = {(void *)sines, 0, 0};
    bool whole = half % 4 == 0 && cols % 4 == 0;
    u32 width = heads * half;
    auto one = [=](u64 row, u32 i) {
        u32 pair = i % half;
        u64 angle = (u64)positions[row] * half + pair, first = row * cols + i / half * 2 * half + pair;
        float turn = sines[angle] * sign, a = get(x, first), b = get(x, first + half);
        put(x, first, a * cosines[angle] - b * turn);
        put(x, first + half, a * turn + b * cosines[angle]);
    };
    each_of_rows(
        rows, width,
        [=](u64 row, u32 i) {
            if (!whole) {
                for (u32 k = 0; k < 4; k++) one(row, i + k);
                return;
            }
            u32 pair = i % half;
            u64 angle = (u64)positions[row] * half + pair, first = row * cols + i / half * 2 * half + pair;
            Four cosine = get4(c, angle), sine = get4(s, angle), a = get4(x, first), b = get4(x, first + half), r;
            for (int k = 0; k < 4; k++) {
                float turn = sine.v[k] * sign;
                r.v[k] = a.v[k] * cosine.v[k] - b.v[k] * turn;
                b.v[k] = a.v[k] * turn + b.v[k] * cosine.v[k];
            }
            put4(x, first, r);
            put4(x, first + half, b);
        },
        one);
}

// into[i] = factors[i] * x[i], row by row, of the columns of x from `first` on; a factor of zero makes zeros of
// anything. Both may be the same.
extern "C" __global__ void scale_rows(
    Numbers into, Numbers x, const float *factors, u32 rows, u32 cols, u32 first, u32 stride) {
    bool whole = first % 4 == 0 && stride % 4 == 0;
    auto one = [=](u64 row, u32 i) {
        float factor = factors[row];
        put(into, row * cols + i, factor == 0.f ? 0.f : get(x, row * stride + first + i) * factor);
    };
    each_of_rows(
        rows, cols,
        [=](u64 row, u32 i) {
            if (!whole) {
                for (u32 k = 0; k < 4; k++) one(row, i + k);
                return;
            }
            float factor = factors[row];
            Four f = {};
            if (factor != 0.f) f = get4(x, row * stride + first + i);
            for (int k = 0; k < 4; k++) f.v[k] *= factor;
            put4(into, row * cols + i, f);
        },
        one);
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
