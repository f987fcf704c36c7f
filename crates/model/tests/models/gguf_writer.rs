//! A GGUF file made in memory, honest or not: every count, offset and type can be said otherwise.

use fedra_compute::Seed;
use fedra_model::gguf::BlockType;

/// A file to be.
#[derive(Clone, Debug)]
pub struct GgufFile {
    pub version: u32,
    pub keys: Vec<(String, Value)>,
    pub tensors: Vec<GgufTensor>,
    pub alignment: usize,
    /// What the header says, where that is not the truth.
    pub said_tensors: Option<u64>,
    pub said_keys: Option<u64>,
}

/// A value of the metadata.
#[derive(Clone, Debug)]
pub enum Value {
    U32(u32),
    F32(f32),
    Flag(bool),
    Text(String),
    Texts(Vec<String>),
    Integers(Vec<i32>),
    Numbers(Vec<f32>),
    /// A type's number and bytes of any kind.
    Raw(u32, Vec<u8>),
}

/// A tensor to be.
#[derive(Clone, Debug)]
pub struct GgufTensor {
    pub name: String,
    /// Innermost first, as in the file.
    pub dims: Vec<u64>,
    pub kind: u32,
    pub bytes: Vec<u8>,
    pub said_offset: Option<u64>,
}

impl GgufTensor {
    /// A tensor of f32, its shape outermost first.
    pub fn f32(name: &str, shape: &[usize], values: &[f32]) -> Self {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self::new(name, shape, BlockType::F32, bytes)
    }

    pub fn new(name: &str, shape: &[usize], kind: BlockType, bytes: Vec<u8>) -> Self {
        let dims = shape.iter().rev().map(|&dim| dim as u64).collect();
        Self { name: name.into(), dims, kind: kind.number(), bytes, said_offset: None }
    }
}

impl GgufTensor {
    /// Blocks of another type in its place, with numbers of about the size that weights have.
    #[expect(clippy::wildcard_enum_match_arm, reason = "tests make three kinds")]
    pub fn quantise(&mut self, kind: BlockType, seed: u64) {
        let mut draw = Seed(seed).generator();
        let count = self.dims.iter().product::<u64>() as usize / kind.elements();
        self.kind = kind.number();
        self.bytes.clear();
        for _ in 0..count {
            let scale = 0.01 * (0.5 + draw.uniform()) as f32;
            let scales = match kind {
                BlockType::Q8_0 => vec![scale / 16.0],
                BlockType::Q4_0 => vec![scale],
                BlockType::Q4_1 => vec![scale, -7.0 * scale],
                other => panic!("no blocks of {other:?} are made here"),
            };
            let halves = scales.iter().map(|scale| half::f16::from_f32(*scale).to_le_bytes());
            self.bytes.extend(halves.flatten());
            let integers = kind.bytes() - 2 * scales.len();
            self.bytes.extend((0..integers).map(|_| draw.below(256) as u8));
        }
    }
}

impl GgufFile {
    pub fn new() -> Self {
        Self {
            version: 3,
            keys: Vec::new(),
            tensors: Vec::new(),
            alignment: 32,
            said_tensors: None,
            said_keys: None,
        }
    }

    pub fn with(mut self, key: &str, value: Value) -> Self {
        self.keys.retain(|(other, _)| other != key);
        self.keys.push((key.into(), value));
        self
    }

    pub fn without(mut self, key: &str) -> Self {
        self.keys.retain(|(other, _)| other != key);
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend(self.said_tensors.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.said_keys.unwrap_or(self.keys.len() as u64).to_le_bytes());
        for (key, value) in &self.keys {
            text(&mut out, key);
            value.write(&mut out);
        }
        let mut offset = 0;
        for tensor in &self.tensors {
            text(&mut out, &tensor.name);
            out.extend((tensor.dims.len() as u32).to_le_bytes());
            out.extend(tensor.dims.iter().flat_map(|dim| dim.to_le_bytes()));
            out.extend(tensor.kind.to_le_bytes());
            out.extend(tensor.said_offset.unwrap_or(offset as u64).to_le_bytes());
            offset = (offset + tensor.bytes.len()).next_multiple_of(self.alignment);
        }
        for tensor in &self.tensors {
            out.resize(out.len().next_multiple_of(self.alignment), 0);
            out.extend(&tensor.bytes);
        }
        out
    }
}

impl Value {
    fn write(&self, out: &mut Vec<u8>) {
        let list = |out: &mut Vec<u8>, kind: u32, length: usize| {
            out.extend(9u32.to_le_bytes());
            out.extend(kind.to_le_bytes());
            out.extend((length as u64).to_le_bytes());
        };
        match self {
            Self::U32(number) => {
                out.extend(4u32.to_le_bytes());
                out.extend(number.to_le_bytes());
            }
            Self::F32(number) => {
                out.extend(6u32.to_le_bytes());
                out.extend(number.to_le_bytes());
            }
            Self::Flag(flag) => {
                out.extend(7u32.to_le_bytes());
                out.push(u8::from(*flag));
            }
            Self::Text(value) => {
                out.extend(8u32.to_le_bytes());
                text(out, value);
            }
            Self::Texts(values) => {
                list(out, 8, values.len());
                for value in values {
                    text(out, value);
                }
            }
            Self::Integers(values) => {
                list(out, 5, values.len());
                out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            }
            Self::Numbers(values) => {
                list(out, 6, values.len());
                out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            }
            Self::Raw(kind, bytes) => {
                out.extend(kind.to_le_bytes());
                out.extend(bytes);
            }
        }
    }
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}
