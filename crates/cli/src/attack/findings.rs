//! What an attack found, in tables, as JSON lines, and as charts of recovery against loss.

use anyhow::Result;
use fedra::text::grid::Grid;
use fedra_audit::{Attack, Finding, Knowledge, Setting, Verdict};
use fedra_engine::{NoiseDraw, NoiseKind};
use fedra_report::{Chart, Point, Scale, Series, Stroke};

use crate::console;
use crate::study_folder::StudyFolder;

/// Prints findings, as JSON lines or in words, and writes a page where a folder is given.
pub fn show(
    (findings, truth): (&[Finding], &str),
    json: bool,
    folder: Option<&StudyFolder>,
) -> Result<()> {
    let verdicts = &Verdict::of(findings);
    let lines: Vec<String> =
        findings.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
    if json {
        lines.iter().for_each(console::json);
    } else {
        for table in tables(findings) {
            console::table(&table);
            console::data("");
        }
        verdicts.iter().map(sentence).for_each(console::page);
        console::data("");
        console::data(samples(findings, truth));
    }
    let Some(folder) = folder else { return Ok(()) };
    folder.put("results.jsonl", &(lines.join("\n") + "\n"))?;
    let charts = [
        ("recovery-by-loss", by_loss(findings)),
        ("recovery-by-noise", by_noise(findings)),
        ("averaging", by_views(findings)),
    ];
    let charts = charts.map(|(name, chart)| (name.to_owned(), chart));
    let title = "Text reconstruction from the hidden states of a split decoder";
    folder.put_page((title, introduction(verdicts)), Vec::new(), &charts)?;
    console::say(format_args!("open {}", folder.page().display()));
    Ok(())
}

fn introduction(verdicts: &[Verdict]) -> Vec<String> {
    let criterion = format!(
        "A noise counts as safe if {}. Other attacks may succeed where these fail. Every \
         number is in results.jsonl.",
        Verdict::CRITERION
    );
    verdicts.iter().map(sentence).chain([criterion]).collect()
}

fn percent(share: f64) -> String {
    format!("{:.1}", 100.0 * share)
}

/// A noise in the words of its flags.
fn named(kind: NoiseKind) -> String {
    match kind {
        NoiseKind::Relative { gamma } => format!("gamma {gamma}"),
        NoiseKind::Absolute { scale } => format!("scale {scale}"),
        NoiseKind::Clipped { sigma, norm } => format!("sigma {sigma}, norm {norm}"),
    }
}

fn sentence(verdict: &Verdict) -> String {
    let cost = |setting: &Setting| {
        format!("loss {:.2} against {:.2} without noise", setting.loss, setting.clean_loss)
    };
    let readable = match &verdict.readable {
        Some(setting) => {
            format!("nine in ten tokens are reconstructed up to {}", named(setting.noise.kind))
        }
        None => "at no noise level tried are nine in ten tokens reconstructed".to_owned(),
    };
    let safe = if let Some(setting) = &verdict.safe {
        let noise = named(setting.noise.kind);
        format!("safe from these attacks from {noise} on ({})", cost(setting))
    } else {
        let (setting, share) = &verdict.loudest;
        let (noise, share, cost) = (named(setting.noise.kind), percent(*share), cost(setting));
        format!("the text is safe at no noise level tried: {share} % of tokens at {noise} ({cost})")
    };
    format!("cut behind {} blocks: {readable}; {safe}", verdict.first)
}

fn same_place(finding: &Finding, setting: &Setting, knowledge: Knowledge) -> bool {
    finding.setting == Some(*setting) && finding.knowledge == Some(knowledge)
}

/// The settings and attackers of a table, in order.
fn places(findings: &[Finding]) -> Vec<(Setting, Knowledge)> {
    let mut places = Vec::new();
    for finding in findings.iter().filter(|finding| finding.attack != Attack::Average) {
        if let Some(place) = finding.setting.zip(finding.knowledge) {
            place_among(&mut places, place);
        }
    }
    places
}

/// The attack that reads most from one sight.
fn best<'f>(
    findings: &'f [Finding],
    setting: &Setting,
    knowledge: Knowledge,
) -> Option<&'f Finding> {
    findings
        .iter()
        .filter(|one| one.attack.reads_one_sight() && same_place(one, setting, knowledge))
        .max_by(|a, b| a.rates.accuracy.total_cmp(&b.rates.accuracy))
}

fn tables(findings: &[Finding]) -> Vec<Grid> {
    let mut guesses = Grid::new(["guess without a state", ">tokens %", ">rare %", ">ROUGE-L"]);
    let rare = |finding: &Finding| finding.rates.rare.map_or_else(|| "-".to_owned(), percent);
    for finding in findings.iter().filter(|finding| finding.setting.is_none()) {
        let rates = &finding.rates;
        let name = finding.attack.name().to_owned();
        guesses.row([name, percent(rates.accuracy), rare(finding), percent(rates.rouge_l)]);
    }
    let mut grid = Grid::new([
        ">cut",
        ">noise",
        ">/ rms",
        ">loss",
        "weights",
        ">shifted",
        ">inverter",
        ">search",
        ">with prior",
        ">best, 95 %",
        ">rare",
        ">ROUGE-L",
    ]);
    for (setting, knowledge) in places(findings) {
        let share = |attack: Attack| {
            let is = |one: &&Finding| one.attack == attack && same_place(one, &setting, knowledge);
            let found = findings.iter().find(is);
            found.map_or_else(|| "-".to_owned(), |one| percent(one.rates.accuracy))
        };
        let best = best(findings, &setting, knowledge);
        let interval =
            |one: &Finding| format!("{}..{}", percent(one.rates.low), percent(one.rates.high));
        let none = || "-".to_owned();
        grid.row([
            setting.first.to_string(),
            setting.noise.level().to_string(),
            format!("{:.2}", setting.noise.over_rms),
            format!("{:.2}", setting.loss),
            knowledge.name().to_owned(),
            share(Attack::ShiftedInverter),
            share(Attack::Inverter),
            share(Attack::Search),
            share(Attack::SearchWithPrior),
            best.map_or_else(none, interval),
            best.map_or_else(none, rare),
            best.map_or_else(none, |one| percent(one.rates.rouge_l)),
        ]);
    }
    let mut tables = vec![guesses];
    if grid.lines().len() > 1 {
        tables.push(grid);
    }
    tables.extend(averages(findings));
    tables
}

fn averaged(findings: &[Finding]) -> impl Iterator<Item = (&Finding, Setting, NoiseDraw)> {
    findings
        .iter()
        .filter(|finding| finding.attack == Attack::Average)
        .filter_map(|finding| Some((finding, finding.setting?, finding.draw?)))
}

const fn draw_name(draw: NoiseDraw) -> &'static str {
    match draw {
        NoiseDraw::Fresh => "fresh",
        NoiseDraw::Cached => "cached",
    }
}

/// Search on the mean of several sights, one column a number of sights.
fn averages(findings: &[Finding]) -> Option<Grid> {
    let mut views: Vec<u32> = averaged(findings).map(|(finding, ..)| finding.views).collect();
    views.sort_unstable();
    views.dedup();
    let fixed = [">cut", ">noise", "draw"].map(str::to_owned);
    let headings: Vec<String> =
        fixed.into_iter().chain(views.iter().map(|views| format!(">seen {views} x"))).collect();
    let mut grid = Grid::new(&headings);
    let mut done = Vec::new();
    for (_, setting, draw) in averaged(findings) {
        if done.contains(&(setting, draw)) {
            continue;
        }
        done.push((setting, draw));
        let fixed =
            [setting.first.to_string(), setting.noise.level().to_string(), draw_name(draw).into()];
        let cells = views.iter().map(|views| {
            let found = averaged(findings)
                .find(|(one, at, how)| one.views == *views && (at, how) == (&setting, &draw));
            found.map_or_else(|| "-".to_owned(), |(one, ..)| percent(one.rates.accuracy))
        });
        grid.row(fixed.into_iter().chain(cells));
    }
    (!done.is_empty()).then_some(grid)
}

/// The first line as it was and as the best attack read it, noise by noise at the first cut.
fn samples(findings: &[Finding], truth: &str) -> String {
    let mut lines = vec![format!("original line: {truth}")];
    let places = places(findings);
    let first = places.first().map(|(setting, _)| setting.first);
    for (setting, knowledge) in places {
        if Some(setting.first) == first
            && knowledge == Knowledge::Exact
            && let Some(found) = best(findings, &setting, knowledge)
        {
            lines.push(format!("  at {}: {}", named(setting.noise.kind), found.sample));
        }
    }
    lines.join("\n")
}

/// A line for each cut and attacker, its x as given; settings without one are left out.
fn lines_of(findings: &[Finding], x: impl Fn(&Setting) -> Option<f64>) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    let mut cuts = Vec::new();
    for (setting, knowledge) in places(findings) {
        let (Some(best), Some(x)) = (best(findings, &setting, knowledge), x(&setting)) else {
            continue;
        };
        let colour = place_among(&mut cuts, setting.first);
        let name = format!("{} blocks, {} weights", setting.first, knowledge.name());
        let rates = &best.rates;
        let at = [rates.accuracy, rates.low, rates.high].map(|share| 100.0 * share);
        let point = Point::with_band(x, at[0], at[1], at[2]);
        let stroke = match knowledge {
            Knowledge::Exact => Stroke::Marked,
            Knowledge::Pretrained => Stroke::DashedMarked,
        };
        add(&mut series, Series { name, points: vec![point], stroke, colour });
    }
    series.extend(guess_line(findings, &series));
    series
}

/// Puts points behind those of the line of the same name, or begins it.
/// The place of something in a list that takes it in if it is new.
fn place_among<T: PartialEq>(known: &mut Vec<T>, one: T) -> usize {
    known.iter().position(|it| *it == one).unwrap_or_else(|| {
        known.push(one);
        known.len() - 1
    })
}

fn add(all: &mut Vec<Series>, mut series: Series) {
    if let Some(same) = all.iter_mut().find(|one| one.name == series.name) {
        same.points.append(&mut series.points);
    } else {
        all.push(series);
    }
}

/// A dashed line across: what is guessed without a state.
fn guess_line(findings: &[Finding], series: &[Series]) -> Option<Series> {
    let guess = findings.iter().find(|finding| finding.attack == Attack::Unigram)?;
    let places = || series.iter().flat_map(|series| &series.points).map(|point| point.x);
    let (low, high) = (places().reduce(f64::min)?, places().reduce(f64::max)?);
    let points = [low, high].map(|x| Point::new(x, 100.0 * guess.rates.accuracy)).to_vec();
    let name = guess.attack.name().to_owned();
    Some(Series { name, points, stroke: Stroke::Dashed, colour: 6 })
}

fn by_loss(findings: &[Finding]) -> Chart {
    let series = lines_of(findings, |setting| Some(setting.loss - setting.clean_loss));
    Chart {
        title: "Reconstructed tokens against the cost of noise".to_owned(),
        caption:
            "Share of tokens that the best attack reconstructs from one observation, by how much the noise \
                  raises the loss of held-out lines. A good defence is low at the left. Bands are \
                  95 % intervals over lines."
                .to_owned(),
        x: ("added loss per token, nats".to_owned(), Scale::Linear),
        y: ("tokens read, %".to_owned(), Scale::Linear),
        series,
    }
}

fn by_noise(findings: &[Finding]) -> Chart {
    let positive = |setting: &Setting| Some(setting.noise.over_rms).filter(|noise| *noise > 0.0);
    let series = lines_of(findings, positive);
    Chart {
        title: "Reconstructed tokens by noise".to_owned(),
        caption:
            "Share of tokens that the best attack reconstructs from one observation. Noise is given as its \
                  standard deviation in units of the states' root mean square."
                .to_owned(),
        x: ("noise / rms of the states".to_owned(), Scale::Log),
        y: ("tokens read, %".to_owned(), Scale::Linear),
        series,
    }
}

/// Averaging at the first cut.
fn by_views(findings: &[Finding]) -> Chart {
    let first = averaged(findings).map(|(_, setting, _)| setting.first).next();
    let mut series: Vec<Series> = Vec::new();
    let mut levels: Vec<f64> = Vec::new();
    for (finding, setting, draw) in averaged(findings) {
        if Some(setting.first) != first {
            continue;
        }
        let colour = place_among(&mut levels, setting.noise.level());
        let name = format!("{}, {}", named(setting.noise.kind), draw_name(draw));
        let point = Point::new(f64::from(finding.views), 100.0 * finding.rates.accuracy);
        let stroke = match draw {
            NoiseDraw::Fresh => Stroke::Marked,
            NoiseDraw::Cached => Stroke::DashedMarked,
        };
        add(&mut series, Series { name, points: vec![point], stroke, colour });
    }
    Chart {
        title: "Averaging over repeated observations".to_owned(),
        caption:
            "Share of tokens that search reconstructs from the mean of several observations, at the lowest cut. \
                  Fresh noise averages out; cached noise does not."
                .to_owned(),
        x: ("observations of a line".to_owned(), Scale::Log),
        y: ("tokens read, %".to_owned(), Scale::Linear),
        series,
    }
}
