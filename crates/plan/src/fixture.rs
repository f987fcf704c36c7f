//! Small layouts for the tests of this crate.

use crate::id::{Layer, ParamId};
use crate::layout::Layout;
use crate::role::{Part, Role};
use crate::shape::Shape;

/// Reads an id that the test knows to be legal.
pub(crate) fn id(text: &str) -> ParamId {
    text.parse().expect("a test names legal ids")
}

/// A model of the given depth: 40 elements in the embedding, 64 a block, 10 in the head.
pub(crate) fn layout(blocks: u16) -> Layout {
    let embedding =
        [(ParamId::new(Layer::Embedding, Role::Token, Part::Weight), Shape::matrix(10, 4))];
    let block = |number: u16| {
        let layer = Layer::Block(number);
        [
            (ParamId::new(layer, Role::Query, Part::Weight), Shape::matrix(4, 4)),
            (ParamId::new(layer, Role::Key, Part::Weight), Shape::matrix(4, 4)),
            (ParamId::new(layer, Role::Value, Part::Weight), Shape::matrix(4, 4)),
            (ParamId::new(layer, Role::Value, Part::LoraA), Shape::matrix(2, 4)),
            (ParamId::new(layer, Role::Value, Part::LoraB), Shape::matrix(4, 2)),
        ]
    };
    let head = [
        (ParamId::new(Layer::Head, Role::Classifier, Part::Weight), Shape::matrix(2, 4)),
        (ParamId::new(Layer::Head, Role::Classifier, Part::Bias), Shape::vector(2)),
    ];
    Layout::new(embedding.into_iter().chain((0..blocks).flat_map(block)).chain(head))
        .expect("the fixture is legal")
}
