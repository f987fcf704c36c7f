//! A method of your own: only the upper half of the model learns and travels, every hospital counts
//! alike however many notes it has, and the server continues with half of its last step.
//!
//! A method is a value. `Recipe` has one field for each choice that a federation makes, so a new method
//! names the choices that differ and takes the others from a recipe that exists.

use std::path::Path;

use fedra::engine::{Recipe, ServerRule, Weighting};
use fedra::plan::{Layer, Rule};
use fedra::{Experiment, Output, Overrides, Silent, Summary};

const CLINIC: &str = include_str!("../tests/tiny.toml");

/// The method, over whatever work, sampling and encoding the experiment asks for.
fn upper_half(base: Recipe, blocks: u16) -> Recipe {
    let upper = Rule::Blocks((blocks / 2..blocks).collect());
    Recipe {
        method: "upper-half".to_owned(),
        learns: upper | Rule::Layers([Layer::Embedding, Layer::Head].into()),
        weighting: Weighting::Uniform,
        server: ServerRule::Momentum { rate: 1.0, beta: 0.5 },
        ..base
    }
}

/// Runs it, and returns what it came to.
pub fn federate(folder: &Path) -> fedra::Result<Summary> {
    let experiment = Experiment::from_toml(CLINIC, &Overrides::default())?;
    let recipe = upper_half(experiment.recipe.clone(), 2);
    let experiment = experiment.with_recipe(recipe)?;
    let ending = fedra::run(&experiment, &Output::new(folder), &Silent)?;
    Ok(ending.complete().expect("nobody stops it"))
}

#[expect(clippy::print_stdout, reason = "an example shows what it found")]
fn main() -> fedra::Result<()> {
    let place = tempfile::tempdir()?;
    let summary = federate(&place.path().join("run"))?;
    println!("{}", summary.table());
    Ok(())
}
