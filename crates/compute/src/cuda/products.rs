//! Matrix products by cuBLASLt, with a bias or a sum on the way out.
//!
//! cuBLASLt counts by columns. A row-major matrix is the transpose of a column-major one, so the product
//! `C = L R` of rows is asked for as `C^T = R^T L^T`.

use super::driver::{Address, Handle};
use super::error::CudaError;
use super::library::{Library, Wanted, functions};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};

const LIBRARY: Wanted = Wanted {
    library: "libcublasLt.so",
    names: &["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"],
    needs: "install CUDA, or `pip install nvidia-cublas`",
};

functions! {
    /// What is called.
    Functions {
        create: c"cublasLtCreate" (*mut Handle);
        multiply: c"cublasLtMatmul" (
            Handle, Handle, *const c_void, Address, Handle, Address, Handle, *const c_void, Address, Handle,
            Address, Handle, *const Algorithm, Address, usize, Handle,
        );
        desc: c"cublasLtMatmulDescCreate" (*mut Handle, c_int, c_int);
        drop_desc: c"cublasLtMatmulDescDestroy" (Handle);
        set_desc: c"cublasLtMatmulDescSetAttribute" (Handle, c_int, *const c_void, usize);
        layout: c"cublasLtMatrixLayoutCreate" (*mut Handle, c_int, u64, u64, i64);
        drop_layout: c"cublasLtMatrixLayoutDestroy" (Handle);
        set_layout: c"cublasLtMatrixLayoutSetAttribute" (Handle, c_int, *const c_void, usize);
        preference: c"cublasLtMatmulPreferenceCreate" (*mut Handle);
        drop_preference: c"cublasLtMatmulPreferenceDestroy" (Handle);
        set_preference: c"cublasLtMatmulPreferenceSetAttribute" (Handle, c_int, *const c_void, usize);
        setting: c"cublasLtMatmulAlgoConfigGetAttribute" (*const Algorithm, c_int, *mut c_void, usize, *mut usize);
        choose: c"cublasLtMatmulAlgoGetHeuristic" (
            Handle, Handle, Handle, Handle, Handle, Handle, Handle, c_int, *mut Choice, *mut c_int,
        );
    }
}

const F32: c_int = 0;
const BF16: c_int = 14;
const COMPUTE_F32: c_int = 68;
const COMPUTE_TF32: c_int = 77;
const TRANSPOSE_A: c_int = 3;
const TRANSPOSE_B: c_int = 4;
const EPILOGUE: c_int = 7;
const BIAS_POINTER: c_int = 8;
const EPILOGUE_BIAS: c_int = 4;
/// Sums of B over the inner dimension, which go where a bias would be read.
const EPILOGUE_SUMS_OF_B: c_int = 512;
const WORKSPACE_BYTES: c_int = 1;
const STORED_COLUMNS: c_int = 3;
/// Of A, B, C and D.
const ALIGNMENTS: [c_int; 4] = [5, 6, 7, 8];

/// The shape of an algorithm's clusters of thread blocks, as a number of the library's list.
const CLUSTER: c_int = 8;
/// Algorithms among which to choose.
const CHOICES: c_int = 8;

/// Bytes that products may work with.
pub(crate) const WORKSPACE: u64 = 32 << 20;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Algorithm([u64; 8]);

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Choice {
    algorithm: Algorithm,
    workspace: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

/// A matrix of rows in memory: where it starts, how far rows are apart, its precision, whether it is read transposed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operand {
    pub address: Address,
    pub stride: usize,
    pub half: bool,
    pub transposed: bool,
}

/// `into = left right (+ bias) (+ plus)`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Product {
    pub rows: usize,
    pub inner: usize,
    pub cols: usize,
    pub left: Operand,
    pub right: Operand,
    pub into: Operand,
    /// What is added: of the shape and precision of `into`, which it may be.
    pub plus: Option<Operand>,
    /// A number for each column, in the precision of `into`.
    pub bias: Option<Address>,
    /// Receives the sum of each row of `left`, in the precision of `into`; there is no bias then.
    pub sums: Option<Address>,
    pub tf32: bool,
}

/// What an algorithm depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Shape {
    sizes: [usize; 3],
    strides: [usize; 4],
    halves: [bool; 3],
    transposed: [bool; 2],
    alignments: [u32; 4],
    epilogue: Option<c_int>,
    has_plus: bool,
    tf32: bool,
}

/// What is prepared for a shape.
#[derive(Clone, Copy, Debug)]
struct Prepared {
    desc: Handle,
    layouts: [Handle; 4],
    /// The sizes that the layouts have.
    sizes: [usize; 3],
    choice: Choice,
}

// SAFETY: descriptions are written once, under the lock that guards them, and the bias under the same lock.
unsafe impl Send for Prepared {}

/// cuBLASLt and what it has chosen so far.
#[derive(Debug)]
pub(super) struct Products {
    call: Functions,
    handle: Handle,
    /// Nothing where the library knows no way.
    prepared: Mutex<HashMap<Shape, Option<Prepared>>>,
}

// SAFETY: cuBLASLt's handle may be used by several threads; see its documentation on thread safety.
unsafe impl Send for Products {}
// SAFETY: as above.
unsafe impl Sync for Products {}

impl Products {
    pub fn open() -> Result<Self, CudaError> {
        let call = Functions::of(&Library::open(LIBRARY)?)?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: writes the handle.
        status("cublasLtCreate", unsafe { (call.create)(&raw mut handle) })?;
        Ok(Self { call, handle, prepared: Mutex::default() })
    }

    /// Adds a product to a stream. Returns false, and does nothing, where the library has no way to add the sums.
    ///
    /// Steps over real text have another number of tokens each, and choosing an algorithm takes longer than many a
    /// product. So an algorithm is chosen for a rounded number of tokens, and for the exact one only where that fails.
    pub fn run(
        &self,
        product: &Product,
        workspace: Address,
        stream: Handle,
    ) -> Result<bool, CudaError> {
        let exact = product.shape();
        let rounded = exact.rounded();
        let mut all = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        if rounded != exact {
            match self.of_shape(&mut all, &rounded) {
                Ok(None) => return Ok(false),
                Ok(Some(prepared)) => {
                    let given = (exact.sizes, product);
                    if self.multiply(prepared, given, workspace, stream).is_ok() {
                        return Ok(true);
                    }
                }
                Err(_) => {}
            }
        }
        let Some(prepared) = self.of_shape(&mut all, &exact)? else { return Ok(false) };
        self.multiply(prepared, (exact.sizes, product), workspace, stream)?;
        Ok(true)
    }

    /// What is prepared for a shape; nothing where the library has no way to add the sums.
    fn of_shape<'a>(
        &self,
        all: &'a mut HashMap<Shape, Option<Prepared>>,
        shape: &Shape,
    ) -> Result<Option<&'a mut Prepared>, CudaError> {
        let prepared = match all.entry(*shape) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(match self.prepare(shape) {
                Err(_) if shape.epilogue == Some(EPILOGUE_SUMS_OF_B) => None,
                prepared => Some(prepared?),
            }),
        };
        Ok(prepared.as_mut())
    }

    /// Adds a product of these sizes to a stream.
    fn multiply(
        &self,
        prepared: &mut Prepared,
        (sizes, product): ([usize; 3], &Product),
        workspace: Address,
        stream: Handle,
    ) -> Result<(), CudaError> {
        self.resize(prepared, sizes)?;
        let (one, beta) = (1_f32, if product.plus.is_some() { 1_f32 } else { 0.0 });
        let [a, b, c, d] = prepared.layouts;
        let plus = product.plus.unwrap_or(product.into);
        // SAFETY: addresses are of device memory of at least the sizes that the layouts say, and all work of the
        // memory's owner is on this stream. The caller holds the lock while the bias of the shared description is used.
        unsafe {
            if let Some(bias) = product.bias.or(product.sums) {
                self.set(prepared.desc, BIAS_POINTER, &bias)?;
            }
            let answer = (self.call.multiply)(
                self.handle,
                prepared.desc,
                (&raw const one).cast(),
                product.right.address,
                a,
                product.left.address,
                b,
                (&raw const beta).cast(),
                plus.address,
                c,
                product.into.address,
                d,
                &raw const prepared.choice.algorithm,
                workspace,
                WORKSPACE as usize,
                stream,
            );
            status("cublasLtMatmul", answer)
        }
    }

    /// Gives layouts other sizes, in those that [`Shape::rounded`] rounds: as matrices are stored, their columns.
    fn resize(&self, prepared: &mut Prepared, sizes: [usize; 3]) -> Result<(), CudaError> {
        let [[rows, inner, _], [old_rows, old_inner, _]] = [sizes, prepared.sizes];
        let [a, b, c, d] = prepared.layouts;
        let columns = |layout, columns: usize| {
            let columns = columns as u64;
            // SAFETY: the library copies the number.
            let answer = unsafe {
                let value = (&raw const columns).cast();
                (self.call.set_layout)(layout, STORED_COLUMNS, value, size_of::<u64>())
            };
            status("cublasLtMatrixLayoutSetAttribute", answer)
        };
        if rows != old_rows {
            [b, c, d].into_iter().try_for_each(|layout| columns(layout, rows))?;
        }
        if inner != old_inner {
            [a, b].into_iter().try_for_each(|layout| columns(layout, inner))?;
        }
        prepared.sizes = sizes;
        Ok(())
    }

    /// # Safety
    /// The attribute must be of the value's type.
    unsafe fn set<T>(&self, desc: Handle, attribute: c_int, value: &T) -> Result<(), CudaError> {
        // SAFETY: the library copies so many bytes.
        let answer = unsafe {
            (self.call.set_desc)(desc, attribute, std::ptr::from_ref(value).cast(), size_of::<T>())
        };
        status("cublasLtMatmulDescSetAttribute", answer)
    }

    /// Describes a product and lets the library choose how to carry it out.
    fn prepare(&self, shape: &Shape) -> Result<Prepared, CudaError> {
        let [rows, inner, cols] = shape.sizes;
        let kind = |half| if half { BF16 } else { F32 };
        let mut desc = std::ptr::null_mut();
        let mut layouts = [std::ptr::null_mut(); 4];
        let compute = if shape.tf32 { COMPUTE_TF32 } else { COMPUTE_F32 };
        // Of A (right), B (left), C and D: rows and columns as they are stored, by columns.
        let stored = |(rows, cols): (usize, usize), transposed: bool| {
            if transposed { (cols, rows) } else { (rows, cols) }
        };
        let sizes = [
            stored((cols, inner), shape.transposed[1]),
            stored((inner, rows), shape.transposed[0]),
            (cols, rows),
            (cols, rows),
        ];
        let kinds = [
            kind(shape.halves[1]),
            kind(shape.halves[0]),
            kind(shape.halves[2]),
            kind(shape.halves[2]),
        ];
        // SAFETY: every call writes one handle or copies one value of the type that the attribute has.
        unsafe {
            status("cublasLtMatmulDescCreate", (self.call.desc)(&raw mut desc, compute, F32))?;
            self.set(desc, TRANSPOSE_A, &c_int::from(shape.transposed[1]))?;
            self.set(desc, TRANSPOSE_B, &c_int::from(shape.transposed[0]))?;
            if let Some(epilogue) = shape.epilogue {
                self.set(desc, EPILOGUE, &epilogue)?;
            }
            for ((layout, kind), ((rows, cols), stride)) in
                layouts.iter_mut().zip(kinds).zip(sizes.into_iter().zip(shape.strides))
            {
                let answer = (self.call.layout)(
                    layout,
                    kind,
                    rows as u64,
                    cols as u64,
                    stride.cast_signed() as i64,
                );
                status("cublasLtMatrixLayoutCreate", answer)?;
            }
            let mut preference = std::ptr::null_mut();
            status("cublasLtMatmulPreferenceCreate", (self.call.preference)(&raw mut preference))?;
            let prefer = |attribute, value: *const c_void, size| {
                let answer = (self.call.set_preference)(preference, attribute, value, size);
                status("cublasLtMatmulPreferenceSetAttribute", answer)
            };
            let most = WORKSPACE;
            prefer(WORKSPACE_BYTES, (&raw const most).cast(), size_of::<u64>())?;
            for (attribute, bytes) in ALIGNMENTS.into_iter().zip(shape.alignments) {
                prefer(attribute, (&raw const bytes).cast(), size_of::<u32>())?;
            }
            let (mut choices, mut found) = ([Choice::default(); CHOICES as usize], 0);
            let [a, b, c, d] = layouts;
            let answer = (self.call.choose)(
                self.handle,
                desc,
                a,
                b,
                c,
                d,
                preference,
                CHOICES,
                choices.as_mut_ptr(),
                &raw mut found,
            );
            (self.call.drop_preference)(preference);
            if answer != 0 || found == 0 {
                (self.call.drop_desc)(desc);
                for layout in layouts {
                    (self.call.drop_layout)(layout);
                }
                let reason = format!("no way to multiply {shape:?} (status {answer})");
                return Err(CudaError::Call { call: "cublasLtMatmulAlgoGetHeuristic", reason });
            }
            let mut found = choices.iter().take(usize::try_from(found).unwrap_or(0));
            let small = found.find(|choice| !self.has_large_clusters(&choice.algorithm));
            let choice = *small.unwrap_or(&choices[0]);
            Ok(Prepared { desc, layouts, sizes: shape.sizes, choice })
        }
    }

    /// Whether eight thread blocks or more form a cluster. In processes that shared an H200 (driver 580.159, CUDA 13.0),
    /// 3 of 14 runs ended with an illegal instruction inside such a kernel of the library (4 x 2 or 2 x 4 blocks), and
    /// the GPU's core dumps named no other.
    fn has_large_clusters(&self, algorithm: &Algorithm) -> bool {
        let (mut cluster, mut written) = (0_u16, 0);
        let into = (&raw mut cluster).cast();
        // SAFETY: the library writes a number of two bytes, and how many it has written.
        let answer = unsafe {
            (self.call.setting)(algorithm, CLUSTER, into, size_of::<u16>(), &raw mut written)
        };
        // 4 x 2, then 2 x 4 to 1 x 16, then nine in a row and shapes that are not powers of two.
        answer == 0 && matches!(cluster, 7 | 9..=16 | 21..)
    }
}

impl Shape {
    /// The same with the number of tokens rounded up by at most a sixteenth: the rows of an activation, or where two
    /// activations give the gradient of a weight what is summed over. Neither is a dimension along which a
    /// matrix lies in memory.
    fn rounded(mut self) -> Self {
        let [rows, inner, _] = &mut self.sizes;
        let tokens = match self.transposed {
            [false, _] => rows,
            [true, false] => inner,
            [true, true] => return self,
        };
        *tokens = tokens.next_multiple_of((tokens.next_power_of_two() / 32).max(1));
        self
    }
}

impl Product {
    fn shape(&self) -> Shape {
        let Self { left, right, into, plus, .. } = self;
        let plus = plus.unwrap_or(*into);
        let alignment = |operand: &Operand| 1 << operand.address.trailing_zeros().min(8);
        Shape {
            sizes: [self.rows, self.inner, self.cols],
            strides: [right.stride, left.stride, plus.stride, into.stride],
            halves: [left.half, right.half, into.half],
            transposed: [left.transposed, right.transposed],
            alignments: [right, left, &plus, into].map(alignment),
            epilogue: self.bias.map(|_| EPILOGUE_BIAS).or(self.sums.map(|_| EPILOGUE_SUMS_OF_B)),
            has_plus: self.plus.is_some(),
            tf32: self.tf32,
        }
    }
}

fn status(call: &'static str, status: i32) -> Result<(), CudaError> {
    if status == 0 {
        return Ok(());
    }
    Err(CudaError::Call { call, reason: format!("status {status}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(sizes: [usize; 3], transposed: [bool; 2]) -> Shape {
        Shape {
            sizes,
            strides: [1; 4],
            halves: [true; 3],
            transposed,
            alignments: [256; 4],
            epilogue: None,
            has_plus: false,
            tf32: false,
        }
    }

    #[test]
    fn only_tokens_are_rounded_and_by_at_most_a_sixteenth() {
        for tokens in 1..5000 {
            let forward = shape([tokens, 384, 1151], [false, true]).rounded().sizes;
            assert!(forward[0] >= tokens && 16 * (forward[0] - tokens) <= tokens, "{tokens}");
            assert_eq!(forward[1..], [384, 1151]);
            let of_weight = shape([1151, tokens, 383], [true, false]).rounded().sizes;
            assert_eq!(of_weight, [1151, forward[0], 383]);
        }
        let other = shape([77, 777, 7777], [true, true]);
        assert_eq!(other.rounded(), other);
        // Few tokens, and powers of two, stay as they are.
        for tokens in (1..=32).chain([64, 512, 8192]) {
            assert_eq!(shape([tokens, 8, 8], [false, false]).rounded().sizes[0], tokens);
        }
    }
}
