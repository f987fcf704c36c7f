//! The ledger: refusals before a round, a chain that shows any change, and words for people.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use fedra_plan::{Digest, Round};
use fedra_privacy::{
    Budget, Composition, Delta, Event, Guarantee, Head, Ledger, NoiseMultiplier, PrivacyError,
    Relation, Release, Sampling, SamplingRate, Unit,
};

fn guarantee(budget: Option<f64>) -> Guarantee {
    Guarantee {
        unit: Unit::Example,
        relation: Relation::AddRemove,
        delta: Delta::new(1e-5).unwrap(),
        budget: budget.map(|epsilon| Budget::new(epsilon).unwrap()),
    }
}

fn steps(round: u32, count: u64) -> Event {
    Event {
        round: Round(round),
        mechanism: "dp-sgd".into(),
        client: None,
        input: None,
        release: Release::SampledGaussian {
            sampling: Sampling::Poisson { rate: SamplingRate::new(0.01).unwrap() },
            noise: NoiseMultiplier::new(1.0).unwrap(),
            steps: count.try_into().unwrap(),
        },
    }
}

fn of(client: &str, event: Event) -> Event {
    Event { client: Some(client.into()), ..event }
}

fn scores() -> Event {
    let (what, why) = ("validation scores".into(), "they are exact".into());
    let release = Release::NonPrivate { what, why };
    Event { round: Round(1), mechanism: "evaluation".into(), client: None, input: None, release }
}

/// A ledger of three rounds, as text, and where it ends.
fn written() -> (String, Head) {
    let mut ledger = Ledger::new(guarantee(Some(2.0))).unwrap();
    let mut lines = ledger.to_lines().unwrap();
    for round in 0..3 {
        lines += &ledger.append(&[steps(round, 100 + u64::from(round))]).unwrap();
    }
    assert_eq!(lines, ledger.to_lines().unwrap());
    (lines, ledger.head())
}

fn replay(lines: &str, guarantee: Guarantee, head: Head) -> Result<Ledger, PrivacyError> {
    Ok(Ledger::replay(lines.as_bytes(), Some(guarantee), &[head])?.ledger)
}

#[track_caller]
fn refused(lines: &str, head: Head, expected: &str) {
    let error = replay(lines, guarantee(Some(2.0)), head).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn a_round_that_would_pass_the_budget_is_refused_and_leaves_no_trace() {
    let mut ledger = Ledger::new(guarantee(Some(1.5))).unwrap();
    ledger.append(&[steps(0, 500)]).unwrap();
    let before = ledger.clone();
    let error = ledger.append(&[steps(1, 500)]).unwrap_err();
    let PrivacyError::OverBudget { would_be, spent, .. } = &error else { panic!("{error}") };
    assert!(*would_be > 1.828 && *spent < 1.5, "{error}");
    assert!(
        error.to_string().starts_with("round 2: dp-sgd would bring epsilon to 1.82"),
        "{error}"
    );
    assert_eq!(ledger, before);
    assert!(ledger.append(&[steps(1, 10)]).is_ok());
}

#[test]
fn a_release_without_a_bound_is_refused_under_a_budget_and_confessed_without_one() {
    let mut ledger = Ledger::new(guarantee(Some(8.0))).unwrap();
    let error = ledger.append(&[scores()]).unwrap_err().to_string();
    assert!(error.contains("validation scores has no bound"), "{error}");

    let mut ledger = Ledger::new(guarantee(None)).unwrap();
    ledger.append(&[steps(0, 10), scores()]).unwrap();
    assert_eq!(ledger.spent().unwrap().pld, f64::INFINITY);
    let statement = ledger.statement().unwrap();
    assert!(statement.starts_with("No differential privacy can be claimed"), "{statement}");
    assert!(statement.contains("validation scores (evaluation: they are exact)"), "{statement}");
}

#[test]
fn a_ledger_reads_back_and_goes_on_where_it_ended() {
    let (lines, head) = written();
    let mut ledger = replay(&lines, guarantee(Some(2.0)), head).unwrap();
    assert_eq!(ledger.head(), head);
    assert_eq!(ledger.to_lines().unwrap(), lines);
    ledger.append(&[steps(3, 1)]).unwrap();
    // The checkpoint is older than the ledger: the round was announced, and counts.
    let longer = ledger.to_lines().unwrap();
    let ahead = replay(&longer, guarantee(Some(2.0)), head).unwrap();
    assert_eq!(ahead.events().len(), 4);
}

#[test]
fn an_edited_reordered_or_shortened_ledger_is_refused() {
    let (lines, head) = written();
    let split: Vec<&str> = lines.lines().collect();
    refused(&lines.replace("\"steps\":101", "\"steps\":11"), head, "line 3: found digest");
    refused(&[split[0], split[2], split[1], split[3]].join("\n"), head, "line 2: found digest");
    refused(&[split[0], split[1], split[3]].join("\n"), head, "line 3: found digest");
    refused(&split[..3].join("\n"), head, "found 2 entries that do not lead past");
    refused(split[0], head, "found 0 entries that do not lead past");
    refused("", head, "line 1: the privacy guarantee is missing");
    // A torn last line announced nothing; here it was one that the head knows.
    refused(&lines[..lines.len() - 9], head, "found 2 entries that do not lead past");
    refused(&format!("{}\n", &lines[..lines.len() - 9]), head, "line 4:");
    let torn = format!("{lines}{{\"event\":");
    assert_eq!(replay(&torn, guarantee(Some(2.0)), head).unwrap().head(), head);
    refused(&format!("{lines}{{}}\n"), head, "line 5: missing field");
    let other = Head { entries: 2, ..head };
    refused(&lines, other, "do not lead past the 2 that were written");
}

#[test]
fn a_ledger_under_another_budget_delta_unit_or_relation_is_refused() {
    let (lines, head) = written();
    let mine = guarantee(Some(2.0));
    for other in [
        guarantee(Some(4.0)),
        guarantee(None),
        Guarantee { unit: Unit::Client, ..mine },
        Guarantee { relation: Relation::Replace, ..mine },
        Guarantee { delta: Delta::new(1e-6).unwrap(), ..mine },
    ] {
        let error = replay(&lines, other, head).unwrap_err();
        assert!(matches!(error, PrivacyError::OtherGuarantee { .. }), "{error}");
    }
    // Nor can the budget be edited in the file: the whole chain starts at it.
    let edited = lines.replace("\"budget\":2.0", "\"budget\":4.0");
    assert_ne!(edited, lines);
    let error = replay(&edited, guarantee(Some(4.0)), head).unwrap_err().to_string();
    assert!(error.contains("line 2: found digest"), "{error}");
}

#[test]
fn releases_about_one_client_cost_the_others_nothing() {
    let spent = |events: &[Event]| {
        let mut ledger = Ledger::new(guarantee(None)).unwrap();
        ledger.append(events).unwrap();
        ledger.spent().unwrap().pld
    };
    let apart = spent(&[of("a", steps(0, 300)), of("b", steps(0, 300))]);
    assert_eq!(apart, spent(&[steps(0, 300)]));
    assert_eq!(spent(&[of("a", steps(0, 300)), steps(0, 200)]), spent(&[steps(0, 500)]));
    assert!(spent(&[of("a", steps(0, 300)), of("a", steps(1, 300))]) > apart);
}

#[test]
fn the_statement_names_unit_relation_sampling_and_what_is_not_covered() {
    let mut ledger = Ledger::new(guarantee(Some(3.0))).unwrap();
    ledger.append(&[steps(0, 1000)]).unwrap();
    let statement = ledger.statement().unwrap();
    for part in [
        "each single row of a client's data (example-level)",
        "(add-remove)",
        "probability 1e-5",
        "epsilon 1.828",
        "of a budget of 3",
        "Poisson sampling",
        "Not covered: which clients take part",
    ] {
        assert!(statement.contains(part), "{part}: {statement}");
    }
}

#[test]
fn a_release_that_is_made_again_to_the_same_bits_counts_once() {
    let guarantee = guarantee(None);
    let mut ledger = Ledger::new(guarantee).unwrap();
    let from = |input: &[u8]| Event { input: Some(Digest::of(input)), ..steps(1, 10) };
    ledger.append(&[from(b"a")]).unwrap();
    let (head, spent) = (ledger.head(), ledger.spent().unwrap());
    assert_eq!(ledger.append(&[from(b"a")]).unwrap(), "");
    assert_eq!((ledger.head(), ledger.spent().unwrap()), (head, spent));
    // Another input, another round, or bits that cannot be made again: another release.
    ledger.append(&[from(b"b")]).unwrap();
    assert!(ledger.spent().unwrap().pld > spent.pld);
    ledger.append(&[steps(1, 10), steps(1, 10)]).unwrap();
    assert_eq!(ledger.events().len(), 4);
    let again = replay(&ledger.to_lines().unwrap(), guarantee, ledger.head()).unwrap();
    assert_eq!((again.spent().unwrap(), &again), (ledger.spent().unwrap(), &ledger));
}

#[test]
fn a_ledger_that_is_only_looked_at_has_to_lead_past_its_end_too() {
    let (lines, end) = written();
    assert_eq!(Ledger::read(lines.as_bytes(), Some(end)).unwrap().head(), end);
    let shorter = lines.lines().take(3).collect::<Vec<_>>().join("\n") + "\n";
    assert_eq!(Ledger::read(shorter.as_bytes(), None).unwrap().events().len(), 2);
    let error = Ledger::read(shorter.as_bytes(), Some(end)).unwrap_err().to_string();
    assert!(error.contains("found 2 entries that do not lead past the 3"), "{error}");
    assert!(error.contains("shortened"), "{error}");
}

#[test]
fn a_line_torn_within_a_letter_is_no_entry() {
    let mut ledger = Ledger::new(guarantee(None)).unwrap();
    ledger.append(&[of("Köln", steps(0, 10))]).unwrap();
    let head = ledger.head();
    let mut lines = ledger.to_lines().unwrap().into_bytes();
    lines.extend_from_slice("{\"event\":{\"client\":\"Kö".as_bytes());
    lines.pop();
    let replayed = Ledger::replay(&lines[..], Some(guarantee(None)), &[head]).unwrap();
    assert!(replayed.is_torn);
    assert_eq!(replayed.ledger, ledger);
}

#[test]
fn what_is_counted_up_is_what_all_events_come_to() {
    // Clients of two sizes, releases about one and about all, a rate of one, and several appends.
    let every = |round| Event {
        release: Release::Gaussian {
            sensitivity: 1.0,
            deviation: 9.0,
            count: 2.try_into().unwrap(),
        },
        ..steps(round, 1)
    };
    let mut parts = Ledger::new(guarantee(None)).unwrap();
    let mut all = Vec::new();
    for round in 0..4 {
        let some =
            [of("a", steps(round, 30)), of("b", steps(round, 50 + u64::from(round))), every(round)];
        parts.append(&some).unwrap();
        all.extend(some);
    }
    let mut whole = Ledger::new(guarantee(None)).unwrap();
    whole.append(&all).unwrap();
    assert_eq!(parts.spent().unwrap(), whole.spent().unwrap());
    let again = Ledger::read(parts.to_lines().unwrap().as_bytes(), Some(whole.head())).unwrap();
    assert_eq!(again.spent().unwrap(), whole.spent().unwrap());
    // By hand: the worst-off client is b.
    let own = all.iter().filter(|event| event.client.as_deref() != Some("a"));
    let by_hand = Composition::of(Relation::AddRemove, own.map(|event| &event.release)).unwrap();
    assert_eq!(by_hand.pld(Delta::new(1e-5).unwrap()), whole.spent().unwrap().pld);
}

#[test]
fn a_release_made_again_is_known_among_many() {
    let mut ledger = Ledger::new(guarantee(None)).unwrap();
    let made = |client: u32| Event {
        input: Some(Digest::of(b"round")),
        ..of(&format!("client-{client}"), steps(0, 10))
    };
    let first: Vec<Event> = (0..500).map(made).collect();
    ledger.append(&first).unwrap();
    let again: Vec<Event> = (490..510).map(made).collect();
    assert_eq!(ledger.append(&again).unwrap().lines().count(), 10);
    assert_eq!(ledger.events().len(), 510);
}
