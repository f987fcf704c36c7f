//! A model card: the `README.md` of a saved model folder, for whoever finds the folder without the run.
//!
//! It says what was learnt by which method, what travelled, what was guaranteed to whom, how good the
//! model is, and how to repeat the run. It is made from the run's summary alone and has no time in it, so
//! the same run has the same card. It names no file, no folder and no client: a card goes where the
//! model goes, and a path or the name of a ward does not belong there. The card of a private run has no
//! number from which rows can be counted either: see [`scores`].

use std::fmt::Write as _;
use std::path::Path;

use fedra_data::{AnswerForm, LabelShape, Task, turns_direction};
use fedra_plan::ByteCount;
use fedra_privacy::Unit;

use crate::error::Result;
use crate::folder::regular_file;
use crate::folder::summary::{Stopped, Summary};
use crate::text::grid::{Grid, counted, grouped, listed};

/// The file in a model folder.
pub const FILE: &str = "README.md";

/// What a card is about beside the run's summary.
#[derive(Clone, Copy, Debug)]
pub struct CardSubject<'a> {
    /// What the model was taught.
    pub task: Task,
    /// Whether it reads images; the others read texts.
    pub reads_images: bool,
    /// The labels that it answers with.
    pub labels: &'a [String],
    /// What the folder holds.
    pub holds: Holds,
    /// Whose model it is.
    pub round: WhichRound,
}

/// What a folder holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// A whole model.
    Model,
    /// Adapters and a head, for a base that lies elsewhere.
    Adapter,
}

/// The round that a model comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhichRound {
    /// The last one.
    #[default]
    Last,
    /// The one that did best on validation examples.
    Best,
}

/// What the scores of a private run are worth to whoever asks what it reveals.
const UNCOVERED: &str = "Scores are computed without noise on validation and test examples, so the privacy guarantee \
                         does not cover those examples.";

/// Most labels that a card lists.
const MOST_LABELS: usize = 200;

/// Writes the card of a folder.
pub fn write(folder: &Path, subject: CardSubject<'_>, summary: &Summary) -> Result<()> {
    regular_file::write(&folder.join(FILE), card(subject, summary).as_bytes())
}

/// The text of a card.
pub fn card(subject: CardSubject<'_>, summary: &Summary) -> String {
    let parts = [
        front_matter(subject),
        introduction(subject, summary),
        scores(subject, summary),
        labels(subject),
        training(summary),
        privacy(summary),
        inputs(summary),
        repeat(subject, summary),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    format!("{}\n", parts.join("\n\n"))
}

/// The few keys that Hugging Face needs to show the folder in the right place.
fn front_matter(subject: CardSubject<'_>) -> String {
    let library = match subject.holds {
        Holds::Model => "transformers",
        Holds::Adapter => "peft",
    };
    let pipeline = match (subject.task.answer_form(), subject.task.shape()) {
        (AnswerForm::Text, _) => "text-generation",
        (AnswerForm::Labels, LabelShape::PerWord) => "token-classification",
        (AnswerForm::Labels, LabelShape::One | LabelShape::Many | LabelShape::Absent) => {
            if subject.reads_images { "image-classification" } else { "text-classification" }
        }
    };
    format!(
        "---\nlibrary_name: {library}\npipeline_tag: {pipeline}\ntags:\n- federated-learning\n- fedra\n---"
    )
}

fn introduction(subject: CardSubject<'_>, summary: &Summary) -> String {
    let what = match (subject.holds, subject.task.answer_form()) {
        (Holds::Model, _) => "A model",
        (Holds::Adapter, AnswerForm::Text) => "Low-rank adapters",
        (Holds::Adapter, AnswerForm::Labels) => "Low-rank adapters and a head",
    };
    let round = match (subject.round, &summary.best) {
        (WhichRound::Best, Some(best)) => format!(
            "It is the model of round {} of {}, the best on the clients' validation examples.",
            best.round + 1,
            summary.rounds
        ),
        (WhichRound::Best, None) | (WhichRound::Last, _) => {
            let early = match summary.stopped {
                None => "",
                Some(Stopped::Patience(_)) => {
                    ", which stopped early because the score no longer improved"
                }
                Some(Stopped::Budget) => {
                    ", which stopped before it would have exceeded its privacy budget"
                }
            };
            format!(
                "It is the model after the last of {}{early}.",
                counted(u64::from(summary.rounds), "round")
            )
        }
    };
    // How many rows there are tells of one row, and at a server of who came: no guarantee covers it.
    let rows = match &summary.privacy {
        None => counted(summary.examples, "training example"),
        Some(_) => "training examples".to_owned(),
    };
    format!(
        "# {}\n\n{what} for the task {}, trained with Fedra across {} that did not share their {rows}. {round}",
        safe(&summary.name),
        subject.task.name(),
        counted(summary.clients as u64, "client"),
    )
}

/// Scores of a private run are those of the whole sets alone: how many rows a label has follows from its
/// support, from its precision and recall, and from the share of the most frequent label.
fn scores(subject: CardSubject<'_>, summary: &Summary) -> String {
    let is_private = summary.privacy.is_some();
    let uncovered = if is_private { format!("\n\n{UNCOVERED}") } else { String::new() };
    if subject.round == WhichRound::Best {
        let Some(best) = &summary.best else { return String::new() };
        return format!(
            "## Scores\n\n{} {:.4} on the clients' validation examples, by which the round was chosen. The run's \
             summary has the scores of its last round.{uncovered}",
            best.name, best.score
        );
    }
    if summary.scores.is_empty() {
        return "## Scores\n\nThere were no test examples.".to_owned();
    }
    let mut grid = Grid::new(["set", "score", ">value"]);
    for (set, scores) in &summary.scores {
        for (name, value) in scores {
            grid.row([set.replace('_', " "), name.clone(), format!("{value:.4}")]);
        }
    }
    let mut parts = vec![format!("## Scores\n\n{}{uncovered}", grid.markdown())];
    if is_private {
        return parts.remove(0);
    }
    for (set, by_label) in &summary.by_label {
        let mut grid = Grid::new(["label", ">precision", ">recall", ">F1", ">support"]);
        for one in by_label.labels.iter().take(MOST_LABELS) {
            let [precision, recall, f1] =
                [one.precision, one.recall, one.f1].map(|value| format!("{value:.4}"));
            grid.row([safe(&one.label), precision, recall, f1, grouped(one.support)]);
        }
        parts.push(format!("By label on the {}:\n\n{}", set.replace('_', " "), grid.markdown()));
    }
    if let Some(score) = &summary.score
        && let Some((answer, value)) = summary.floor(score)
    {
        parts.push(format!(
            "Baseline ({}): the {} on the {} is {value:.4}.",
            safe(answer),
            score.name,
            score.on.replace('_', " ")
        ));
    }
    parts.join("\n\n")
}

fn labels(subject: CardSubject<'_>) -> String {
    if subject.labels.is_empty() {
        return String::new();
    }
    format!("## Labels\n\n{}", listed(subject.labels.iter().map(|name| safe(name)), MOST_LABELS))
}

fn training(summary: &Summary) -> String {
    let bytes = &summary.bytes;
    let all = ByteCount(bytes.full_up.0.saturating_add(bytes.full_down.0));
    let sent = ByteCount(bytes.up.0.saturating_add(bytes.down.0));
    let mut grid = Grid::new(["", ""]);
    let mut fact = |name: &str, value: String| grid.row([name.to_owned(), value]);
    fact("method", safe(&summary.method));
    fact("rounds", summary.rounds.to_string());
    fact("seed", summary.seed.to_string());
    fact("parameters", grouped(summary.parameters));
    // A card goes where the model goes, and what was sent tells how many came.
    let hides_clients =
        summary.privacy.as_ref().is_some_and(|privacy| privacy.guarantee.unit == Unit::Client);
    if !hides_clients {
        fact("bytes up", grouped(bytes.up.0));
        fact("bytes down", grouped(bytes.down.0));
        fact("all bytes", format!("{sent}; FedAvg over every parameter in f32 would send {all}"));
    }
    if let Some(noise) = &summary.noise {
        fact("noise", safe(noise));
    }
    format!("## How it was trained\n\n{}", grid.markdown())
}

fn privacy(summary: &Summary) -> String {
    let told = match &summary.privacy {
        None => {
            "No differential privacy guarantee: the weights may reveal single training examples."
                .to_owned()
        }
        Some(privacy) => safe(&privacy.statement),
    };
    format!("## Privacy\n\n{told}")
}

fn inputs(summary: &Summary) -> String {
    let Some(inputs) = &summary.inputs else { return String::new() };
    // Whoever knows all rows but one could try candidates for it against a digest.
    let of_rows = |digest| summary.privacy.is_none().then_some(digest);
    let digests = [
        ("rows", of_rows(inputs.rows)),
        ("labels", of_rows(inputs.labels)),
        ("partition over clients", of_rows(inputs.partition)),
        ("pretrained config", inputs.config),
        ("pretrained weights", inputs.weights),
        ("pretrained tokenizer", inputs.tokenizer),
        ("pretrained adapter", inputs.adapter),
    ];
    if digests.iter().all(|(_, digest)| digest.is_none()) {
        return String::new();
    }
    let mut grid = Grid::new(["what", "BLAKE3"]);
    for (name, digest) in digests {
        if let Some(digest) = digest {
            grid.row([name.to_owned(), digest.to_string()]);
        }
    }
    format!(
        "## Training data\n\nThese are digests of content; file names are not included.\n\n{}",
        grid.markdown()
    )
}

fn repeat(subject: CardSubject<'_>, summary: &Summary) -> String {
    let folder = match subject.holds {
        Holds::Model => "this folder",
        Holds::Adapter => "these adapters",
    };
    let apply = match (subject.task, subject.task.answer_form()) {
        (Task::Chat | Task::Preference, _) => "fedra generate --chat --model FOLDER",
        (_, AnswerForm::Text) => "fedra generate --model FOLDER --prompt TEXT",
        (_, AnswerForm::Labels) if subject.reads_images => {
            "fedra predict --model FOLDER --image FILE"
        }
        (_, AnswerForm::Labels) => "fedra predict --model FOLDER --text TEXT",
    };
    let told = if summary.privacy.is_none() { " (compare the digests above)" } else { "" };
    format!(
        "## How to repeat and use it\n\nThe run's folder holds `experiment.toml` with every setting. With the same \
         rows, labels and pretrained files{told}, on the same kind of processor:\n\n```sh\n\
         fedra run experiment.toml --out again      # seed {}\n\
         {apply:<43}# FOLDER: {folder}\n\
         fedra evaluate --model FOLDER experiment.toml\n```",
        summary.seed
    )
}

/// A name out of a file as plain text of a page: no markup, no HTML, one line.
fn safe(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '|' | '*' | '_' | '`' | '[' | ']' | '#' | '\\' | '!' => out.extend(['\\', letter]),
            letter if letter.is_control() => out.push(' '),
            // By its number, so that one name does not look like another.
            letter if turns_direction(letter) => {
                let _ = write!(out, "U+{:04X} ", letter as u32);
            }
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use fedra_data::{ByLabel, ConfusionCounts, OneLabel};

    use super::*;
    use crate::folder::summary::Score;
    use crate::forecast::private::PrivacySummary;

    fn subject(labels: &[String]) -> CardSubject<'_> {
        CardSubject {
            task: Task::Classes,
            reads_images: false,
            labels,
            holds: Holds::Model,
            round: WhichRound::Last,
        }
    }

    #[test]
    fn a_card_tells_what_the_summary_tells_and_markup_stays_text() {
        let mut summary = Summary::of_nothing(4);
        summary.name = "a <b>|x".to_owned();
        summary.score =
            Some(Score { name: "macro_f1".into(), value: 0.5, on: "central_test".into() });
        let scores = [("macro_f1".to_owned(), 0.5)].into();
        summary.scores.insert("central_test".into(), scores);
        let labels = ["<script>".to_owned(), "x_y\u{202e}z".to_owned()];
        let card = card(subject(&labels), &summary);
        assert!(
            card.starts_with(
                "---\nlibrary_name: transformers\npipeline_tag: text-classification\n"
            )
        );
        assert!(card.contains("# a &lt;b&gt;\\|x\n"), "{card}");
        assert!(card.contains("| central test | macro_f1 | 0.5000 |"), "{card}");
        assert!(card.contains("&lt;script&gt;, x\\_yU+202E z"), "{card}");
        assert!(card.contains("No differential privacy guarantee"), "{card}");
        assert!(!card.contains("<script>"));
    }

    #[test]
    fn the_card_of_a_private_run_has_no_number_from_which_rows_are_counted() {
        let card_of = |support: u64, is_private: bool| {
            let mut summary = Summary::of_nothing(4);
            let score = Score { name: "macro_f1".into(), value: 0.5, on: "central_test".into() };
            let scores = || [("macro_f1".to_owned(), 0.5)].into();
            summary.score = Some(score);
            summary.scores.insert("central_test".into(), scores());
            let counts = ConfusionCounts { true_positives: support, ..ConfusionCounts::default() };
            let labels = vec![OneLabel::of("gastro", counts)];
            let by_label = ByLabel { labels, ..ByLabel::default() };
            summary.by_label.insert("central_test".into(), by_label);
            summary.privacy = is_private.then(PrivacySummary::of_nothing);
            card(subject(&[]), &summary)
        };
        assert!(card_of(6, false).contains("| gastro |"));
        assert_ne!(card_of(6, false), card_of(7, false));
        let private = card_of(6, true);
        assert_eq!(private, card_of(7, true));
        assert!(private.contains("| central test | macro_f1 | 0.5000 |"), "{private}");
        assert!(private.contains(UNCOVERED) && !private.contains("By label"), "{private}");
    }

    #[test]
    fn the_card_of_adapters_and_of_another_task_says_so() {
        let front = |task, holds| front_matter(CardSubject { task, holds, ..subject(&[]) });
        assert!(front(Task::Concepts, Holds::Adapter).contains("peft\npipeline_tag: token-class"));
        assert!(front(Task::Choice, Holds::Model).contains("pipeline_tag: text-generation"));
        let images = CardSubject { reads_images: true, ..subject(&[]) };
        assert!(front_matter(images).contains("pipeline_tag: image-classification"));
        let card = card(subject(&[]), &Summary::of_nothing(1));
        assert!(!card.contains("## Labels") && !card.contains("## Training data"), "{card}");
    }
}
