//! Adapters of one rank in a model of another: what a client of a lower rank is sent, and what its update is to the
//! shared model.
//!
//! The shared factors lie in the order of their singular values ([`nearest_mean`](crate::nearest_mean)), so the first
//! rows of A and columns of B are the nearest correction of a lower rank. A client that has these and no others has a
//! correction whose other columns of B are zero, and that is what its update makes of the shared one:
//!
//! ```text
//! sent      A' = A[..r]            B' = B[.., ..r]
//! learned   A' + dA'               B' + dB'
//! widened   dA = [dA'; 0]          dB = [dB', -B[.., r..]]     so (B + dB) (A + dA) = (B' + dB') (A' + dA')
//! ```

use fedra_plan::{Layout, ParamId, Part, Shape};

use crate::param_values::ParamValues;

/// The values that a model of this layout has of a part of the shared one.
pub fn narrowed(values: ParamValues, (shared, own): (&Layout, &Layout)) -> ParamValues {
    let narrow = |(id, values): (ParamId, Vec<f32>)| match matrices(id, (shared, own)) {
        None => (id, values),
        // Whole rows stay in front.
        Some((_, [rows, columns])) if id.part == Part::LoraA => {
            (id, values[..rows * columns].to_vec())
        }
        Some(([_, width], [_, columns])) => {
            (id, values.chunks_exact(width).flat_map(|row| &row[..columns]).copied().collect())
        }
    };
    values.into_iter().map(narrow).collect()
}

/// The change of the shared model, which has these values, that a change of a model of this layout is.
pub fn widened(
    change: ParamValues,
    model: &ParamValues,
    (shared, own): (&Layout, &Layout),
) -> ParamValues {
    let widen = |(id, mut values): (ParamId, Vec<f32>)| {
        let Some(([rows, width], [_, columns])) = matrices(id, (shared, own)) else {
            return (id, values);
        };
        if id.part == Part::LoraA {
            values.resize(rows * width, 0.0);
            return (id, values);
        }
        let mut wide = Vec::with_capacity(rows * width);
        let now = model.get(id).unwrap_or_default().chunks_exact(width);
        for (own, now) in values.chunks_exact(columns).zip(now) {
            wide.extend_from_slice(own);
            wide.extend(now[columns..].iter().map(|value| -value));
        }
        (id, wide)
    };
    change.into_iter().map(widen).collect()
}

/// The sizes of a factor in both layouts, where they differ.
fn matrices(id: ParamId, (shared, own): (&Layout, &Layout)) -> Option<([usize; 2], [usize; 2])> {
    let dims = |layout: &Layout| {
        layout.get(id).and_then(|shape: &Shape| <[usize; 2]>::try_from(shape.dims()).ok())
    };
    let both = (dims(shared)?, dims(own)?);
    (both.0 != both.1).then_some(both)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedra_plan::{Layer, Role};

    fn id(part: Part) -> ParamId {
        ParamId::new(Layer::Block(0), Role::Query, part)
    }

    fn layout(rank: usize) -> Layout {
        let parts = [
            (id(Part::Weight), Shape::matrix(3, 2)),
            (id(Part::LoraA), Shape::matrix(rank, 2)),
            (id(Part::LoraB), Shape::matrix(3, rank)),
            (id(Part::Magnitude), Shape::vector(3)),
        ];
        Layout::new(parts).unwrap()
    }

    fn model() -> ParamValues {
        let count = |part, count: usize| (id(part), (0..count).map(|x| x as f32 + 1.0).collect());
        let parts = [count(Part::LoraA, 6), count(Part::LoraB, 9), count(Part::Magnitude, 3)];
        parts.into_iter().collect()
    }

    #[test]
    fn a_lower_rank_has_the_first_rows_of_a_and_the_first_columns_of_b() {
        let (shared, own) = (layout(3), layout(2));
        assert_eq!(shared.with_rank(2), own);
        let values = narrowed(model(), (&shared, &own));
        values.check(&own).unwrap();
        assert_eq!(values.get(id(Part::LoraA)).unwrap(), [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(values.get(id(Part::LoraB)).unwrap(), [1.0, 2.0, 4.0, 5.0, 7.0, 8.0]);
        assert_eq!(values.get(id(Part::Magnitude)), model().get(id(Part::Magnitude)));
        assert_eq!(narrowed(model(), (&shared, &layout(3))), model());
    }

    #[test]
    fn what_a_lower_rank_learned_is_all_that_its_correction_has() {
        let (shared, own) = (layout(3), layout(2));
        let mut after = narrowed(model(), (&shared, &own));
        let before = after.clone();
        after.iter_mut().flat_map(|(_, values)| values).for_each(|value| *value *= 1.5);
        let mut change = after.clone();
        change.subtract(&before);
        let wide = widened(change, &model(), (&shared, &own));
        wide.check(&shared).unwrap();
        let mut moved = model();
        moved.add_scaled(1.0, &wide);
        // The shared model's rows of A beyond stay, and nothing of B reads them.
        assert_eq!(moved.get(id(Part::LoraA)).unwrap(), [1.5, 3.0, 4.5, 6.0, 5.0, 6.0]);
        let b = [1.5, 3.0, 0.0, 6.0, 7.5, 0.0, 10.5, 12.0, 0.0];
        assert_eq!(moved.get(id(Part::LoraB)).unwrap(), b);
        assert_eq!(narrowed(moved, (&shared, &own)), after);
    }
}
