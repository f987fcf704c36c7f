//! What membership attacks found: a table, JSON lines, every score, and curves.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use fedra::study::shadow::{Released, ShadowModel};
use fedra::text::grid::Grid;
use fedra_audit::{
    Estimate, MembershipAttack, MembershipFinding, Observed, Roc, ScoredRow, most_found,
};
use fedra_compute::Seed;
use fedra_engine::PrivacyReport;
use fedra_privacy::shown;
use fedra_report::{Chart, Content, Point, Scale, Section, Series, Stroke};
use serde::Serialize;

use crate::console;
use crate::study_folder::StudyFolder;

/// Where the draws behind intervals start: the same scores have the same intervals.
const SEED: Seed = Seed(1);
/// Points of a curve; more could not be told apart.
const DRAWN: usize = 300;

/// A variant and what came of the attacks on its models.
pub struct Attacked {
    told: Told,
    attacks: Vec<(MembershipFinding, Roc)>,
    csv: String,
}

/// What is known of the models of a variant.
#[derive(Serialize)]
struct Told {
    variant: String,
    models: usize,
    rows: usize,
    released: Released,
    /// Models that reached the score that was asked for.
    reached: usize,
    score: Option<String>,
    mean_score: Option<f64>,
    mean_rounds: f64,
    /// Mean losses of members and of others: what a model knows by heart.
    loss_members: f64,
    loss_others: f64,
    privacy: Option<PrivacyReport>,
}

/// One line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    told: &'a Told,
    #[serde(flatten)]
    finding: &'a MembershipFinding,
}

impl Attacked {
    /// Attacks every model of a variant in both ways.
    pub fn of(variant: &str, models: &[ShadowModel]) -> Result<Self> {
        let observed: Vec<Observed<'_>> = (models.iter())
            .map(|model| Observed { members: &model.members, losses: &model.losses })
            .collect();
        let named = || format!("variant {variant}");
        let mut attacks = Vec::new();
        let mut scores: Vec<Vec<ScoredRow>> = Vec::new();
        for attack in MembershipAttack::ALL {
            attacks.push(attack.run(&observed, SEED).with_context(named)?);
            scores.push(attack.scores(&observed).with_context(named)?);
        }
        let csv = csv(&observed, &scores);
        Ok(Self { told: Told::of(variant, models), attacks, csv })
    }
}

impl Told {
    fn of(variant: &str, models: &[ShadowModel]) -> Self {
        let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let loss_of = |is_member: bool| {
            let chosen = models.iter().flat_map(|model| model.members.iter().zip(&model.losses));
            mean(
                chosen.filter(|(member, _)| **member == is_member).map(|(_, loss)| *loss).collect(),
            )
        };
        let scores: Vec<f64> = (models.iter())
            .filter_map(|model| model.score.as_ref().map(|score| score.value))
            .collect();
        let first = models.first();
        Self {
            variant: variant.to_owned(),
            models: models.len(),
            rows: first.map_or(0, |model| model.losses.len()),
            released: first.map_or(Released::Final, |model| model.released),
            reached: models.iter().filter(|model| model.is_reached).count(),
            score: first.and_then(|model| Some(model.score.as_ref()?.name.clone())),
            mean_score: (!scores.is_empty()).then(|| mean(scores)),
            mean_rounds: mean(models.iter().map(|model| f64::from(model.rounds)).collect()),
            loss_members: loss_of(true),
            loss_others: loss_of(false),
            privacy: models
                .iter()
                .filter_map(|model| model.privacy.as_ref())
                .max_by(|left, right| left.epsilon.total_cmp(&right.epsilon))
                .cloned(),
        }
    }

    fn shown_score(&self) -> String {
        self.mean_score.map_or_else(|| "-".to_owned(), |score| format!("{score:.3}"))
    }

    fn shown_epsilon(&self) -> String {
        let spent = self.privacy.as_ref();
        spent.map_or_else(|| "none".to_owned(), |spent| shown::up(spent.epsilon, 2))
    }
}

/// Every score, to be checked elsewhere.
fn csv(models: &[Observed<'_>], scores: &[Vec<ScoredRow>]) -> String {
    let mut text = "attack,model,row,member,loss,score\n".to_owned();
    for (attack, rows) in MembershipAttack::ALL.iter().zip(scores) {
        let name = attack.name();
        for ScoredRow { score, is_member, model, row } in rows {
            let (loss, member) = (models[*model].losses[*row], u8::from(*is_member));
            let _infallible = writeln!(text, "{name},{model},{row},{member},{loss},{score}");
        }
    }
    text
}

fn lines(attacked: &[Attacked]) -> Result<Vec<String>> {
    let one = |attacked: &Attacked| {
        let line = |(finding, _): &(MembershipFinding, Roc)| {
            serde_json::to_string(&Line { told: &attacked.told, finding })
        };
        attacked.attacks.iter().map(line).collect::<Result<Vec<_>, _>>()
    };
    Ok(attacked.iter().map(one).collect::<Result<Vec<_>, _>>()?.concat())
}

/// Prints the table, or a line of JSON for each attack.
pub fn print(attacked: &[Attacked], json: bool) -> Result<()> {
    if json {
        lines(attacked)?.iter().for_each(console::json);
        return Ok(());
    }
    console::table(&table(attacked));
    console::data("");
    remarks(attacked).iter().for_each(console::page);
    Ok(())
}

/// Writes scores, results, curves and a page.
pub fn write(attacked: &[Attacked], folder: &StudyFolder) -> Result<()> {
    folder.put("results.jsonl", &(lines(attacked)?.join("\n") + "\n"))?;
    for one in attacked {
        folder.put(&format!("{}.csv", one.told.variant), &one.csv)?;
    }
    let named = |attack: MembershipAttack| {
        let name = attack.name().replace(' ', "-").to_lowercase();
        (format!("roc-{name}"), chart(attacked, attack))
    };
    let caption = "Each model is attacked with the others as shadow models. 95 % intervals from \
                   resampling rows and models.";
    let table = table(attacked).table(caption);
    let found = vec![Section::new("Findings", vec![Content::Table(table)])];
    let heading = ("Membership inference", remarks(attacked));
    folder.put_page(heading, found, &MembershipAttack::ALL.map(named))
}

fn table(attacked: &[Attacked]) -> Grid {
    let score = attacked.iter().find_map(|one| one.told.score.as_deref()).unwrap_or("score");
    let mut grid = Grid::new([
        "variant",
        &format!(">{score}"),
        ">rounds",
        ">epsilon",
        ">loss in / out",
        "attack",
        ">AUC",
        ">95 %",
        ">TPR at 1 %",
        ">95 %",
        ">TPR at 0.1 %",
        ">95 %",
    ]);
    for Attacked { told, attacks, .. } in attacked {
        for (finding, _) in attacks {
            let shared = [
                told.variant.clone(),
                told.shown_score(),
                format!("{:.1}", told.mean_rounds),
                told.shown_epsilon(),
                format!("{:.3} / {:.3}", told.loss_members, told.loss_others),
                finding.attack.name().to_owned(),
            ];
            let area = [
                format!("{:.3}", finding.auc.value),
                format!("{:.3}-{:.3}", finding.auc.low, finding.auc.high),
            ];
            let found = finding.found.iter().flat_map(|found| percents(&found.tpr));
            grid.row(shared.into_iter().chain(area).chain(found));
        }
    }
    grid
}

fn percents(share: &Estimate) -> [String; 2] {
    let percent = |share: f64| format!("{:.2}", 100.0 * share);
    [
        format!("{} %", percent(share.value)),
        format!("{}-{}", percent(share.low), percent(share.high)),
    ]
}

/// What a reader of the table has to know.
fn remarks(attacked: &[Attacked]) -> Vec<String> {
    let mut remarks = Vec::new();
    for Attacked { told, attacks, .. } in attacked {
        let Some((finding, _)) = attacks.first() else { continue };
        remarks.push(format!(
            "{}: {} models of {} rows; {} members and {} others over all of them.",
            told.variant, told.models, told.rows, finding.members, finding.others
        ));
        if told.reached < told.models {
            remarks.push(format!(
                "{}: only {} of {} models reached the score; for the others the last model was attacked, which \
                 has a lower score.",
                told.variant, told.reached, told.models
            ));
        }
        for (finding, _) in attacks.iter().filter(|(finding, _)| finding.left_out > 0) {
            remarks.push(format!(
                "{}: {} could not judge {} rows that every shadow model was trained on.",
                told.variant,
                finding.attack.name(),
                finding.left_out
            ));
        }
        for found in finding.found.iter().filter(|found| found.false_alarms_allowed < 10) {
            remarks.push(format!(
                "{}: a false positive rate of {} % allows only {} of {} non-members: the number depends on \
                 single rows.",
                told.variant,
                100.0 * found.fpr,
                found.false_alarms_allowed,
                finding.others
            ));
        }
    }
    remarks.push("An attack that fails is no proof of privacy.".to_owned());
    remarks
}

/// True against false positives, both on logarithmic axes.
fn chart(attacked: &[Attacked], attack: MembershipAttack) -> Chart {
    let mut series = Vec::new();
    let mut least: f64 = 1e-2;
    for (colour, one) in attacked.iter().enumerate() {
        for (_, roc) in one.attacks.iter().filter(|(finding, _)| finding.attack == attack) {
            let points = drawn(&roc.points());
            least = points.iter().map(|point| point.x).fold(least, f64::min);
            let name = one.told.variant.clone();
            series.push(Series { name, points, stroke: Stroke::Solid, colour });
        }
        if let Some(spent) = &one.told.privacy {
            let at = |step: u32| 10_f64.powf(-4.0 + f64::from(step) / 10.0);
            let bound = |fpr: f64| Point::new(fpr, most_found(spent.epsilon, spent.delta, fpr));
            let points = (0..=40).map(at).map(bound).collect();
            let name = format!("{}: most allowed", one.told.variant);
            series.push(Series { name, points, stroke: Stroke::Dashed, colour });
        }
    }
    let (name, points) = ("a coin".to_owned(), [least, 1.0].map(|at| Point::new(at, at)).to_vec());
    series.push(Series { name, points, stroke: Stroke::Dashed, colour: 6 });
    Chart {
        title: format!("Members found by {}", attack.name()),
        caption: "True against false positives over all rows and attacked models. Dashed lines in \
                  the colour of a private variant: the most that its epsilon allows any attack."
            .to_owned(),
        x: ("false positive rate".to_owned(), Scale::Log),
        y: ("members found".to_owned(), Scale::Log),
        series,
    }
}

/// Points that can be shown on logarithmic axes, no more than can be told apart.
fn drawn(points: &[(f64, f64)]) -> Vec<Point> {
    let mut shown: Vec<Point> = Vec::new();
    let mut next = f64::NEG_INFINITY;
    for &(x, y) in points {
        if x > 0.0 && y > 0.0 && x.ln() >= next {
            shown.push(Point::new(x, y));
            next = x.ln() + 10.0 / DRAWN as f64;
        }
    }
    shown.push(Point::new(1.0, 1.0));
    shown
}
