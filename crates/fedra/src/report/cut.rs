//! Who holds what where a model is cut, and what crosses.

use fedra_engine::{ClientBlocks, SplitConfig};
use fedra_plan::{ByteCount, Round};
use fedra_report::{Content, ModelSegment, PartsDrawing, PartsRow};

use crate::report::facts::total_bytes;
use crate::report::record::RunRecord;
use crate::text::grid::counted;

const CLIENT: usize = 0;
const SERVER: usize = 1;
/// Ways of cutting that fit on a page.
const ROWS: usize = 6;

/// The drawing, where the model is cut.
pub(super) fn contents(record: &RunRecord) -> Vec<Content> {
    let split = record.experiment.as_ref().and_then(|it| it.recipe.split.as_ref());
    let (Some(split), Some(blocks)) = (split, record.blocks()) else { return Vec::new() };
    let crossing = total_bytes(record).crossing;
    let in_all =
        |kind: &str, up: ByteCount, down: ByteCount| format!("{kind} {up} up, {down} down");
    let caption = if crossing.is_none() {
        "From the input at the left to the output at the right.".to_owned()
    } else {
        format!(
            "From the input at the left to the output at the right. Across both cuts in all rounds: {}; {}; {}.",
            in_all("hidden states", crossing.hidden_up, crossing.hidden_down),
            in_all("gradients", crossing.gradient_up, crossing.gradient_down),
            counted(crossing.exchanges, "exchange")
        )
    };
    let rows: Vec<PartsRow> = ways(split)
        .into_iter()
        .filter(|(_, ends)| ends.first.saturating_add(ends.last) <= blocks)
        .take(ROWS)
        .map(|(name, ends)| row(name, ends, blocks))
        .collect();
    if rows.is_empty() {
        return Vec::new();
    }

    vec![Content::Parts(PartsDrawing {
        title: "Parts at client and server".to_owned(),
        caption,
        holders: vec!["the client".to_owned(), "the server".to_owned()],
        rows,
    })]
}

/// Each way in which the model is cut, and for whom or from when.
fn ways(split: &SplitConfig) -> Vec<(String, ClientBlocks)> {
    let usual = split.ends_of("", Round(0));
    let whose = if split.clients.is_empty() { "every client" } else { "the other clients" };
    let mut ways = vec![(whose.to_owned(), usual)];
    ways.extend(split.clients.iter().map(|(name, ends)| (name.clone(), *ends)));
    ways.extend(split.moves.iter().map(|moved| {
        let ends = ClientBlocks { first: moved.first, last: moved.last };
        (format!("from round {}", moved.round), ends)
    }));
    ways
}

fn row(name: String, ends: ClientBlocks, blocks: u16) -> PartsRow {
    let held = |name: String, holder, size: f64| ModelSegment { name, holder, size };
    let range = |from: u16, count: u16| match count {
        1 => format!("block {from}"),
        count => format!("blocks {from}–{}", from + count - 1),
    };
    let mut parts = vec![held("embedding".to_owned(), CLIENT, 2.2)];
    let middle = blocks - ends.first - ends.last;
    for (from, count, holder) in [
        (0, ends.first, CLIENT),
        (ends.first, middle, SERVER),
        (ends.first + middle, ends.last, CLIENT),
    ] {
        if count > 0 {
            let size = 1.6 + f64::from(count).sqrt() * 0.5;
            parts.push(held(range(from, count), holder, size));
        }
    }
    parts.push(held("head".to_owned(), CLIENT, 1.4));
    let flow = |pair: &[ModelSegment]| match pair {
        [left, right] if left.holder != right.holder => {
            if right.holder == SERVER { "states in" } else { "states out" }.to_owned()
        }
        _ => String::new(),
    };
    let flows = parts.windows(2).map(flow).collect();
    PartsRow { name, parts, flows }
}
