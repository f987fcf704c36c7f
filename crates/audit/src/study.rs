//! A grid of cuts, noises and attackers, and what each of them reads.
//!
//! ```text
//! for each cut      client's states of the lines
//!   for each noise    loss of held-out lines through the cut; what the server sees
//!   for each knowledge   inverter, shifted inverter, search, search with prior, average
//! ```
//! Every line, noise and attack has its own seed, so a larger grid repeats a smaller one to the bit.

use std::collections::BTreeSet;

use fedra_client::Perturbation;
use fedra_engine::{Noise, NoiseDraw, NoiseKind};
use fedra_seed::Seed;

use crate::decoder::Decoder;
use crate::error::{AuditError, Result};
use crate::finding::{Attack, Finding, Knowledge, NoiseLevel, Setting};
use crate::inverter::{Inverter, StateStatistics, Target};
use crate::observation::Observation;
use crate::public_text::PublicText;
use crate::recovery::{Reading, Recovery};
use crate::search::{Search, Shortlists};

/// What is attacked, with what.
#[derive(Clone, Copy)]
pub struct Study<'a> {
    /// The client's model, as tuned as it is.
    pub client: Decoder<'a>,
    /// The public model.
    pub public: Decoder<'a>,
    /// The private lines, known tokens included.
    pub lines: &'a [Vec<u32>],
    /// Private lines on which the loss is measured.
    pub held_out: &'a [Vec<u32>],
    /// What the attacker has anyway.
    pub public_text: &'a PublicText,
    /// The tokens with which every line begins.
    pub known: &'a [u32],
    /// Tokens as text.
    pub text: &'a dyn Fn(&[u32]) -> String,
    /// What is tried.
    pub grid: &'a Grid,
}

/// What is tried.
#[derive(Clone, Debug)]
pub struct Grid {
    /// Cuts, as the number of blocks below them.
    pub firsts: Vec<usize>,
    /// Noises.
    pub noises: Vec<NoiseKind>,
    /// Whether noise is new each time; for averaging, both where absent.
    pub draw: Option<NoiseDraw>,
    /// Attacks.
    pub attacks: BTreeSet<Attack>,
    /// What attackers know.
    pub knowledge: Vec<Knowledge>,
    /// For averaging: how often each line is seen.
    pub views: Vec<u32>,
    /// How often all draws are repeated.
    pub repeats: u32,
    /// The largest number of candidates that a search tries at a position; the inverter chooses.
    pub candidates: usize,
    /// Tokens with a smaller share of the public text are rare.
    pub rare: f64,
    /// Where the noise comes from.
    pub seed: Seed,
}

/// One attacker at one cut.
struct Attacker<'a> {
    decoder: Decoder<'a>,
    knowledge: Knowledge,
    settings: &'a [Setting],
    /// Those of the attacked lines.
    states: &'a [Vec<f32>],
    statistics: Option<StateStatistics>,
}

impl Study<'_> {
    /// Runs all attacks; `progress` is told what is being done.
    pub fn run(&self, progress: &mut dyn FnMut(&str)) -> Result<Vec<Finding>> {
        self.check()?;
        let mut findings = self.guesses()?;
        for &first in &self.grid.firsts {
            let states = self.client.states(first, self.lines)?;
            progress(&format!("cut behind {first} blocks: loss"));
            let settings = self.settings(first, &states)?;
            for &knowledge in &self.grid.knowledge {
                let what = format!("cut behind {first} blocks, {} weights", knowledge.name());
                let mut told = |attack: &str| progress(&format!("{what}: {attack}"));
                let decoder = match knowledge {
                    Knowledge::Exact => self.client,
                    Knowledge::Pretrained => self.public,
                };
                let (settings, states, statistics) = (&settings[..], &states[..], None);
                let mut attacker = Attacker { decoder, knowledge, settings, states, statistics };
                findings.extend(self.invert(&mut attacker, &mut told)?);
                findings.extend(self.searches(&attacker, &mut told)?);
            }
        }
        Ok(findings)
    }

    fn check(&self) -> Result<()> {
        let grid = self.grid;
        let some = [
            ("lines", self.lines.len()),
            ("held-out lines", self.held_out.len()),
            ("cuts", grid.firsts.len()),
            ("noises", grid.noises.len()),
            ("repeats", grid.repeats as usize),
            ("candidates", grid.candidates),
        ];
        for (what, count) in some {
            if count == 0 {
                return Err(AuditError::setting(what, "none", "at least one"));
            }
        }
        grid.firsts.iter().try_for_each(|&first| self.client.check_first(first))?;
        grid.noises.iter().try_for_each(|&noise| check_noise(noise))?;
        if grid.views.contains(&0) {
            return Err(AuditError::setting("views", 0, "at least 1"));
        }
        let (longest, vocabulary) = (self.client.model.longest(), self.client.vocabulary());
        for line in self.lines.iter().chain(self.held_out).chain(&self.public_text.sequences) {
            if line.len() <= self.known.len() || line.len() < 2 || line.len() > longest {
                let expected =
                    format!("2 to {longest}, and more than the {} known", self.known.len());
                return Err(AuditError::setting("tokens of a line", line.len(), expected));
            }
            if let Some(token) = line.iter().find(|&&token| token as usize >= vocabulary) {
                let expected = format!("less than {vocabulary}, the rows of the embedding");
                return Err(AuditError::setting("token", token, expected));
            }
        }
        Ok(())
    }

    /// What needs no state.
    fn guesses(&self) -> Result<Vec<Finding>> {
        let mut findings = Vec::new();
        // The verdict is measured by the unigram guess.
        let commonest = self.public_text.commonest();
        let unigram = self.lines.iter().map(|line| vec![commonest; self.hidden(line).len()]);
        findings.push(self.finding(Attack::Unigram, None, (0..).zip(unigram)));
        if self.grid.attacks.contains(&Attack::Language) {
            let mut guesses = Vec::new();
            for (number, line) in self.lines.iter().enumerate() {
                guesses.push((number, self.public_text.language_guess(self.public, line)?));
            }
            findings.push(self.finding(Attack::Language, None, guesses.into_iter()));
        }
        Ok(findings.into_iter().flatten().collect())
    }

    /// The tokens of a line that are to be found.
    fn hidden<'l>(&self, line: &'l [u32]) -> &'l [u32] {
        &line[self.known.len()..]
    }

    /// How large each noise is at a cut, and what it costs.
    fn settings(&self, first: usize, states: &[Vec<f32>]) -> Result<Vec<Setting>> {
        let width = self.client.width();
        let held_out = self.client.states(first, self.held_out)?;
        let targets: usize = self.held_out.iter().map(|line| line.len() - 1).sum();
        let loss_with = |perturbation: Option<Perturbation>| {
            let mut sum = 0.0;
            for ((line, rows), number) in
                self.held_out.iter().zip(&held_out).zip(self.lines.len()..)
            {
                // Numbers behind those of the attacked lines: noise of their own.
                let noised = perturbation.map(|perturbation| {
                    Observation::of((number, rows), width, perturbation, 1).rows
                });
                sum += self.client.loss_from(first, line, noised.as_ref().unwrap_or(rows))?;
            }
            Ok::<f64, AuditError>(sum / targets as f64)
        };
        let clean_loss = loss_with(None)?;
        let mut settings = Vec::new();
        for &kind in &self.grid.noises {
            let perturbation = self.perturbation(kind, (first, 0), NoiseDraw::Fresh);
            let (mut noise, mut power) = (0.0, 0.0);
            for row in states.iter().flat_map(|rows| rows.chunks_exact(width)) {
                let (factor, deviation) = perturbation.measure(row);
                noise += deviation * deviation;
                let squares: f64 = row.iter().map(|x| f64::from(factor * x).powi(2)).sum();
                power += squares / width as f64;
            }
            let noise =
                NoiseLevel { kind, over_rms: (noise / power.max(f64::MIN_POSITIVE)).sqrt() };
            settings.push(Setting {
                first,
                noise,
                loss: loss_with(Some(perturbation))?,
                clean_loss,
            });
        }
        Ok(settings)
    }

    fn perturbation(
        &self,
        kind: NoiseKind,
        (first, repeat): (usize, u32),
        draw: NoiseDraw,
    ) -> Perturbation {
        let seed = self.grid.seed.of("noise").with(first as u64).with(u64::from(repeat));
        Perturbation::new(Noise { kind, draw, gradients: true, gradient_norm: None }, seed)
    }

    /// What the server sees of all lines, repeat by repeat.
    fn observe(
        &self,
        setting: &Setting,
        states: &[Vec<f32>],
        (draw, views): (NoiseDraw, u32),
    ) -> Vec<Observation> {
        let mut all = Vec::new();
        for repeat in 0..self.grid.repeats {
            let at = (setting.first, repeat);
            let perturbation = self.perturbation(setting.noise.kind, at, draw);
            for (line, rows) in states.iter().enumerate() {
                all.push(Observation::of((line, rows), self.client.width(), perturbation, views));
            }
        }
        all
    }

    fn invert(
        &self,
        attacker: &mut Attacker<'_>,
        told: &mut dyn FnMut(&str),
    ) -> Result<Vec<Finding>> {
        let Attacker { decoder, knowledge, settings, states, .. } = *attacker;
        let (attacks, mut findings) = (&self.grid.attacks, Vec::new());
        let searches = [Attack::Search, Attack::SearchWithPrior, Attack::Average];
        let shortens = self.shortens() && searches.iter().any(|attack| attacks.contains(attack));
        let Some(any) = settings.first() else { return Ok(findings) };
        let scaling = self.perturbation(any.noise.kind, (any.first, 0), self.draw());
        let wanted = [
            (Attack::Inverter, Target::Same, shortens),
            (Attack::ShiftedInverter, Target::Next, false),
        ];
        for (attack, target, needed) in wanted {
            if !(attacks.contains(&attack) || needed) {
                continue;
            }
            told(attack.name());
            let from = (self.public_text, target);
            let statistics = StateStatistics::gather(decoder, any.first, from, &scaling)?;
            if attacks.contains(&attack) {
                for setting in settings {
                    let observations = self.observe(setting, states, (self.draw(), 1));
                    let at = (any.first, 0);
                    let perturbation = self.perturbation(setting.noise.kind, at, self.draw());
                    let inverter = statistics.inverter(&perturbation, 1)?;
                    let mut guesses = Vec::new();
                    for observation in &observations {
                        let said = inverter.guess(&observation.rows)?;
                        guesses.push((observation.line, self.placed(target, &said)));
                    }
                    let at = Some((setting, knowledge));
                    findings.extend(self.finding(attack, at, guesses.into_iter()));
                }
            }
            if target == Target::Same {
                attacker.statistics = Some(statistics);
            }
        }
        Ok(findings)
    }

    /// Whether a search tries fewer candidates than there are words.
    fn shortens(&self) -> bool {
        self.grid.candidates < self.client.vocabulary()
    }

    /// What an inverter says of the hidden tokens: each row speaks of its own, or of the next.
    fn placed(&self, target: Target, said: &[u32]) -> Vec<u32> {
        match target {
            Target::Same => said[self.known.len()..].to_vec(),
            Target::Next => {
                let first = [self.public_text.commonest()];
                let all: Vec<u32> = first.iter().chain(said).copied().collect();
                all[self.known.len()..said.len()].to_vec()
            }
        }
    }

    fn draw(&self) -> NoiseDraw {
        self.grid.draw.unwrap_or(NoiseDraw::Fresh)
    }

    fn searches(
        &self,
        attacker: &Attacker<'_>,
        told: &mut dyn FnMut(&str),
    ) -> Result<Vec<Finding>> {
        let once = || attacker.settings.iter().map(|setting| (setting, self.draw(), 1)).collect();
        let draws = match self.grid.draw {
            Some(draw) => vec![draw],
            None => vec![NoiseDraw::Fresh, NoiseDraw::Cached],
        };
        let mut averaged = Vec::new();
        for setting in attacker.settings.iter().filter(|setting| setting.noise.level() > 0.0) {
            for &draw in draws.iter().filter(|_| attacker.knowledge == Knowledge::Exact) {
                averaged.extend(self.grid.views.iter().map(|&views| (setting, draw, views)));
            }
        }
        let mut findings = Vec::new();
        for (attack, prior, ways) in [
            (Attack::Search, None, once()),
            (Attack::SearchWithPrior, Some(self.public), once()),
            (Attack::Average, None, averaged),
        ] {
            if self.grid.attacks.contains(&attack) {
                findings.extend(self.search(attacker, (attack, prior), ways, told)?);
            }
        }
        Ok(findings)
    }

    /// Searches what is seen at each setting, in each draw of the noise, in some number of views; all
    /// observations at once.
    fn search(
        &self,
        attacker: &Attacker<'_>,
        (attack, prior): (Attack, Option<Decoder<'_>>),
        ways: Vec<(&Setting, NoiseDraw, u32)>,
        told: &mut dyn FnMut(&str),
    ) -> Result<Vec<Finding>> {
        let (mut observations, mut shortlists) = (Vec::new(), Vec::<Shortlists>::new());
        for &(setting, draw, views) in &ways {
            let seen = self.observe(setting, attacker.states, (draw, views));
            let known = attacker.statistics.as_ref().filter(|_| self.shortens());
            let inverter = known.zip(seen.first());
            let inverter =
                inverter.map(|(known, any)| known.inverter(&any.perturbation, any.draws));
            let inverter = inverter.transpose()?;
            for one in &seen {
                let shortlist =
                    |inverter: &Inverter| inverter.shortlists(&one.rows, self.grid.candidates);
                shortlists.push(inverter.as_ref().map(shortlist).transpose()?);
            }
            observations.extend(seen);
        }
        let first = attacker.settings.first().map_or(0, |setting| setting.first);
        let search = Search { decoder: attacker.decoder, first, prior, known: self.known };
        let found = search.recover(&observations, &shortlists, &mut |position, of| {
            told(&format!("{}, token {position} of {of}", attack.name()));
        })?;
        let guess =
            |(seen, tokens): (&Observation, Vec<u32>)| (seen.line, self.hidden(&tokens).to_vec());
        let mut guesses = observations.iter().zip(found).map(guess);
        let each = observations.len() / ways.len().max(1);
        let mut findings = Vec::new();
        for (setting, draw, views) in ways {
            let at = Some((setting, attacker.knowledge));
            let finding = self.finding(attack, at, guesses.by_ref().take(each));
            findings.extend(finding.map(|found| Finding { views, draw: Some(draw), ..found }));
        }
        Ok(findings)
    }

    /// Counts what was found of each line; none where there was nothing to find.
    fn finding(
        &self,
        attack: Attack,
        at: Option<(&Setting, Knowledge)>,
        guesses: impl Iterator<Item = (usize, Vec<u32>)>,
    ) -> Option<Finding> {
        let (mut recovery, mut sample) = (Recovery::default(), String::new());
        let is_rare = |token| self.public_text.share(token) < self.grid.rare;
        for (line, found) in guesses {
            let reading = Reading { line, truth: self.hidden(&self.lines[line]), found: &found };
            recovery.add(reading, is_rare, self.text);
            if line == 0 && sample.is_empty() {
                sample = (self.text)(&found);
            }
        }
        Some(Finding {
            attack,
            knowledge: at.map(|(_, knowledge)| knowledge),
            setting: at.map(|(setting, _)| *setting),
            views: 1,
            draw: at.map(|_| self.draw()),
            rates: recovery.rates()?,
            sample,
        })
    }
}

/// Refuses noise that makes no sense; none at all is a level like any other.
fn check_noise(kind: NoiseKind) -> Result<()> {
    let (what, value) = match kind {
        NoiseKind::Relative { gamma } => ("noise gamma", gamma),
        NoiseKind::Absolute { scale } => ("noise scale", scale),
        NoiseKind::Clipped { norm, .. } if !(norm.is_finite() && norm > 0.0) => {
            return Err(AuditError::setting("clipping norm", norm, "finite and above 0"));
        }
        NoiseKind::Clipped { sigma, .. } => ("noise sigma", sigma),
    };
    if value.is_finite() && value >= 0.0 {
        return Ok(());
    }
    Err(AuditError::setting(what, value, "finite and at least 0"))
}
