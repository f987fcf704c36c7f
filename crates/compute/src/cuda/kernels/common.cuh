// What all kernels share: numbers that are f32 or bf16, and sums over a team of threads.
//
// Every argument says in which precision its numbers are stored; arithmetic is f32. The branch on it is
// the same for all threads. NVRTC compiles these files without any header of the toolkit.

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define INFINITY __int_as_float(0x7f800000)

// A tensor's numbers; absent where `start` is zero.
struct Numbers {
    void *start;
    u32 half;
    u32 unused;
};

__device__ inline float widened(u16 x) {
    return __uint_as_float((u32)x << 16);
}

// To the nearest bf16, ties to even.
__device__ inline u16 rounded(float x) {
    u16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}

__device__ inline float get(Numbers x, u64 i) {
    return x.half ? widened(((const u16 *)x.start)[i]) : ((const float *)x.start)[i];
}

__device__ inline void put(Numbers x, u64 i, float value) {
    if (x.half) {
        ((u16 *)x.start)[i] = rounded(value);
    } else {
        ((float *)x.start)[i] = value;
    }
}

struct Four {
    float v[4];
};

// Four numbers at once; `i` is a multiple of four from the start of a tensor.
__device__ inline Four get4(Numbers x, u64 i) {
    Four f;
    if (x.half) {
        uint2 raw = *(const uint2 *)((const u16 *)x.start + i);
        f.v[0] = __uint_as_float(raw.x << 16);
        f.v[1] = __uint_as_float(raw.x & 0xffff0000u);
        f.v[2] = __uint_as_float(raw.y << 16);
        f.v[3] = __uint_as_float(raw.y & 0xffff0000u);
    } else {
        float4 raw = *(const float4 *)((const float *)x.start + i);
        f.v[0] = raw.x, f.v[1] = raw.y, f.v[2] = raw.z, f.v[3] = raw.w;
    }
    return f;
}

__device__ inline void put4(Numbers x, u64 i, Four f) {
    if (x.half) {
        uint2 raw;
        raw.x = rounded(f.v[0]) | (u32)rounded(f.v[1]) << 16;
        raw.y = rounded(f.v[2]) | (u32)rounded(f.v[3]) << 16;
        *(uint2 *)((u16 *)x.start + i) = raw;
    } else {
        *(float4 *)((float *)x.start + i) = make_float4(f.v[0], f.v[1], f.v[2], f.v[3]);
    }
}

// Runs over `n` elements in fours: `four(i)` for whole ones, `one(i)` for the rest.
template <class F, class G>
__device__ inline void each(u64 n, F four, G one) {
    u64 step = (u64)gridDim.x * blockDim.x;
    u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    for (u64 q = first; 4 * q + 3 < n; q += step) {
        four(4 * q);
    }
    if (first < n % 4) {
        one(n - n % 4 + first);
    }
}

// x = f(x, y, z), where absent operands read as zero.
template <class F>
__device__ inline void map(u64 n, Numbers into, Numbers x, Numbers y, Numbers z, F f) {
    each(
        n,
        [=](u64 i) {
            Four a = get4(x, i), b = {}, c = {}, r;
            if (y.start) b = get4(y, i);
            if (z.start) c = get4(z, i);
            for (int k = 0; k < 4; k++) r.v[k] = f(a.v[k], b.v[k], c.v[k]);
            put4(into, i, r);
        },
        [=](u64 i) {
            put(into, i, f(get(x, i), y.start ? get(y, i) : 0.f, z.start ? get(z, i) : 0.f));
        });
}

// A kernel may be launched so that it begins before those in front of it are done. It then reads nothing that they
// write before it has waited, and says when the next may begin.
__device__ inline void after_previous() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ inline void let_next_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// The sum over the lanes of a warp, in every lane.
__device__ inline float warp_sum(float x) {
    for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

__device__ inline float warp_max(float x) {
    for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

// The same over a block of at most 1,024 threads; every thread calls it.
template <class F>
__device__ inline float block_join(float x, float neutral, F warp) {
    __shared__ float parts[32];
    x = warp(x);
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    u32 warps = (blockDim.x + 31) / 32;
    float part = threadIdx.x % 32 < warps ? parts[threadIdx.x % 32] : neutral;
    return warp(part);
}

__device__ inline float block_sum(float x) {
    return block_join(x, 0.f, [](float x) { return warp_sum(x); });
}

__device__ inline float block_max(float x) {
    return block_join(x, -INFINITY, [](float x) { return warp_max(x); });
}

// A function of each number and its derivative; the order is that of `Activation`.
__device__ inline float activated(u32 kind, float x, float *slope) {
    float y;
    if (kind == 0) { // the error-function GELU
        // The integral of the bell curve by Abramowitz and Stegun 7.1.26, whose error is at most 1e-7; the
        // derivative needs the same exponential.
        float bell = expf(-0.5f * x * x), t = 1.f / fmaf(0.23164189f, fabsf(x), 1.f);
        float tail = fmaf(fmaf(fmaf(fmaf(0.5307027145f, t, -0.7265760135f), t, 0.7107068705f), t, -0.142248368f), t, 0.127414796f) * t * bell;
        float integral = x < 0.f ? tail : 1.f - tail;
        *slope = fmaf(x * 0.3989423f, bell, integral);
        y = x * integral;
    } else if (kind == 1) { // GELU by a hyperbolic tangent
        float square = x * x;
        float s = 1.f / (1.f + expf(-1.595769f * x * fmaf(square, 0.044715f, 1.f)));
        y = x * s;
        *slope = fmaf(y * (1.f - s), 1.595769f * fmaf(square, 3.f * 0.044715f, 1.f), s);
    } else if (kind == 2) { // ReLU
        y = x < 0.f ? 0.f : x;
        *slope = x > 0.f ? 1.f : 0.f;
    } else if (kind == 3) { // SiLU
        float s = 1.f / (1.f + expf(-x));
        y = x * s;
        *slope = fmaf(y, 1.f - s, s);
    } else { // the hyperbolic tangent
        y = tanhf(x);
        *slope = 1.f - y * y;
    }
    return y;
}
