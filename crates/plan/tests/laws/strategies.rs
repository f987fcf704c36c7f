//! How ids, layouts, scopes, cuts and rules are drawn.

use fedra_plan::{Cut, Layer, Layout, ParamId, Part, Role, Rule, Scope, Shape};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;
use proptest::sample::select;

pub(crate) fn role() -> impl Strategy<Value = Role> {
    select(Role::ALL.to_vec())
}

pub(crate) fn part() -> impl Strategy<Value = Part> {
    select(Part::ALL.to_vec())
}

/// A layer of a model with so many blocks.
pub(crate) fn layer(blocks: u16) -> impl Strategy<Value = Layer> {
    let blocks = (0..blocks).map(Layer::Block);
    let layers = [Layer::Embedding, Layer::Head].into_iter().chain(blocks);
    select(layers.collect::<Vec<_>>())
}

pub(crate) fn shape() -> impl Strategy<Value = Shape> {
    prop_oneof![
        (1_usize..9).prop_map(Shape::vector),
        (1_usize..9, 1_usize..9).prop_map(|(rows, columns)| Shape::matrix(rows, columns)),
    ]
}

/// The parameters of a model with 1 to 6 blocks, each of which has at least a query.
pub(crate) fn parameters() -> impl Strategy<Value = Vec<(ParamId, Shape)>> {
    (1_u16..7).prop_flat_map(|blocks| {
        let id = (layer(blocks), role(), part())
            .prop_map(|(layer, role, part)| ParamId::new(layer, role, part));
        (btree_map(id, shape(), 0..60), vec(shape(), usize::from(blocks))).prop_map(
            |(mut shapes, queries)| {
                for (number, shape) in (0..).zip(queries) {
                    shapes.insert(
                        ParamId::new(Layer::Block(number), Role::Query, Part::Weight),
                        shape,
                    );
                }
                shapes.into_iter().collect()
            },
        )
    })
}

pub(crate) fn layout() -> impl Strategy<Value = Layout> {
    parameters().prop_map(legal)
}

/// The layout of parameters that are known to be legal.
pub(crate) fn legal(parameters: Vec<(ParamId, Shape)>) -> Layout {
    Layout::new(parameters).expect("drawn without duplicate, gap or zero")
}

/// A scope within the layout.
pub(crate) fn scope(layout: &Layout) -> impl Strategy<Value = Scope> + use<> {
    let ids: Vec<ParamId> = layout.ids().collect();
    vec(any::<bool>(), ids.len()).prop_map(move |chosen| {
        ids.iter().zip(chosen).filter(|(_, chosen)| *chosen).map(|(id, _)| *id).collect()
    })
}

/// A layout and three scopes within it.
pub(crate) fn three_scopes() -> impl Strategy<Value = (Layout, Scope, Scope, Scope)> {
    layout().prop_flat_map(|layout| {
        let (first, second, third) = (scope(&layout), scope(&layout), scope(&layout));
        (Just(layout), first, second, third)
    })
}

/// No cut or any legal cut.
pub(crate) fn cut(blocks: u16) -> impl Strategy<Value = Cut> {
    let server = (0..blocks)
        .prop_flat_map(move |start| (Just(start), start + 1..=blocks))
        .prop_map(move |(start, end)| {
            Cut::server(start..end, blocks).expect("a range of at least one block")
        });
    prop_oneof![1 => Just(Cut::none()), 3 => server]
}

/// A layout, a scope within it and a cut through it.
pub(crate) fn plan_parts() -> impl Strategy<Value = (Layout, Scope, Cut)> {
    layout().prop_flat_map(|layout| {
        let (scope, cut) = (scope(&layout), cut(layout.blocks()));
        (Just(layout), scope, cut)
    })
}

/// A rule for models of this many blocks.
pub(crate) fn rule(blocks: u16) -> impl Strategy<Value = Rule> {
    let leaf = prop_oneof![
        Just(Rule::Everything),
        Just(Rule::Nothing),
        btree_set(layer(blocks), 0..4).prop_map(Rule::Layers),
        btree_set(role(), 0..6).prop_map(Rule::Roles),
        btree_set(part(), 0..3).prop_map(Rule::Parts),
        btree_set(0..blocks, 0..4).prop_map(Rule::Blocks),
        Just(Rule::Chosen),
    ];
    leaf.prop_recursive(3, 16, 3, |inner| {
        let rules = vec(inner.clone(), 0..4);
        prop_oneof![
            rules.clone().prop_map(Rule::Union),
            rules.prop_map(Rule::Intersection),
            (inner.clone(), inner).prop_map(|(of, minus)| of - minus),
        ]
    })
}
