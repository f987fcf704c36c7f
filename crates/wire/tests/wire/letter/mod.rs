//! A payload of a small layout, and what its receiver expects.

use fedra_plan::{Layer, Layout, ParamId, Part, Role, Round, Scope, Shape};
use fedra_seed::Seed;
use fedra_wire::{ClientId, Encoding, Expectation, Header, Kind, ParamValues};

/// Four parameters, the first of the given shape.
pub fn layout(first: Shape) -> Layout {
    let id = |layer, role, part| ParamId::new(layer, role, part);
    Layout::new([
        (id(Layer::Embedding, Role::Token, Part::Weight), first),
        (id(Layer::Block(0), Role::Query, Part::Weight), Shape::matrix(3, 4)),
        (id(Layer::Block(0), Role::Query, Part::Bias), Shape::vector(3)),
        (id(Layer::Head, Role::Classifier, Part::Weight), Shape::matrix(1, 1)),
    ])
    .expect("legal")
}

/// Normal values for the scope.
pub fn tensors(layout: &Layout, scope: &Scope, seed: u64) -> ParamValues {
    let mut generator = Seed(seed).generator();
    let mut values = ParamValues::zeros(layout, scope);
    for (_, values) in values.iter_mut() {
        for value in values {
            *value = generator.normal() as f32;
        }
    }
    values
}

pub const fn header(encoding: Encoding) -> Header {
    Header {
        kind: Kind::Change,
        encoding,
        round: Round(3),
        client: ClientId(5),
        examples: 12,
        steps: 4,
        loss: Some(0.5),
    }
}

/// What matches the header.
pub const fn expectation(layout: &Layout, encoding: Encoding) -> Expectation<'_> {
    Expectation {
        layout,
        kind: Kind::Change,
        encoding,
        round: Round(3),
        client: ClientId(5),
        scope: None,
    }
}
