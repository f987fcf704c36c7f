//! The rows of an experiment and who holds them.

use fedra_data::{
    ChoiceTemplates, DataError, Division, Example, Holding, Limits, Partition, Preparing, Reader,
    RowHash, RowHashes, Split, Table, TableBuilder, Work,
};
use fedra_privacy::Unit;

use crate::config::{ConfigError, DataFile, Experiment, Source, prompt_of};
use crate::error::{Context, Error, Result};
use crate::listener::{Listener, Silent, followed};
use crate::text::grid::counted;

/// A table and its division over clients, capped as the experiment says. Which rows are left out is drawn
/// for each row by itself ([`RowHashes`]).
pub struct PartitionedData {
    /// All rows.
    pub table: Table,
    /// Who holds which.
    pub division: Division,
    /// How many clients were too small to stand alone.
    pub small: usize,
}

impl PartitionedData {
    /// What one client has, without the rows of others that its files may have too.
    pub fn only(mut self, client: &str) -> Self {
        self.division.clients.retain(|holding| holding.client == client);
        self.division.central_test.clear();
        let mut rows = Vec::new();
        for holding in &mut self.division.clients {
            for part in [&mut holding.train, &mut holding.validation, &mut holding.test] {
                for row in part {
                    rows.push(self.table.examples[*row].clone());
                    *row = rows.len() - 1;
                }
            }
        }
        self.table.examples = rows;
        self
    }

    /// Reads or writes the rows, and deals them.
    pub fn of(experiment: &Experiment) -> Result<Self> {
        Self::heard(experiment, &Silent)
    }

    /// The same while somebody listens.
    pub fn heard(experiment: &Experiment, listener: &dyn Listener) -> Result<Self> {
        followed(experiment, listener, |work| Self::of_with(experiment, None, work))
    }

    /// The same, of everybody or of the named site, which knows nobody else. Rows that name no client are the site's
    /// own.
    pub(crate) fn of_with(
        experiment: &Experiment,
        site: Option<&str>,
        work: &Work<'_>,
    ) -> Result<Self> {
        let dealt = Self::deal(experiment, site, work);
        dealt.map_err(|error| experiment.origin.point(error))
    }

    fn deal(experiment: &Experiment, site: Option<&str>, work: &Work<'_>) -> Result<Self> {
        let seed = experiment.seed.0;
        let mut table = read(experiment, work)?;
        if let Some(name) = site
            && table.examples.iter().all(|example| example.client.is_none())
        {
            table.examples.iter_mut().for_each(|example| example.client = Some(name.to_owned()));
        }
        leave_out(&mut table, &experiment.raw.data.partition.leave_out)?;
        ConfigError::new("data", "no rows", "at least one").when(table.examples.is_empty())?;
        let division = experiment.partition.divide(&table, experiment.raw.data.shares, seed);
        let mut division = division.map_err(|error| {
            if let DataError::Setting { name, found, expected } = error {
                return Error::from(ConfigError::new(&key_of(name), found, expected));
            }
            error.into()
        })?;
        let partition = &experiment.raw.data.partition;
        let dealt = division.clients.len();
        let mut small = 0;
        if let Some(fewest) = partition.min_examples {
            small = division.without_small(fewest, partition.small.unwrap_or_default());
            let expected = "a number that some client reaches";
            ConfigError::new("data.partition.min_examples", fewest, expected)
                .when(division.clients.is_empty())?;
        }
        if site.is_none() {
            check_clients(experiment, &mut division.clients, dealt)?;
        }
        check_private(experiment, &table)?;
        let data = &experiment.raw.data;
        let hashes = RowHashes::new(&table, seed);
        for holding in &mut division.clients {
            if let Some(share) = data.sample {
                keep(&mut holding.train, (&hashes, "sample"), Few::Share(share));
            }
            for (rows, most, part) in [
                (&mut holding.train, data.max_examples, "cap train"),
                (&mut holding.validation, data.max_test, "cap validation"),
                (&mut holding.test, data.max_test, "cap test"),
            ] {
                if let Some(most) = most {
                    keep(rows, (&hashes, part), Few::Most(most));
                }
            }
        }
        if let Some(most) = data.max_test {
            keep(&mut division.central_test, (&hashes, "cap central"), Few::Most(most));
        }
        let hint = "each row is placed independently; with few rows, lower data.shares or declare a split (data.columns.split, data.train)";
        let untrained = division.clients.iter().all(|holding| holding.train.is_empty());
        ConfigError::new("data", "no training row at any client", "at least one")
            .with_hint(hint)
            .when(site.is_none() && untrained)?;
        Ok(Self { table, division, small })
    }

    /// What a server has: the central test set, and names that stand for everybody else's rows.
    pub(crate) fn of_server(experiment: &Experiment, work: &Work<'_>) -> Result<Self> {
        // Whoever has the seed has all of it.
        if matches!(experiment.source, Source::Clinic(_)) {
            return Self::of_with(experiment, None, work);
        }
        let table = read(experiment, work)?;
        let mut central_test = (0..table.examples.len()).collect();
        if let Some(most) = experiment.raw.data.max_test {
            let hashes = RowHashes::new(&table, experiment.seed.0);
            keep(&mut central_test, (&hashes, "cap central"), Few::Most(most));
        }
        let nobodys = |name: &String| Holding { client: name.clone(), ..Holding::default() };
        let clients = experiment.raw.federation.names.iter().map(nobodys).collect();
        Ok(Self { table, division: Division { clients, central_test }, small: 0 })
    }
}

/// Takes the rows of some clients away.
fn leave_out(table: &mut Table, clients: &[String]) -> Result<()> {
    let is_of = |example: &Example, name: &String| example.client.as_ref() == Some(name);
    let has_rows = |name: &&String| table.examples.iter().any(|example| is_of(example, name));
    if let Some(absent) = clients.iter().find(|name| !has_rows(name)) {
        let expected = "only clients of the data";
        let found = format!("{absent:?}");
        return Err(ConfigError::new("data.partition.leave_out", found, expected).into());
    }
    table.examples.retain(|example| !clients.iter().any(|name| is_of(example, name)));
    Ok(())
}

/// Refuses other clients than the experiment's, and puts them in its order. Before small ones were
/// joined there were so many.
fn check_clients(experiment: &Experiment, clients: &mut [Holding], dealt: usize) -> Result<()> {
    let federation = &experiment.raw.federation;
    if let Some(expected) = federation.clients {
        let found = format_args!("{} in the data", counted(clients.len() as u64, "client"));
        let hint = "leave the key out to take them all, or partition the rows with data.partition";
        ConfigError::new("federation.clients", found, expected)
            .with_hint(hint)
            .when(expected != clients.len() && expected != dealt)?;
    }
    let names = &federation.names;
    if names.is_empty() {
        return Ok(());
    }
    let refuse = |found: String, expected: &str| {
        Err(ConfigError::new("federation.names", found, expected).into())
    };
    let place = |name: &str| names.iter().position(|other| other == name);
    if let Some(stranger) = clients.iter().find(|one| place(&one.client).is_none()) {
        return refuse(format!("no {:?}", stranger.client), "every client of the data");
    }
    let has_rows = |name: &&String| clients.iter().any(|one| one.client == **name);
    if let Some(absent) = names.iter().find(|name| !has_rows(name)) {
        return refuse(format!("{absent:?}"), "only clients of the data");
    }
    clients.sort_by_key(|one| place(&one.client));
    Ok(())
}

/// The key of an experiment that stands behind a setting of a division.
fn key_of(setting: &str) -> String {
    match setting {
        "clients" => "federation.clients".to_owned(),
        "alpha" | "shards" => format!("data.partition.{setting}"),
        "central" | "validation" | "test" => format!("data.shares.{setting}"),
        "validation + test" => "data.shares.validation".to_owned(),
        other => format!("data.{other}"),
    }
}

/// How few rows are kept.
#[derive(Clone, Copy)]
enum Few {
    /// At most so many.
    Most(usize),
    /// Each with this chance.
    Share(f64),
}

/// Keeps the rows with the lowest hashes, in their order. A hash is the row's own, so one row more takes the
/// place of at most one other, and under a share of none.
fn keep(rows: &mut Vec<usize>, (hashes, purpose): (&RowHashes<'_>, &str), few: Few) {
    let drawn = hashes.of(purpose, rows);
    let is_kept: Box<dyn Fn(&RowHash) -> bool> = match few {
        Few::Most(most) if most >= rows.len() => return,
        Few::Most(most) => {
            let mut lowest = drawn.clone();
            let (_, bound, _) = lowest.select_nth_unstable(most);
            let bound = *bound;
            Box::new(move |hash| *hash < bound)
        }
        Few::Share(share) => Box::new(move |hash| hash.unit() < share),
    };
    let mut drawn = drawn.iter();
    rows.retain(|_| drawn.next().is_some_and(&is_kept));
}

/// Refuses to place documents by what most of their rows say, where single rows are hidden: one row less
/// could move all others of its document.
fn check_private(experiment: &Experiment, table: &Table) -> Result<()> {
    let privacy = experiment.recipe.privacy.as_ref();
    let hides_rows = privacy.is_some_and(|privacy| privacy.guarantee.unit == Unit::Example);
    if !(hides_rows && matches!(experiment.partition, Partition::Dirichlet { .. })) {
        return Ok(());
    }
    let mut seen = std::collections::BTreeSet::new();
    let place = |example: &Example| Some((example.client.clone(), example.document.clone()?));
    let Some(twice) = table.examples.iter().filter_map(place).find(|it| !seen.insert(it.clone()))
    else {
        return Ok(());
    };
    let found = format!("\"dirichlet\" with several rows in the document {:?}", twice.1);
    let expected = "\"client\", \"iid\" or \"quantity\" with example-level differential privacy: a document is \
                    placed by the labels of all its rows, so removing one row could move the others";
    Err(ConfigError::new("data.partition.by", found, expected).into())
}

/// How the experiment's files are read.
pub(crate) fn reader(experiment: &Experiment) -> Reader {
    let data = &experiment.raw.data;
    Reader {
        columns: data.columns.clone(),
        prompt: prompt_of(data),
        delimiter: data.delimiter,
        encoding: data.encoding.unwrap_or_default(),
        missing: data.missing.unwrap_or_default(),
        ..Reader::default()
    }
}

fn read(experiment: &Experiment, work: &Work<'_>) -> Result<Table> {
    let raw = &experiment.raw;
    let mut builder = TableBuilder::new(experiment.task);
    if let Some(names) = &raw.data.labels {
        builder = builder.with_labels(names.iter().cloned());
    } else if let Some(names) = raw.data.answers.as_ref().and_then(ChoiceTemplates::labels) {
        builder = builder.with_labels(names);
    }
    match &experiment.source {
        Source::Rows(rows) => return Ok(Table::clone(rows)),
        Source::Clinic(clinic) => return Ok(clinic.generate(experiment.task, raw.seed)?),
        Source::Mimic(mimic, path) => {
            mimic.read(path, Limits::default(), &mut builder).context("data.path")?;
        }
        Source::Files(format, files) => {
            let length = |file: &DataFile| std::fs::metadata(&file.path).map_or(0, |it| it.len());
            let total: u64 = files.iter().map(length).sum();
            let mut before = 0;
            for file in files {
                let DataFile { path, split, client } = file;
                let what = match (split, client) {
                    (None, None) => "data.path".to_owned(),
                    (None, Some(client)) => format!("data.clients.{client}"),
                    (Some(Split::Train), _) => "data.train".to_owned(),
                    (Some(Split::Validation), _) => "data.validation".to_owned(),
                    (Some(Split::Test), _) => "data.test".to_owned(),
                };
                let reader = Reader { split: *split, client: client.clone(), ..reader(experiment) };
                let rows_before = builder.len();
                // Many files are read as one: how far it is, is told of all of them.
                let follow =
                    |step: Preparing| work.tell(step.stage, before + step.done, total).is_ok();
                let of_all = Work::on(Some(work.threads()), &follow);
                reader.read_with(&of_all, (*format, path), &mut builder).context(&what)?;
                before += length(file);
                ConfigError::new(
                    &what,
                    format_args!("no rows in {}", path.display()),
                    "at least one",
                )
                .when(builder.len() == rows_before)?;
            }
        }
    }
    Ok(builder.finish())
}
