//! `fedra account`: what a private run costs before it is run, and the noise that a wish needs.

mod ledger;
mod run;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use fedra::text::grid::{Grid, grouped};
use fedra_privacy::calibration::{self, Schedule};
use fedra_privacy::rdp::Orders;
use fedra_privacy::{Budget, NoiseMultiplier, Spent, shown};
use serde_json::{Value, json};

use crate::console;
use run::{Checked, Typed, typed};

const EPSILON: &str = "\
Examples:
  fedra account epsilon --q 0.01 --sigma 1.0 --steps 1000 --delta 1e-5
  fedra account epsilon --q 0.01 --sigma 1.0 --steps 1000 --delta 1e-5 --relation replace --json
  fedra account epsilon --delta 1e-5 --phase q=0.01,sigma=1,steps=500 \\
    --phase q=0.02,sigma=0.8,steps=200
  fedra account epsilon --q 0.01 --sigma 1 --steps 1000 --examples 10000 --cap 150 --delta 1e-5
  fedra account epsilon --unit client --clients 1000 --q 0.05 --sigma 1 --steps 100 --delta 1e-4

Report pld, a tight upper bound. rdp is the looser bound of a second, independent accountant.";

const SIGMA: &str = "\
Examples:
  fedra account sigma --epsilon 3 --q 0.01 --steps 1000 --delta 1e-5
  fedra account sigma --epsilon 3 --q 0.01 --steps 1000 --delta 1e-5 --phase sigma=20,steps=1

The second command accounts for another release with fixed noise. The noise is rounded up.
Below a delta of 1e-100 the answer is that of rdp, which may be a fifth larger than that of pld.";

const STEPS: &str = "\
Example:
  fedra account steps --epsilon 3 --sigma 1 --q 0.01 --delta 1e-5";

const TABLE: &str = "\
Example:
  fedra account table --sigma 0.5,1,2,4 --q 0.01 --steps 1000 --delta 1e-5";

/// Below this delta the noise that rdp asks for is enough of an answer: a search by pld would take half a minute, and
/// save about a fifth of the noise.
const TINY: f64 = 1e-100;

/// What is asked.
#[derive(Subcommand)]
pub enum Account {
    /// The epsilon of a run
    #[command(after_help = EPSILON)]
    Epsilon(Epsilon),
    /// The least noise with which a run stays within an epsilon
    #[command(after_help = SIGMA)]
    Sigma(Sigma),
    /// The most steps that stay within an epsilon
    #[command(after_help = STEPS)]
    Steps(Steps),
    /// The epsilon of a run for several noise multipliers
    #[command(after_help = TABLE)]
    Table(Table),
    /// The privacy guarantee and the releases of a run or a client
    #[command(after_help = ledger::HELP)]
    Ledger(ledger::LedgerOf),
}

/// `fedra account epsilon`.
#[derive(Args)]
pub struct Epsilon {
    #[command(flatten)]
    run: Typed,
    /// Noise multiplier: standard deviation of the noise over the clip norm
    #[arg(long, allow_negative_numbers = true)]
    sigma: Option<f64>,
}

/// `fedra account sigma`.
#[derive(Args)]
pub struct Sigma {
    #[command(flatten)]
    run: Typed,
    /// The largest epsilon
    #[arg(long, allow_negative_numbers = true)]
    epsilon: f64,
}

/// `fedra account steps`.
#[derive(Args)]
pub struct Steps {
    #[command(flatten)]
    run: Typed,
    /// The largest epsilon
    #[arg(long, allow_negative_numbers = true)]
    epsilon: f64,
    /// Noise multiplier: standard deviation of the noise over the clip norm
    #[arg(long, allow_negative_numbers = true)]
    sigma: f64,
}

/// `fedra account table`.
#[derive(Args)]
pub struct Table {
    #[command(flatten)]
    run: Typed,
    /// Noise multipliers: standard deviations of the noise over the clip norm
    #[arg(long, value_delimiter = ',', required = true, allow_negative_numbers = true)]
    sigma: Vec<f64>,
}

impl Account {
    /// Prints the answer.
    pub fn run(self) -> Result<()> {
        match self {
            Self::Epsilon(epsilon) => epsilon.run(),
            Self::Sigma(sigma) => sigma.run(),
            Self::Steps(steps) => steps.run(),
            Self::Table(table) => table.run(),
            Self::Ledger(ledger) => ledger.run(),
        }
    }
}

impl Epsilon {
    fn run(&self) -> Result<()> {
        let checked = self.run.check()?;
        let noise =
            self.sigma.map(|sigma| typed("--sigma", NoiseMultiplier::new(sigma))).transpose()?;
        let parts = [noise.is_some(), checked.sampling.is_some(), checked.steps.is_some()];
        if parts != [true; 3] && (parts != [false; 3] || checked.phases.is_empty()) {
            bail!("fedra account epsilon needs --q, --sigma and --steps together, or only --phase");
        }
        let spent = checked.composition(noise)?.spent(checked.delta);
        tell(&self.run, &checked, answer(spent), &[(None, spent)])
    }
}

impl Sigma {
    fn run(&self) -> Result<()> {
        let checked = self.run.check()?;
        let wish = typed("--epsilon", Budget::new(self.epsilon))?;
        checked.main("sigma")?;
        let before = checked.composition(None)?.pld(checked.delta);
        if before >= wish.get() {
            bail!(
                "--epsilon: found {wish}, expected more than the {} that the phases with fixed noise spend",
                shown::up(before, 4)
            );
        }
        let by_rdp = calibration::smallest(wish, |noise| {
            Ok(checked.composition(Some(noise))?.rdp(checked.delta, &Orders::default()).0)
        })
        .ok();
        let noise = match by_rdp {
            Some(by_rdp) if checked.delta.get() < TINY => by_rdp,
            Some(_) | None => calibration::smallest(wish, |noise| {
                Ok(checked.composition(Some(noise))?.pld(checked.delta))
            })?,
        };
        let spent = checked.composition(Some(noise))?.spent(checked.delta);
        let mut object = answer(spent);
        (object["sigma"], object["sigma_rdp"]) = (json!(noise), json!(by_rdp));
        tell(&self.run, &checked, object, &[(Some(noise), spent)])?;
        if let (Some(by_rdp), false) = (by_rdp, self.run.json) {
            let sigma = shown::up(by_rdp.get(), 4);
            console::say(format_args!("by rdp alone: sigma {sigma}"));
        }
        Ok(())
    }
}

impl Steps {
    fn run(&self) -> Result<()> {
        let checked = self.run.check()?;
        let wish = typed("--epsilon", Budget::new(self.epsilon))?;
        let noise = typed("--sigma", NoiseMultiplier::new(self.sigma))?;
        let (Some(sampling), None, []) = (checked.sampling, checked.steps, &checked.phases[..])
        else {
            bail!("fedra account steps needs --q, without --steps and --phase");
        };
        let Checked { relation, delta, .. } = checked;
        let schedule = Schedule { sampling, steps: 1.try_into()?, relation, delta };
        let steps = calibration::steps(wish, noise, &schedule)?;
        let checked = Checked { steps: Some(steps), ..checked };
        let spent = checked.composition(Some(noise))?.spent(delta);
        let is_limit = steps.get() == calibration::MOST_STEPS;
        if !self.run.json {
            let (least, more) =
                if is_limit { ("at least ", "; more are not counted") } else { ("", "") };
            console::data(format_args!("steps  {least}{}{more}", grouped(steps.get())));
        }
        let mut object = answer(spent);
        (object["steps"], object["at_least"]) = (json!(steps), json!(is_limit));
        tell(&self.run, &checked, object, &[(Some(noise), spent)])
    }
}

impl Table {
    fn run(&self) -> Result<()> {
        let checked = self.run.check()?;
        checked.main("table")?;
        let (mut rows, mut objects) = (Vec::new(), Vec::new());
        for sigma in &self.sigma {
            let noise = typed("--sigma", NoiseMultiplier::new(*sigma))?;
            let spent = checked.composition(Some(noise))?.spent(checked.delta);
            let mut object = answer(spent);
            object["sigma"] = json!(noise);
            objects.push(object);
            rows.push((Some(noise), spent));
        }
        tell(&self.run, &checked, json!({ "rows": objects }), &rows)
    }
}

/// Prints an answer: one object with the guarantee that it is about, or a row for each noise.
fn tell(
    typed: &Typed,
    checked: &Checked,
    mut object: Value,
    rows: &[(Option<NoiseMultiplier>, Spent)],
) -> Result<()> {
    if typed.json {
        object["delta"] = json!(checked.delta);
        object["relation"] = checked.relation.to_string().into();
        object["unit"] = checked.unit.to_string().into();
        console::json(serde_json::to_string_pretty(&object)?);
        return Ok(());
    }
    let mut grid = Grid::new(["relation", ">sigma", ">epsilon (pld)", ">epsilon (rdp)", ">order"]);
    for (noise, spent) in rows {
        grid.row([
            checked.relation.to_string(),
            noise.map_or_else(|| "as given".to_owned(), |noise| shown::up(noise.get(), 4)),
            shown::up(spent.pld, 4),
            shown::up(spent.rdp, 4),
            format!("{}", spent.order),
        ]);
    }
    console::table(&grid);
    console::say(checked.words());
    Ok(())
}

fn answer(spent: Spent) -> Value {
    json!({ "pld": spent.pld, "rdp": spent.rdp, "rdp_order": spent.order })
}
