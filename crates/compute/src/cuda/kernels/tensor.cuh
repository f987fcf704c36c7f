// Products of bf16 by tensor cores, with f32 sums: a warp's instructions, and tiles of rows that they read.

// Two numbers as bf16, the first one low.
__device__ inline u32 packed(float low, float high) {
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

// c += a b, for 16 x 16 and 16 x 8.
__device__ inline void multiply(float *c, const u32 *a, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline u32 shared_address(const u16 *p) {
    return (u32)__cvta_generic_to_shared(p);
}

__device__ inline void four(u32 *r, const u16 *p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(p)));
}

__device__ inline void four_turned(u32 *r, const u16 *p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(p)));
}

// Copies into shared memory that go on while warps compute. A thread closes a group of its copies, and waits until
// no more than the newest N groups are on their way.
__device__ inline void copy_begun(u16 *into, const u16 *from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(into)), "l"(from), "r"(there ? 16 : 0));
}

__device__ inline void copy_begun(float *into, const float *from, bool there) {
    u32 address = (u32)__cvta_generic_to_shared(into);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address), "l"(from), "r"(there ? 4 : 0));
}

__device__ inline void close_group() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int N>
__device__ inline void await_groups() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// Rows of D numbers in shared memory, apart by a little more so that eight rows are in different banks.
template <int D>
struct Tile {
    static const int STRIDE = D + 8;
    u16 *start;

    // Copies `rows` rows of one head, zeros behind them.
    __device__ void load(int count, Numbers from, u64 row, u32 rows, u32 columns, u32 column) {
        const u16 *source = (const u16 *)from.start;
        for (int i = threadIdx.x; i < count * (D / 8); i += blockDim.x) {
            int r = i / (D / 8), c = i % (D / 8) * 8;
            uint4 eight = make_uint4(0, 0, 0, 0);
            if (r < (int)rows) eight = *(const uint4 *)(source + (row + r) * columns + column + c);
            *(uint4 *)(start + r * STRIDE + c) = eight;
        }
    }

    // Begins to copy COUNT rows of one head by THREADS threads, zeros behind the first `rows`.
    template <int COUNT, int THREADS>
    __device__ void fetch(Numbers from, u64 row, u32 rows, u32 columns, u32 column) const {
        const u16 *source = (const u16 *)from.start + row * columns + column;
#pragma unroll
        for (int i = threadIdx.x; i < COUNT * (D / 8); i += THREADS) {
            int r = i / (D / 8), c = i % (D / 8) * 8;
            bool there = r < (int)rows;
            copy_begun(start + r * STRIDE + c, source + (there ? (u64)r * columns + c : 0), there);
        }
    }

    // Left factor: 16 rows from `row`, 16 columns from `k`.
    __device__ void left(u32 *a, int row, int k) const {
        int lane = threadIdx.x % 32;
        four(a, start + (row + lane % 16) * STRIDE + k + lane / 16 * 8);
    }

    // Right factor that is stored by its columns: columns n to n + 15, 16 inner ones from k.
    __device__ void right(u32 *b, int n, int k) const {
        int lane = threadIdx.x % 32;
        four(b, start + (n + lane / 16 * 8 + lane % 8) * STRIDE + k + lane / 8 % 2 * 8);
    }

    // Right factor that is stored by rows: 16 inner ones from k, columns n to n + 15.
    __device__ void right_turned(u32 *b, int k, int n) const {
        int lane = threadIdx.x % 32;
        four_turned(b, start + (k + lane / 8 % 2 * 8 + lane % 8) * STRIDE + n + lane / 16 * 8);
    }

    // Left factor that is stored by its columns: 16 inner ones from k, rows m to m + 15.
    __device__ void left_turned(u32 *a, int k, int m) const {
        int lane = threadIdx.x % 32;
        four_turned(a, start + (k + lane / 16 * 8 + lane % 8) * STRIDE + m + lane / 8 % 2 * 8);
    }
};
