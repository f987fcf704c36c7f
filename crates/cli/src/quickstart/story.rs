//! What the quickstart shows at its end: a table, a picture, a page, and what to try next.

use std::path::Path;

use fedra::Summary;
use fedra::folder::summary::duration;
use fedra::pages::{Content, PlotRow, RowPlot};
use fedra::text::grid::Grid;
use fedra_plan::ByteCount;
use fedra_privacy::shown;

/// The row of the public model as it is.
pub const UNCHANGED: &str = "public model";
/// The row of answers without a model.
const FLOOR: &str = "word majority";
/// Columns of a bar for the score 1.
const BAR: usize = 46;

/// Everything that was run.
#[derive(Default)]
pub struct Story {
    /// The score of answers given without a model.
    pub floor: Option<f64>,
    /// The runs, in the order of the table.
    pub ways: Vec<Way>,
}

/// A way of learning, and what it came to.
pub struct Way {
    /// Its name.
    pub name: String,
    /// What a client on a machine of its own would hold, foreseen.
    pub client_memory: ByteCount,
    /// The run.
    pub summary: Summary,
}

impl Way {
    fn score(&self) -> Option<f64> {
        self.summary.score.as_ref().map(|score| score.value)
    }

    /// Whether hospitals take part; in one place, or before anything is learnt, they do not.
    fn is_federated(&self) -> bool {
        self.name != UNCHANGED && self.name != "centralised"
    }
}

impl Story {
    /// What the page is about.
    pub fn lead(&self) -> String {
        let clients = self.ways.iter().map(|way| way.summary.clients).max().unwrap_or(0);
        format!(
            "{clients} synthetic hospitals mark problems, tests and treatments in their notes. They start from \
             a public model."
        )
    }

    /// Name, score, bytes, memory, privacy and time of each.
    pub fn table(&self) -> Grid {
        let name = self.ways.iter().find_map(|way| way.summary.score.as_ref());
        let name = format!(">{}", name.map_or("score", |score| &score.name));
        let headings =
            ["method", &name, ">bytes up", ">bytes down", ">client memory", "privacy", ">time"];
        let mut grid = Grid::new(headings);
        let dash = || "-".to_owned();
        let number = |score: Option<f64>| score.map_or_else(dash, |score| format!("{score:.3}"));
        let [a, b, c, d, e] = [(); 5].map(|()| dash());
        grid.row([FLOOR.to_owned(), number(self.floor), a, b, c, d, e]);
        for way in &self.ways {
            let Way { name, client_memory, summary } = way;
            let only = |applies: bool, cell: String| if applies { cell } else { dash() };
            let (is_federated, is_trained) = (way.is_federated(), name != UNCHANGED);
            let privacy = match summary.privacy.as_ref().map(|privacy| privacy.epsilon) {
                None => "none".to_owned(),
                Some(None) => "no bound".to_owned(),
                Some(Some(epsilon)) => format!("epsilon {}", shown::up(epsilon, 1)),
            };
            grid.row([
                name.clone(),
                number(way.score()),
                only(is_federated, summary.bytes.up.to_string()),
                only(is_federated, summary.bytes.down.to_string()),
                only(is_federated, client_memory.to_string()),
                only(is_trained, privacy),
                only(is_trained, duration(summary.seconds)),
            ]);
        }
        grid
    }

    /// The scores that there are, that of the floor first.
    fn scores(&self) -> impl Iterator<Item = (&str, f64)> {
        let ways = self.ways.iter().filter_map(|way| Some((way.name.as_str(), way.score()?)));
        self.floor.map(|score| (FLOOR, score)).into_iter().chain(ways)
    }

    /// A bar for each score, all from zero.
    pub fn picture(&self) -> String {
        let rows: Vec<(&str, f64)> = self.scores().collect();
        let widest = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let line =
            |(name, score): &(&str, f64)| format!("{name:<widest$}  {} {score:.3}", bar(*score));
        rows.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// What the numbers say; only what holds is said.
    pub fn words(&self) -> Vec<String> {
        let find = |name: &str| self.ways.iter().find(|way| way.name == name);
        let mut lines = Vec::new();
        if let (Some(alone), Some(fedavg)) = (find("local-only"), find("fedavg"))
            && let (Some(low), Some(high)) = (alone.score(), fedavg.score())
        {
            let sign = if high > low { "more" } else { "less" };
            lines.push(format!(
                "together the hospitals reach {:.3} {sign} than each alone, and no note leaves its hospital",
                (high - low).abs()
            ));
        }
        if let (Some(fedavg), Some(cut)) = (find("fedavg"), find("cut")) {
            lines.push(format!(
                "the split model needs {} of client memory instead of {}, and sends hidden states at every step instead of weights",
                cut.client_memory, fedavg.client_memory
            ));
        }
        if let Some(privacy) = find("private").and_then(|way| way.summary.privacy.as_ref()) {
            lines.push(format!("private: {}", privacy.in_words()));
        }
        lines.push("one seed: differences of one or two hundredths may be chance".to_owned());
        lines
    }

    /// The same for the page.
    pub fn contents(&self) -> Vec<Content> {
        let row = |(name, score): (&str, f64)| PlotRow {
            name: name.to_owned(),
            values: vec![Some(score)],
            span: Some((0.0, score, 0)),
        };
        let plot = RowPlot {
            title: "Score by method".to_owned(),
            caption: "Span F1 on test notes of all hospitals.".to_owned(),
            x: "span F1".to_owned(),
            y: "method".to_owned(),
            marks: vec![("score".to_owned(), 0)],
            rows: self.scores().map(row).collect(),
        };
        let mut contents = vec![Content::Rows(plot), Content::Table(self.table().table(""))];
        contents.extend(self.words().into_iter().map(|line| Content::Words(capital(&line))));
        contents
    }
}

/// What a person would try next.
pub fn next(out: &Path, page: &Path) -> String {
    let (out, page) = (out.display(), page.display());
    format!(
        "open {page} in a browser for curves, bytes and privacy by round; then try
  fedra predict --model {out}/fedavg --text 'Chest x-ray shows pneumonia, started on ceftriaxone.'
  fedra compare {out}/fedavg/experiment.toml --sweep method.name=fedavg,fedprox   # three seeds, intervals
  fedra init notes.csv                                                            # your own data"
    )
}

/// A bar from zero, in eighths of a column.
fn bar(score: f64) -> String {
    let eighths = (score.clamp(0.0, 1.0) * BAR as f64 * 8.0).round() as usize;
    let part = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
    format!("{}{part}", "█".repeat(eighths / 8))
}

fn capital(line: &str) -> String {
    let mut letters = line.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string());
    format!("{}{}.", first.unwrap_or_default(), letters.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_grows_by_eighths() {
        assert_eq!(bar(0.0), "");
        assert_eq!(bar(1.0), "█".repeat(BAR));
        assert_eq!(bar(1.5 / BAR as f64), "█▌");
        assert_eq!(bar(f64::NAN), "");
    }
}
