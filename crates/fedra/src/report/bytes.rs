//! What travelled, by kind and by round.

use fedra_engine::{Bytes, CrossingBytes};
use fedra_plan::ByteCount;
use fedra_report::{Content, Layer, StackedBars};

use crate::report::binned::Columns;
use crate::report::charts::unit_of;
use crate::report::record::RunRecord;

/// A kind of bytes, and how many of a round are of it.
type Kind = (&'static str, fn(&Bytes) -> u64);

const KINDS: [Kind; 8] = [
    ("parameters up", |bytes| bytes.up.0.saturating_sub(bytes.crossing.up().0)),
    ("parameters down", |bytes| bytes.down.0.saturating_sub(bytes.crossing.down().0)),
    ("hidden states up", |bytes| bytes.crossing.hidden_up.0),
    ("hidden states down", |bytes| bytes.crossing.hidden_down.0),
    ("gradients up", |bytes| bytes.crossing.gradient_up.0),
    ("gradients down", |bytes| bytes.crossing.gradient_down.0),
    ("headers of the cut", |bytes| {
        let CrossingBytes { metadata_up, metadata_down, .. } = bytes.crossing;
        metadata_up.0.saturating_add(metadata_down.0)
    }),
    ("for scoring", |bytes| bytes.evaluation.0),
];

/// Bars of what travelled.
pub(super) fn contents(record: &RunRecord) -> Vec<Content> {
    let columns = Columns::of(&record.rounds);
    let of = |(name, kind): Kind| {
        let heights = columns.mean(&record.rounds, |report| kind(&report.bytes) as f64);
        Layer { name: name.to_owned(), heights }
    };
    let mut layers: Vec<Layer> = KINDS.into_iter().map(of).collect();
    layers.retain(|layer| layer.heights.iter().any(|height| *height > 0.0));
    if layers.is_empty() {
        return Vec::new();
    }
    let total = |column: usize| layers.iter().map(|layer| layer.heights[column]).sum::<f64>();
    let (unit, size) = unit_of((0..columns.names.len()).map(total).fold(0.0, f64::max));
    for height in layers.iter_mut().flat_map(|layer| &mut layer.heights) {
        *height /= size;
    }
    let sums = KINDS.into_iter().filter_map(|(name, kind)| {
        let sum: u64 =
            record.rounds.iter().map(|report| kind(&report.bytes)).fold(0, u64::saturating_add);
        (sum > 0).then(|| format!("{name} {}", ByteCount(sum)))
    });
    let sums = sums.collect::<Vec<_>>().join(", ");
    vec![Content::Bars(StackedBars {
        title: "Bytes by kind".to_owned(),
        caption: format!("Lengths of encoded payloads of all clients. In all: {sums}."),
        x: (columns.in_words(), columns.names.clone()),
        y: format!("{unit} per round"),
        layers,
    })]
}
