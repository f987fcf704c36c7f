//! What a researcher looks for first: the score and what it cost.

use fedra_engine::{Bytes, FAR, RoundReport, SideMemory};
use fedra_plan::ByteCount;
use fedra_privacy::shown;
use fedra_report::{Content, Fact};

use crate::folder::summary::{Summary, duration, travelled};
use crate::forecast::private::PrivacySummary;
use crate::report::record::{RunRecord, set_in_words};
use crate::text::grid::{counted, grouped};

fn fact(name: &str, value: impl Into<String>, note: Option<String>) -> Fact {
    Fact { name: name.to_owned(), value: value.into(), note }
}

/// The sentence below the heading.
pub(super) fn lead(record: &RunRecord) -> String {
    let done = record.rounds.len() as u64;
    let rounds = match record.asked() {
        Some(asked) if record.summary.is_none() => format!("{done} of {asked} rounds so far"),
        Some(_) | None => counted(done, "round"),
    };
    match &record.summary {
        Some(summary) => format!(
            "{}, {rounds}, seed {}: {} with {}, {} parameters.",
            summary.method,
            summary.seed,
            counted(summary.clients as u64, "client"),
            counted(summary.examples, "training example"),
            grouped(summary.parameters)
        ),
        None => format!("{}, {rounds}. The run is not complete.", record.method()),
    }
}

/// The facts.
pub(super) fn contents(record: &RunRecord) -> Vec<Content> {
    let mut facts = vec![score(record)];
    let summary = record.summary.as_ref();
    facts.extend(summary.and_then(best));
    facts.extend(summary.and_then(stopped));
    let bytes = total_bytes(record);
    facts.push(sent(&bytes));
    facts.push(privacy(record));
    let seconds: f64 = record.rounds.iter().map(|report| report.seconds).sum();
    let each = seconds / record.rounds.len().max(1) as f64;
    facts.push(fact("Time", duration(seconds), Some(format!("{} a round", duration(each)))));
    facts.extend(client_memory(record));
    if let Some(summary) = summary {
        let note = "the most that this process held, server and clients together".to_owned();
        let held = ByteCount(summary.peak_rss_bytes).to_string();
        facts.push(fact("Memory of the run", held, Some(note)));
    }
    facts.extend(stage(record));
    facts.extend(absences(record));
    facts.extend(far_updates(record));
    let warnings = record.rounds.last().and_then(|last| last.selection.as_ref());
    let warnings = warnings.iter().flat_map(|selection| &selection.warnings);
    let warnings = warnings.map(|warning| Content::Words(format!("Warning: {}", warning.text)));
    let facts = facts.into_iter().filter(|fact| !fact.value.is_empty()).collect();
    let far = far_in_words(record).into_iter().map(Content::Words);
    [Content::Facts(facts)].into_iter().chain(far).chain(warnings).collect()
}

fn score(record: &RunRecord) -> Fact {
    if let Some(summary) = &record.summary
        && let Some(score) = &summary.score
    {
        let on = score.on.replace('_', " ");
        let beside = summary.floor(score).map_or(String::new(), |(answer, value)| {
            format!("; majority baseline {value:.3} ({answer})")
        });
        let note = format!("on the {on}{beside}");
        return fact(&spoken(&score.name), format!("{:.3}", score.value), Some(note));
    }
    match record.last_score() {
        Some((name, value, on)) => {
            let note = format!("on the {}, as last scored", set_in_words(on));
            fact(&spoken(name), format!("{value:.3}"), Some(note))
        }
        None => fact("Score", "none", Some("nothing was scored".to_owned())),
    }
}

/// The name of a score as people write it.
pub(crate) fn spoken(score: &str) -> String {
    score.replace('_', " ").replace(" f1", " F1")
}

fn best(summary: &Summary) -> Option<Fact> {
    let best = summary.best.as_ref()?;
    let kept = best.model.as_ref().map_or(String::new(), |model| format!(", kept in {model}"));
    let note = format!("{} {:.3} on validation{kept}", spoken(&best.name), best.score);
    Some(fact("Best round", (best.round + 1).to_string(), Some(note)))
}

fn stopped(summary: &Summary) -> Option<Fact> {
    let why = summary.stopped?.in_words();
    Some(fact("Stopped early", format!("round {}", summary.rounds), Some(why)))
}

/// What travelled in all rounds.
pub(super) fn total_bytes(record: &RunRecord) -> Bytes {
    let mut bytes = Bytes::default();
    record.rounds.iter().for_each(|report| bytes += report.bytes);
    bytes
}

fn sent(bytes: &Bytes) -> Fact {
    let Bytes { up, down, full_up, full_down, crossing, evaluation, .. } = *bytes;
    let scoring = match evaluation {
        ByteCount(0) => String::new(),
        some => format!("; and {some} for scoring"),
    };
    let all = up + down;
    if all.0 == 0 {
        return fact(
            "Bytes",
            "none",
            Some(format!("no parameters were sent for training{scoring}")),
        );
    }
    let note = format!(
        "up {}; down {}{scoring}",
        travelled((up, crossing.up()), full_up),
        travelled((down, crossing.down()), full_down)
    );
    fact("Bytes", all.to_string(), Some(note))
}

/// What a client holds: measured where it was, and else as it was foreseen.
fn client_memory(record: &RunRecord) -> Option<Fact> {
    if let Some(SideMemory { client, server }) = record.rounds.iter().rev().find_map(|it| it.memory)
    {
        let note = format!("tensors, measured; the server {server}");
        return Some(fact("Client memory", client.to_string(), Some(note)));
    }
    let SideMemory { client, server } = record.summary.as_ref()?.foreseen_memory?;
    let note = format!("estimated, for a separate machine; the server about {server}");
    Some(fact("Client memory", format!("about {client}"), Some(note)))
}

fn privacy(record: &RunRecord) -> Fact {
    if let Some(privacy) = record.summary.as_ref().and_then(|summary| summary.privacy.as_ref()) {
        let value = privacy
            .epsilon
            .map_or("no bound".to_owned(), |epsilon| format!("epsilon {}", shown::up(epsilon, 2)));
        return fact("Privacy", value, Some(PrivacySummary::in_words(privacy)));
    }
    let told =
        |report: &RoundReport| report.privacy.as_ref().map(|told| (told.epsilon, told.delta));
    match record.rounds.last().and_then(told) {
        Some((epsilon, delta)) => {
            let value = format!("epsilon {}", shown::up(epsilon, 2));
            fact("Privacy", value, Some(format!("so far, at delta {delta}")))
        }
        None if record.value("privacy").is_some() => {
            fact("Privacy", "guaranteed", Some("nothing has been released yet".to_owned()))
        }
        None => fact("Privacy", "none", Some("no guarantee".to_owned())),
    }
}

fn stage(record: &RunRecord) -> Option<Fact> {
    let stage = record.rounds.last()?.stage.as_ref()?;
    let begun = stage.since.filter(|since| (since.0 as usize) < record.rounds.len());
    let value =
        begun.map_or("not reached".to_owned(), |since| format!("from round {}", since.0 + 1));
    Some(fact("Second stage", value, None))
}

/// How many answers were asked for and did not come.
fn absences(record: &RunRecord) -> Option<Fact> {
    let count = |part: fn(&RoundReport) -> usize| record.rounds.iter().map(part).sum::<usize>();
    let missing = count(|report| report.failed.len() + report.refused.len());
    let asked = count(|report| report.cohort.len());
    let place =
        if record.hides_clients() { "rounds.jsonl has the" } else { "see Clients for the last" };
    let note = format!("of {} requested; {place} reasons", grouped(asked as u64));
    (missing > 0).then(|| fact("Missing updates", grouped(missing as u64), Some(note)))
}

/// How many updates were far outside their cohort.
fn far_updates(record: &RunRecord) -> Option<Fact> {
    let norms = || record.rounds.iter().filter_map(|report| report.norms.as_ref());
    let far = norms().map(|norms| norms.far.len()).sum::<usize>();
    let note = format!("beyond {FAR} times the median norm of their round");
    (far > 0).then(|| fact("Updates far outside their cohort", grouped(far as u64), Some(note)))
}

/// The first of them, in words.
fn far_in_words(record: &RunRecord) -> Vec<String> {
    const MOST: usize = 5;
    let of_round = |report: &RoundReport| {
        let round = report.round.0 + 1;
        let norms = report.norms.iter();
        let words = norms.flat_map(|norms| norms.in_words(|client| format!("client {client}")));
        words.map(|far| format!("Warning: round {round}: {far}.")).collect::<Vec<_>>()
    };
    record.rounds.iter().flat_map(of_round).take(MOST).collect()
}
