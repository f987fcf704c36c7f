//! Adapters of projections that a family stores together, as adapters of each.
//!
//! The library has one adapter for such a module. Its own has one A for all: each projection gets that A and its own
//! rows of B. One that [`save`](super::save) wrote has the sum of their ranks: each A in its own rows, each B in its own rows
//! and columns, zeros elsewhere. A projection whose rows of B are zero in every block has no adapter.
//!
//! ```text
//! theirs   A         B = [Bq; Bk; Bv]              query: Bq A
//! ours     [Aq; Av]  B = [Bq 0; 0 0; 0 Bv]         query: Bq Aq, no key
//! ```

use std::collections::BTreeMap;
use std::ops::Range;

use fedra_plan::{Layer, Layout, ParamId, Part, Role, Shape};

use super::config::AdapterConfig;
use crate::error::ModelError;
use crate::hf::Tensors as _;
use crate::hf::safetensors::Reader;

/// Where a part of an adapter lies.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// The tensor.
    pub tensor: String,
    /// Its rows and columns in a tensor that holds others too.
    pub cut: Option<[Range<usize>; 2]>,
}

impl Source {
    pub fn whole(tensor: &str) -> Self {
        Self { tensor: tensor.to_owned(), cut: None }
    }

    /// The values, row by row.
    pub fn read(&self, weights: &Reader) -> Result<Vec<f32>, ModelError> {
        let values = weights.read_f32(&self.tensor)?;
        let Some([rows, columns]) = &self.cut else { return Ok(values) };
        let shape = weights.info(&self.tensor).map_or(&[][..], |info| info.shape);
        let width = shape.last().copied().unwrap_or(0);
        let row = |row: usize| &values[row * width..][columns.clone()];
        Ok(rows.clone().flat_map(row).copied().collect())
    }
}

/// The tensors of modules that hold several projections, by block and roles.
#[derive(Debug, Default)]
pub(super) struct JoinedModules {
    modules: BTreeMap<(Vec<Role>, Layer), Module>,
}

#[derive(Clone, Debug, Default)]
struct Module {
    a: Option<String>,
    b: Option<String>,
    magnitude: Option<String>,
}

impl JoinedModules {
    /// Takes the tensor of several parameters; says which one was there already.
    pub fn insert(&mut self, ids: &[ParamId], tensor: &str) -> Option<String> {
        let roles = ids.iter().map(|id| id.role).collect();
        let module = self.modules.entry((roles, ids[0].layer)).or_default();
        let part = match ids[0].part {
            Part::LoraA => &mut module.a,
            Part::Magnitude => &mut module.magnitude,
            Part::Weight | Part::Bias | Part::LoraB => &mut module.b,
        };
        part.replace(tensor.to_owned())
    }

    /// Where the adapters of the single projections lie.
    pub fn split(
        self,
        weights: &Reader,
        settings: &AdapterConfig,
        layout: &Layout,
    ) -> Result<BTreeMap<ParamId, Source>, ModelError> {
        let mut kinds: BTreeMap<Vec<Role>, Vec<Together>> = BTreeMap::new();
        for ((roles, layer), module) in self.modules {
            let together = Together::open(weights, settings, (&roles, layer, module), layout)?;
            kinds.entry(roles).or_default().push(together);
        }
        let mut sources = BTreeMap::new();
        for (roles, blocks) in kinds {
            let adapted = adapted(weights, &roles, &blocks)?;
            for block in &blocks {
                block.split(weights, &roles, &adapted, &mut sources)?;
            }
        }
        Ok(sources)
    }
}

/// One module with its adapter.
struct Together {
    layer: Layer,
    a: String,
    b: String,
    /// Of all rows.
    magnitude: Option<String>,
    inputs: usize,
    /// The rows of B that each projection has.
    rows: Vec<Range<usize>>,
    /// The rank of one projection's adapter.
    rank: usize,
    /// How many adapters lie one after the other; one for an A that all share.
    count: usize,
    values: Vec<f32>,
}

impl Together {
    fn open(
        weights: &Reader,
        settings: &AdapterConfig,
        (roles, layer, module): (&[Role], Layer, Module),
        layout: &Layout,
    ) -> Result<Self, ModelError> {
        let refuse = |tensor: &str, found: String, expected: String| {
            Err(ModelError::tensor(weights.path(), tensor, found, expected))
        };
        let (a, b) = match (module.a, module.b) {
            (Some(a), Some(b)) => (a, b),
            (Some(one), None) | (None, Some(one)) => {
                return refuse(&one, "one half of an adapter".into(), "lora_A and lora_B".into());
            }
            (None, None) => {
                let one = module.magnitude.unwrap_or_default();
                return refuse(&one, "magnitudes alone".into(), "lora_A and lora_B too".into());
            }
        };
        let mut rows = Vec::new();
        let (mut end, mut inputs) = (0, 0);
        for role in roles {
            let shape = layout.get(ParamId::new(layer, *role, Part::Weight));
            let Some(&[outputs, columns]) = shape.map(Shape::dims) else {
                return refuse(&a, format!("{layer}"), "one of the model's blocks".into());
            };
            rows.push(end..end + outputs);
            (end, inputs) = (end + outputs, columns);
        }
        let rank = settings.rank;
        let whole = settings.rank_of(&a);
        let count = whole / rank;
        if !whole.is_multiple_of(rank) || count > roles.len() {
            let found = format!("an adapter of rank {whole} for {} projections", roles.len());
            let expected = format!("rank {rank}, or that of several adapters of rank {rank}");
            return refuse(&a, found, expected);
        }
        for (tensor, shape) in [(&a, [whole, inputs]), (&b, [end, whole])] {
            let found = weights.info(tensor).map(|info| info.shape.to_vec()).unwrap_or_default();
            if found != shape {
                let expected = format!("{} x {}", shape[0], shape[1]);
                return refuse(tensor, format!("shape {found:?}"), expected);
            }
        }
        if let Some(tensor) = &module.magnitude {
            let found = weights.info(tensor).map(|info| info.shape.to_vec()).unwrap_or_default();
            if found != [end] {
                return refuse(tensor, format!("shape {found:?}"), format!("{end}"));
            }
        }
        let (values, magnitude) = (weights.read_f32(&b)?, module.magnitude);
        Ok(Self { layer, a, b, magnitude, inputs, rows, rank, count, values })
    }

    /// The values of B in the rows of one projection.
    fn rows_of(&self, place: usize) -> &[f32] {
        let width = self.rank * self.count;
        let Range { start, end } = self.rows[place];
        &self.values[start * width..end * width]
    }

    fn split(
        &self,
        weights: &Reader,
        roles: &[Role],
        adapted: &[usize],
        sources: &mut BTreeMap<ParamId, Source>,
    ) -> Result<(), ModelError> {
        for (number, &place) in adapted.iter().enumerate() {
            let first = if self.count == 1 { 0 } else { number * self.rank };
            let own = first..first + self.rank;
            let outside = |(at, value): (usize, &f32)| {
                *value != 0.0 && !own.contains(&(at % (self.rank * self.count)))
            };
            if self.rows_of(place).iter().enumerate().any(outside) {
                let found = format!("values for {} outside of its own columns", roles[place]);
                let expected = "one adapter for all projections, or one for each";
                return Err(ModelError::tensor(weights.path(), &self.b, found, expected));
            }
            let id = |part| ParamId::new(self.layer, roles[place], part);
            let a = [own.clone(), 0..self.inputs];
            sources.insert(id(Part::LoraA), Source { tensor: self.a.clone(), cut: Some(a) });
            let b = [self.rows[place].clone(), own];
            sources.insert(id(Part::LoraB), Source { tensor: self.b.clone(), cut: Some(b) });
        }
        // Those of projections without an adapter too: they have to be the norms that the rows have.
        for (role, rows) in roles.iter().zip(&self.rows).filter(|_| self.magnitude.is_some()) {
            let (id, cut) =
                (ParamId::new(self.layer, *role, Part::Magnitude), [0..1, rows.clone()]);
            let tensor = self.magnitude.clone().unwrap_or_default();
            sources.insert(id, Source { tensor, cut: Some(cut) });
        }
        Ok(())
    }
}

/// The places of the projections that have an adapter, the same in every block.
fn adapted(
    weights: &Reader,
    roles: &[Role],
    blocks: &[Together],
) -> Result<Vec<usize>, ModelError> {
    let count = blocks.iter().map(|block| block.count).max().unwrap_or(1);
    let acts = |place: &usize| {
        blocks.iter().any(|block| block.rows_of(*place).iter().any(|value| *value != 0.0))
    };
    let acting: Vec<usize> = (0..roles.len()).filter(acts).collect();
    if count == roles.len() || (count == 1 && acting.is_empty()) {
        return Ok((0..roles.len()).collect());
    }
    if count == 1 || acting.len() == count {
        return Ok(acting);
    }
    let tensor = blocks.first().map_or("", |block| &block.b);
    let found = format!(
        "{count} adapters for {} projections, {} of them with values that are not zero",
        roles.len(),
        acting.len()
    );
    let expected = "values that show which projections are adapted";
    Err(ModelError::tensor(weights.path(), tensor, found, expected))
}
