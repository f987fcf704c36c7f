// Random draws, the same as the processor's: normal noise from a secret key, and what dropout drops by a seed.

// ---- Noise: ChaCha20 (RFC 8439), then Box and Muller's pairs. Every step is rounded as the processor rounds it.

struct Noised {
    Numbers x;
    u64 count;
    u32 key[8];
};

#define NOISED 64

struct Noise {
    Noised all[NOISED];
    // The first block of each.
    u32 starts[NOISED];
};

__device__ inline u32 rotated(u32 x, u32 by) {
    return __funnelshift_l(x, x, by);
}

__device__ inline void quarter(u32 &a, u32 &b, u32 &c, u32 &d) {
    a += b, d = rotated(d ^ a, 16);
    c += d, b = rotated(b ^ c, 12);
    a += b, d = rotated(d ^ a, 8);
    c += d, b = rotated(b ^ c, 7);
}

// A block of the key's stream.
__device__ inline void block_of(const u32 *key, u32 counter, u32 high, u32 *s) {
    u32 start[16] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574, key[0], key[1], key[2], key[3],
                     key[4],     key[5],     key[6],     key[7],     counter, 4,     high,   0};
#pragma unroll
    for (int i = 0; i < 16; i++) s[i] = start[i];
#pragma unroll
    for (int round = 0; round < 10; round++) {
        quarter(s[0], s[4], s[8], s[12]);
        quarter(s[1], s[5], s[9], s[13]);
        quarter(s[2], s[6], s[10], s[14]);
        quarter(s[3], s[7], s[11], s[15]);
        quarter(s[0], s[5], s[10], s[15]);
        quarter(s[1], s[6], s[11], s[12]);
        quarter(s[2], s[7], s[8], s[13]);
        quarter(s[3], s[4], s[9], s[14]);
    }
#pragma unroll
    for (int i = 0; i < 16; i++) s[i] += start[i];
}

__device__ inline float logarithm(float x) {
    u32 shifted = __float_as_uint(x) - 0x3f3504f3u;
    float n = __int2float_rn((int)shifted >> 23);
    float f = __fadd_rn(__uint_as_float((shifted & 0x007fffffu) + 0x3f3504f3u), -1.f);
    float p = 7.0376836e-2f;
    p = __fmaf_rn(p, f, -0.1151461f);
    p = __fmaf_rn(p, f, 0.116769984f);
    p = __fmaf_rn(p, f, -0.12420141f);
    p = __fmaf_rn(p, f, 0.14249323f);
    p = __fmaf_rn(p, f, -0.16668057f);
    p = __fmaf_rn(p, f, 0.20000714f);
    p = __fmaf_rn(p, f, -0.24999994f);
    p = __fmaf_rn(p, f, 0.3333333f);
    float square = __fmul_rn(f, f);
    float tail = __fmaf_rn(n, -2.1219444e-4f, __fmul_rn(__fmul_rn(p, f), square));
    return __fmaf_rn(n, 0.6933594f, __fadd_rn(f, __fmaf_rn(square, -0.5f, tail)));
}

// Cosine and sine of so many parts of 2^32 of a turn.
__device__ inline void turn(u32 parts, float *cosine, float *sine) {
    u32 quarters = (parts + (1u << 29)) >> 30;
    float x = __fmul_rn(__int2float_rn((int)(parts - (quarters << 30))), 6.2831855f / 4294967296.f);
    float square = __fmul_rn(x, x);
    float s = __fmaf_rn(-1.9515296e-4f, square, 8.332161e-3f);
    s = __fmaf_rn(s, square, -0.16666655f);
    s = __fmaf_rn(__fmul_rn(s, square), x, x);
    float c = __fmaf_rn(2.4433157e-5f, square, -1.3887316e-3f);
    c = __fmaf_rn(c, square, 4.1666646e-2f);
    c = __fmaf_rn(__fmul_rn(c, square), square, __fmaf_rn(square, -0.5f, 1.f));
    float first = quarters & 1 ? -s : c, second = quarters & 1 ? c : s;
    *cosine = quarters & 2 ? -first : first;
    *sine = quarters & 2 ? -second : second;
}

// x += deviation * normal. A group of 512 numbers takes three times 16 blocks of the key's stream; a thread does one
// lane of a group, 32 numbers, and a block 16 groups.
extern "C" __global__ void __launch_bounds__(256)
    add_noise(const __grid_constant__ Noise noise, u32 tensors, float deviation) {
    u32 number = 0;
    while (number + 1 < tensors && noise.starts[number + 1] <= blockIdx.x) number++;
    const Noised &n = noise.all[number];
    u32 lane = threadIdx.x % 16;
    u64 group = (u64)(blockIdx.x - noise.starts[number]) * 16 + threadIdx.x / 16;
    if (group * 512 >= n.count) return;
    u32 high[16], low[16], angle[16];
    auto stream = [&](u32 which, u32 *words) {
        u64 at = group * 48 + which * 16;
        block_of(n.key, (u32)at + lane, (u32)(at >> 32), words);
    };
    stream(0, high);
    stream(1, low);
    stream(2, angle);
    const float UNIT = 1.f / 4294967296.f;
#pragma unroll
    for (int word = 0; word < 16; word++) {
        float fine = __fmul_rn(__fmul_rn(__fadd_rn(__uint2float_rn(low[word]), 0.5f), UNIT), UNIT);
        float uniform = __fmaf_rn(__uint2float_rn(high[word]), UNIT, fine);
        float radius = __fsqrt_rn(fmaxf(__fmul_rn(-2.f, logarithm(uniform)), 0.f)), draw[2];
        turn(angle[word], &draw[0], &draw[1]);
#pragma unroll
        for (int k = 0; k < 2; k++) {
            u64 at = group * 512 + (2 * word + k) * 16 + lane;
            if (at < n.count) {
                put(n.x, at, __fmaf_rn(deviation, __fmul_rn(radius, draw[k]), get(n.x, at)));
            }
        }
    }
}

// ---- Dropout: xoshiro256++, a generator for each run of 16,384 numbers of a sequence.
//
// Its next state is a linear map of the 256 bits of a state. So 128 threads share a run: each jumps to its 64 draws by
// two tables of powers of that map, for 64 draws (times 0 to 7) and for 512 (times 0 to 15). A table has, for each
// bit of the state and each power, what this bit becomes.

#define RUN 16384
#define DRAWS 64

__device__ inline u64 mixed(u64 z) {
    z += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

__device__ inline void jump(u64 *state, const u64 *table, u32 powers, u32 power) {
    u64 sum[4] = {};
    for (u32 word = 0; word < 4; word++) {
#pragma unroll 8
        for (u32 bit = 0; bit < 64; bit++) {
            const u64 *image = table + ((u64)(64 * word + bit) * powers + power) * 4;
            u64 mask = 0 - (state[word] >> bit & 1);
            for (int k = 0; k < 4; k++) sum[k] ^= image[k] & mask;
        }
    }
    for (int k = 0; k < 4; k++) state[k] = sum[k];
}

__device__ inline u64 next(u64 *s) {
    u64 sum = s[0] + s[3], result = (sum << 23 | sum >> 41) + s[0];
    u64 c = s[2] ^ s[0], d = s[3] ^ s[1], b = s[1];
    s[0] ^= d, s[1] ^= c, s[2] = c ^ b << 17, s[3] = d << 45 | d >> 19;
    return result;
}

// Makes zeros of numbers whose draw is below `dropped` and multiplies the others. `sequences` has of each its first
// number, how many, and its seed. A block does a run.
extern "C" __global__ void __launch_bounds__(128)
    drop_out(Numbers x, const u64 *sequences, const u64 *jumps, u32 dropped, float factor) {
    __shared__ u32 kept[RUN / 32];
    const u64 *sequence = sequences + 3 * blockIdx.y;
    u64 begin = (u64)blockIdx.x * RUN;
    if (begin >= sequence[1]) return;
    u64 word = mixed(mixed(sequence[2]) + blockIdx.x), state[4];
    for (int k = 0; k < 4; k++) {
        word += 0x9e3779b97f4a7c15ull;
        state[k] = mixed(word);
    }
    jump(state, jumps, 8, threadIdx.x % 8);
    jump(state, jumps + 256 * 8 * 4, 16, threadIdx.x / 8);
    for (u32 part = 0; part < DRAWS / 16; part++) {
        u32 keep = 0;
        for (u32 i = 0; i < 32; i += 2) {
            u64 draw = next(state);
            keep |= (u32)((u32)draw >= dropped) << i | (u32)((u32)(draw >> 32) >= dropped) << (i + 1);
        }
        kept[threadIdx.x * (DRAWS / 16) + part] = keep;
    }
    __syncthreads();
    u64 rest = sequence[1] - begin, first = sequence[0] + begin;
    for (u32 i = threadIdx.x; i < RUN && i < rest; i += blockDim.x) {
        bool keeps = kept[i / 32] >> (i % 32) & 1;
        put(x, first + i, keeps ? get(x, first + i) * factor : 0.f);
    }
}
