//! How a run stands, in Prometheus's text format.

use std::fmt::Write as _;

use fedra_net::{FleetPhase, SiteStatus};

use super::picture::Picture;

/// One metric: its name, kind and help, and its values by label.
type Metric = (&'static str, &'static str, &'static str, Vec<(String, f64)>);

/// All metrics of a run.
pub fn of(picture: &Picture) -> String {
    let mut text = String::new();
    for (name, kind, help, values) in metrics(picture) {
        let _ = writeln!(text, "# HELP fedra_{name} {help}\n# TYPE fedra_{name} {kind}");
        for (labels, value) in values {
            let _ = writeln!(text, "fedra_{name}{labels} {value}");
        }
    }
    text
}

fn metrics(picture: &Picture) -> Vec<Metric> {
    const GAUGE: &str = "gauge";
    const COUNTER: &str = "counter";
    let one = |value: f64| vec![(String::new(), value)];
    let truth = |is: bool| f64::from(u8::from(is));
    let is_on = match picture.status.phase {
        FleetPhase::Running | FleetPhase::Retrying => picture.is_served,
        FleetPhase::Waiting | FleetPhase::Ended => false,
    };
    let far = picture.far.iter().map(|(_, norms)| norms.far.len()).sum::<usize>();
    let far_help = "Updates beyond ten times the median norm of their round.";
    let mut metrics: Vec<Metric> = vec![
        ("running", GAUGE, "Whether rounds are running.", one(truth(is_on))),
        ("finished", GAUGE, "Whether the last round is complete.", one(truth(picture.is_finished))),
        (
            "status_age_seconds",
            GAUGE,
            "Seconds since the status was written.",
            one(picture.age as f64),
        ),
        ("rounds_complete", COUNTER, "Complete rounds.", one(picture.complete as f64)),
        ("far_updates", COUNTER, far_help, one(far as f64)),
        ("payload_up_bytes", COUNTER, "Payloads from clients.", one(picture.up as f64)),
        ("payload_down_bytes", COUNTER, "Payloads to clients.", one(picture.down as f64)),
    ];
    if let Some(rounds) = picture.rounds {
        metrics.push(("rounds", GAUGE, "Number of rounds.", one(rounds as f64)));
    }
    if let Some(epsilon) = picture.epsilon {
        metrics.push(("privacy_epsilon", GAUGE, "Privacy spent.", one(epsilon)));
    }
    if let Some(progress) = picture.progress() {
        let labels = format!("{{activity=\"{}\"}}", progress.activity.name());
        let mut of = |name, help, count: u64| {
            metrics.push((name, GAUGE, help, vec![(labels.clone(), count as f64)]));
        };
        of("round_clients_done", "Clients that have finished this round.", progress.clients_done);
        of("round_clients", "Clients that were selected for this round.", progress.clients);
        if progress.steps > 0 {
            of("round_steps_done", "Steps taken, or examples scored.", progress.steps_done);
            of("round_steps", "Steps or examples in total.", progress.steps);
        }
        if let Some(left) = picture.seconds_left(progress) {
            metrics.push(("round_seconds_left", GAUGE, "Estimated time left.", one(left)));
        }
    }
    if picture.status.sites.is_empty() {
        return metrics;
    }
    let by_site = |value: &dyn Fn(&SiteStatus) -> f64| {
        let label = |site: &SiteStatus| format!("{{client=\"{}\"}}", escaped(&site.name));
        picture.status.sites.iter().map(|site| (label(site), value(site))).collect()
    };
    let here = by_site(&|site| truth(site.here && picture.is_served));
    let working = by_site(&|site| site.working.filter(|_| picture.is_served).unwrap_or(0.0));
    let sent = by_site(&|site| site.sent as f64);
    let received = by_site(&|site| site.received as f64);
    let score = |(on, name, score): &(String, String, f64)| {
        (format!("{{on=\"{}\",name=\"{}\"}}", escaped(on), escaped(name)), *score)
    };
    metrics.extend([
        ("client_here", GAUGE, "Whether a client is connected.", here),
        ("client_working_seconds", GAUGE, "Time spent on the current request.", working),
        ("client_sent_bytes", COUNTER, "Bytes sent to a client.", sent),
        ("client_received_bytes", COUNTER, "Bytes received from a client.", received),
        ("score", GAUGE, "The newest scores.", picture.scores.iter().map(score).collect()),
    ]);
    metrics
}

/// A text as the value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
