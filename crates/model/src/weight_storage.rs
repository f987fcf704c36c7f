//! Which of a model's weights are stored in another format than f32.
//!
//! Only what never learns may be: an optimiser's steps are smaller than what these formats can tell apart. And only
//! matrices that are large: the projections of blocks, and the tables of tokens. Norms, biases, positions and heads
//! are a hundredth of a model and stay f32. Tables get at least 8 bits, as in the files that people share: a row of
//! them is a token, whole, where a row of a projection is one of thousands that are added up.

use crate::lora::Adapters;
use fedra_compute::WeightFormat;
use fedra_plan::{ByteCount, Layout, ParamId, Part, Role, Scope, Shape};

/// Numbers of a block of a quantised row.
const BLOCK: usize = 32;

/// The formats of a model's weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightStorage {
    format: WeightFormat,
    /// What may be in another format than f32.
    frozen: Scope,
}

impl Default for WeightStorage {
    /// All in f32.
    fn default() -> Self {
        Self { format: WeightFormat::F32, frozen: Scope::empty() }
    }
}

impl WeightStorage {
    /// Those matrices in a format that are among what never learns.
    pub fn new(format: WeightFormat, layout: &Layout, frozen: &Scope) -> Self {
        let is_large = |id: ParamId| {
            // A row that is no block would take more than it does in f32.
            let is_wide =
                matches!(layout.get(id).map(Shape::dims), Some(&[_, cols]) if cols >= BLOCK);
            is_wide && in_format(id, format) != WeightFormat::F32
        };
        Self { format, frozen: frozen.filter(is_large) }
    }

    /// The same where nothing learns.
    pub fn of_all(format: WeightFormat, layout: &Layout) -> Self {
        Self::new(format, layout, &Scope::everything(layout))
    }

    /// The format that was asked for.
    pub fn format(&self) -> WeightFormat {
        self.format
    }

    /// What is in another format than f32.
    pub fn scope(&self) -> &Scope {
        &self.frozen
    }

    /// The format of a parameter.
    pub fn of(&self, id: ParamId) -> WeightFormat {
        if self.frozen.contains(id) { in_format(id, self.format) } else { WeightFormat::F32 }
    }

    /// Numbers of a part that an exchanged model has: those in f32.
    pub fn exchanged(&self, layout: &Layout, part: &Scope) -> u64 {
        (part - &self.frozen).elements(layout) as u64
    }

    /// What a part takes less than it would in f32.
    pub fn spared(&self, layout: &Layout, part: &Scope) -> ByteCount {
        ByteCount(4 * part.elements(layout) as u64 - self.bytes(layout, part).0)
    }

    /// What a part of a model takes.
    pub fn bytes(&self, layout: &Layout, part: &Scope) -> ByteCount {
        let of = |id: ParamId| {
            let bytes_of_32 = u64::from(self.of(id).bits_of_32() / 8);
            match (layout.get(id).map(Shape::dims), self.of(id).quantisation()) {
                // A row ends in a whole block.
                (Some(&[rows, cols]), Some(_)) => {
                    (rows * cols.div_ceil(BLOCK)) as u64 * bytes_of_32
                }
                (Some(dims), _) => {
                    dims.iter().product::<usize>() as u64 * bytes_of_32 / BLOCK as u64
                }
                (None, _) => 0,
            }
        };
        ByteCount(part.iter().map(of).sum())
    }
}

/// The format of a parameter that never learns.
fn in_format(id: ParamId, format: WeightFormat) -> WeightFormat {
    let is_projection = id.layer.block().is_some() && Adapters::ROLES.contains(&id.role);
    match (id.part, id.role) {
        (Part::Weight, Role::Token | Role::Vocabulary) => format.max(WeightFormat::Int8),
        (Part::Weight, _) if is_projection => format,
        (Part::Weight | Part::Bias | Part::LoraA | Part::LoraB | Part::Magnitude, _) => {
            WeightFormat::F32
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Head, Model, Preset};
    use fedra_plan::Layer;

    #[test]
    fn projections_get_the_format_tables_at_least_8_bits_and_vectors_stay_f32() {
        let adapters = Adapters::new(2, 2.0, [Role::Query]).unwrap();
        let model = Model::new(Preset::Tiny.config(), Head::Bare, Some(adapters)).unwrap();
        let id = |site, role, part| ParamId::new(site, role, part);
        let storage = WeightStorage::of_all(WeightFormat::Int4, model.layout());
        let block = Layer::Block(1);
        for (id, format) in [
            (id(block, Role::Query, Part::Weight), WeightFormat::Int4),
            (id(block, Role::Down, Part::Weight), WeightFormat::Int4),
            (id(block, Role::Query, Part::Bias), WeightFormat::F32),
            (id(block, Role::Query, Part::LoraA), WeightFormat::F32),
            (id(block, Role::MlpNorm, Part::Weight), WeightFormat::F32),
            (id(Layer::Embedding, Role::Token, Part::Weight), WeightFormat::Int8),
            (id(Layer::Embedding, Role::Position, Part::Weight), WeightFormat::F32),
        ] {
            assert!(model.layout().contains(id), "{id}");
            assert_eq!(storage.of(id), format, "{id}");
            assert_eq!(storage.scope().contains(id), format != WeightFormat::F32, "{id}");
        }
        let token = id(Layer::Embedding, Role::Token, Part::Weight);
        let halves = WeightStorage::of_all(WeightFormat::Bf16, model.layout());
        assert_eq!(halves.of(token), WeightFormat::Bf16);
        let none = WeightStorage::new(WeightFormat::Int4, model.layout(), &Scope::empty());
        assert_eq!(none.of(token), WeightFormat::F32);
        assert_eq!(WeightStorage::default().of(token), WeightFormat::F32);
        let part = Scope::from_iter([id(block, Role::Query, Part::Weight), token]);
        let elements = |role: ParamId| model.layout().get(role).unwrap().elements() as u64;
        let [query, table] = [id(block, Role::Query, Part::Weight), token].map(elements);
        let bytes = |storage: &WeightStorage| storage.bytes(model.layout(), &part).0;
        assert_eq!(bytes(&storage), 20 * query / 32 + 34 * table / 32);
        assert_eq!(bytes(&halves), 2 * (query + table));
        assert_eq!(bytes(&none), 4 * (query + table));
    }
}
