//! From a file, a text or a raw configuration to an [`Experiment`].

use std::path::Path;

use fedra_compute::Precision;

use super::checked::Experiment;
use super::compute_device::ComputeDevice;
use super::device_name::DeviceName;
use super::origin::Origin;
use super::overrides::Overrides;
use super::raw_config::{RawConfig, Source};
use super::{catalogue, check, kind, layers, reading};
use crate::config::ConfigError;
use crate::error::{Error, Result};

/// An experiment as read: every key is known and every value has its type. Whether the values make sense together is
/// not asked yet, because that may take rows that a program has in memory ([`Self::over_records`]).
#[derive(Clone, Debug)]
pub struct ParsedExperiment {
    /// What it says.
    pub(super) raw: RawConfig,
    /// The method as the text alone has it.
    written: Option<toml::Value>,
    overrides: Overrides,
    pub(super) origin: Origin,
}

impl ParsedExperiment {
    /// Reads a file.
    pub fn open(file: &Path, overrides: &Overrides) -> Result<Self> {
        let text = kind::text_of(file)?;
        let name = file.file_stem().map(|stem| stem.to_string_lossy()).unwrap_or_default();
        Self::from_text(&text, &file.display().to_string(), &name, overrides)
    }

    /// Reads the text of a file; `name` is what the experiment is called if it does not say.
    pub fn from_text(text: &str, file: &str, name: &str, overrides: &Overrides) -> Result<Self> {
        let origin = Origin::new(file, text, overrides);
        Self::of(layers::parse(text, file)?, (origin, file), name, overrides)
    }

    /// Reads an experiment that is a table already, as a program makes it.
    pub fn from_table(table: toml::Table, name: &str, overrides: &Overrides) -> Result<Self> {
        Self::of(table, (Origin::default(), "the experiment"), name, overrides)
    }

    fn of(
        table: toml::Table,
        (origin, file): (Origin, &str),
        name: &str,
        overrides: &Overrides,
    ) -> Result<Self> {
        let read = raw_of(table, file, overrides);
        let (mut raw, written) = read.map_err(|error| origin.point(error))?;
        raw.name.get_or_insert_with(|| name.to_owned());
        // Who says that the processor computes has not to take back what the file says of a GPU.
        if raw.device == DeviceName::Cpu && overrides.names("device") {
            if !overrides.names("precision") {
                raw.precision = Precision::F32;
            }
            raw.device_memory = raw.device_memory.filter(|_| overrides.names("device_memory"));
        }
        Ok(Self { raw, written, overrides: overrides.clone(), origin })
    }

    /// What it says, with defaults for what it does not.
    pub const fn raw(&self) -> &RawConfig {
        &self.raw
    }

    /// Checks it.
    pub fn check(self) -> Result<Experiment> {
        self.check_for(None)
    }

    fn check_for(mut self, party: Option<Party>) -> Result<Experiment> {
        let ready = party.map_or(Ok(()), |party| party.leave_out_others(&mut self.raw));
        let required = party.is_none() || self.overrides.names("device");
        let experiment =
            self.checked(|raw| ready.and_then(|()| check::check(raw, None)).map_err(Error::from))?;
        let device = experiment.device;
        let device = if required { device } else { device.proposed() };
        Ok(Experiment { device, ..experiment })
    }

    /// What a check makes of it; an error has the place of its key.
    pub(super) fn checked(
        self,
        check: impl FnOnce(RawConfig) -> Result<Experiment>,
    ) -> Result<Experiment> {
        let Self { raw, written, origin, .. } = self;
        let method = raw.method.name.clone();
        #[expect(clippy::wildcard_enum_match_arm, reason = "all others are about no key")]
        let placed = |error| match error {
            Error::Config(refusal) => {
                Error::Config(origin.place(left_over(refusal, written.as_ref(), &method)))
            }
            other => other,
        };
        let checked = check(raw).map_err(placed)?;
        Ok(Experiment { origin, ..checked })
    }
}

impl Experiment {
    /// Reads and checks a file.
    pub fn open(file: &Path, overrides: &Overrides) -> Result<Self> {
        Self::open_for(file, None, overrides)
    }

    /// Reads and checks a file for one party of a federation over a network: the files of the others
    /// need not be there. The central test set is the server's, all other rows are the sites'.
    pub fn open_for(file: &Path, party: Option<Party>, overrides: &Overrides) -> Result<Self> {
        ParsedExperiment::open(file, overrides)?.check_for(party)
    }

    /// Reads and checks the text of a file; `name` is what it is called if it does not say.
    pub fn from_text(text: &str, file: &str, name: &str, overrides: &Overrides) -> Result<Self> {
        ParsedExperiment::from_text(text, file, name, overrides)?.check()
    }

    /// Reads and checks an experiment that no file holds; it is called `experiment` unless it says.
    pub fn from_toml(text: &str, overrides: &Overrides) -> Result<Self> {
        Self::from_text(text, "the experiment", RawConfig::UNNAMED, overrides)
    }

    /// Checks an experiment that was written as a value.
    pub fn new(mut raw: RawConfig) -> Result<Self> {
        raw.name.get_or_insert_with(|| RawConfig::UNNAMED.to_owned());
        Ok(check::check(raw, None)?)
    }

    /// Whether a text spells an experiment, however little sense its values make here and now.
    pub fn is_spelt(text: &str) -> bool {
        layers::parse(text, "").is_ok_and(|mut table| {
            // Rows of a program are written down and never read.
            if let Some(data) = table.get_mut("data").and_then(toml::Value::as_table_mut)
                && data.get("source").and_then(toml::Value::as_str) == Some(Source::ROWS)
            {
                data.remove("source");
            }
            reading::read::<RawConfig>(table).is_ok()
        })
    }

    /// `FedFrozen` as the file says, or over the file's method, in its first stage for all rounds.
    pub fn warming_up(&self) -> Result<Self> {
        let mut raw = self.raw.clone();
        let settings = &mut raw.method.settings;
        if raw.method.name == "fedfrozen" {
            // They say when to freeze, which the number of rounds now does.
            for key in ["plateau", "patience", "disagreement"] {
                settings.remove(key);
            }
        } else {
            let mut base = std::mem::take(settings);
            base.insert("name".to_owned(), raw.method.name.clone().into());
            settings.insert("base".to_owned(), base.into());
            "fedfrozen".clone_into(&mut raw.method.name);
        }
        raw.method.settings.insert("warmup".to_owned(), i64::from(self.rounds).into());
        Ok(check::check(raw, self.own_rows())?)
    }
}

impl Experiment {
    /// Computes on another device, or in another precision.
    pub fn compute_on(
        &mut self,
        device: Option<DeviceName>,
        precision: Option<Precision>,
    ) -> Result<(), ConfigError> {
        let raw = &mut self.raw;
        if device == Some(DeviceName::Cpu) {
            (raw.precision, raw.device_memory) = (Precision::F32, None);
        }
        raw.device = device.unwrap_or(raw.device);
        raw.precision = precision.unwrap_or(raw.precision);
        self.device = ComputeDevice::of(raw)?;
        Ok(())
    }
}

/// Whose machine an experiment is read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    /// Coordinates and holds the central test set.
    Server,
    /// Holds one client's rows.
    Site,
}

impl Party {
    /// Takes the files out of a raw configuration that lie with others.
    fn leave_out_others(self, raw: &mut RawConfig) -> Result<(), ConfigError> {
        let data = &mut raw.data;
        if raw.federation.names.is_empty() {
            // Files that are named by their clients name the clients.
            raw.federation.names = data.clients.keys().cloned().collect();
        }
        let has_clients = !std::mem::take(&mut data.clients).is_empty();
        if self == Self::Site {
            let expected = "the file of this client: the others' files in data.clients are not on this machine";
            ConfigError::missing("data.path", expected)
                .when(has_clients && data.path.is_none() && data.train.is_none())?;
            if data.test.take().is_some() {
                data.shares.central = 0.0;
            }
        } else if data.source.format().is_some() {
            let expected = "the names of all clients: the server does not have their rows";
            ConfigError::missing("federation.names", expected)
                .when(raw.federation.names.is_empty())?;
            (data.path, data.train, data.validation) = (None, None, None);
        }
        Ok(())
    }
}

/// The raw configuration that a table and what overrides it spell, and the method as the table alone has it.
fn raw_of(
    mut table: toml::Table,
    file: &str,
    overrides: &Overrides,
) -> Result<(RawConfig, Option<toml::Value>)> {
    kind::check_experiment(&table, file)?;
    layers::spell_out(&mut table);
    let written = table.get("method").cloned();
    for (key, value) in &overrides.given {
        layers::put(&mut table, key, value.clone())?;
    }
    for assignment in &overrides.sets {
        layers::set(&mut table, assignment)
            .map_err(|refused| Origin::flagged(refused, assignment))?;
    }
    for (key, value) in &overrides.flags {
        layers::put(&mut table, key, value.as_str().into())?;
    }
    for (key, value) in &overrides.assigned {
        layers::put(&mut table, key, value.clone())?;
    }
    if let Some(seed) = overrides.seed {
        layers::set(&mut table, &format!("seed={seed}"))?;
    }
    layers::spell_out(&mut table);
    layers::expand(&mut table)?;
    let raw = reading::read(table).map_err(catalogue::advise::<RawConfig>)?;
    Ok((raw, written))
}

/// Where only the name of the method was replaced, the settings of the old one are still there:
/// says so, and how to be rid of them. Otherwise says whose setting it is.
fn left_over(mut error: ConfigError, written: Option<&toml::Value>, method: &str) -> ConfigError {
    let is_unknown = error.near_mut().is_some();
    let key = error.key.strip_prefix("method.").filter(|_| is_unknown);
    let written = written.and_then(toml::Value::as_table);
    let (Some(key), Some(written)) = (key, written) else { return catalogue::advise_method(error) };
    let old = written.get("name").and_then(toml::Value::as_str).unwrap_or("fedavg");
    if old == method || !written.contains_key(key) {
        return catalogue::advise_method(error);
    }
    let hint = format!(
        "the file sets {key} for {old}; method = {{ name = \"{method}\" }} replaces the whole table"
    );
    error.with_hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedra_engine::methods::Method;

    const WHOLE: &str = r#"
        name = "clinic-safl"
        seed = 1
        device = "auto"
        [data]
        source = "synthetic-clinic"
        task = "concepts"
        partition = { by = "client" }
        [model]
        preset = "tiny-encoder"
        [federation]
        rounds = 12
        clients = 8
        sample = "all"
        [work]
        epochs = 1
        batch = 16
        optimiser = { name = "adamw", rate = 1e-3, weight_decay = 0.01 }
        [method]
        name = "fedavg"
        [wire]
        encoding = "f32"
    "#;

    fn read(text: &str, sets: &[&str]) -> Result<Experiment> {
        let sets = sets.iter().map(|&set| set.to_owned()).collect();
        Experiment::from_text(text, "x.toml", "x", &Overrides::new(sets, None))
    }

    #[track_caller]
    fn refused(sets: &[&str], expected: &str) {
        let error = read(WHOLE, sets).expect_err("it should be refused");
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn the_resolved_file_spells_the_same_experiment() {
        let sets = ["federation.sample={ uniform = 4 }", "data.max_examples=9", "work.clip=1.5"];
        let experiment = read(WHOLE, &sets).unwrap();
        let again = read(&experiment.to_toml().unwrap(), &[]).unwrap();
        assert_eq!(again.raw, experiment.raw);
    }

    #[test]
    fn an_optimiser_without_a_name_is_the_default_one() {
        let bare =
            WHOLE.replace("optimiser = { name = \"adamw\", rate = 1e-3, weight_decay = 0.01 }", "");
        let rate = read(&bare, &["work.optimiser.rate=1e-3"]).unwrap();
        let named = read(&bare, &["work.optimiser={ name = \"adamw\", rate = 1e-3 }"]).unwrap();
        assert_eq!(rate.raw, named.raw);
    }

    #[test]
    fn every_bad_value_is_named_with_its_key() {
        refused(
            &["federation.ronuds=3"],
            "federation.ronuds: unknown key\n\
             hint: did you mean federation.rounds?",
        );
        refused(
            &["federation.rounds=many"],
            "federation.rounds: found \"many\", expected a whole number that is not negative",
        );
        refused(&["federation.rounds=0"], "federation.rounds: found 0, expected at least 1");
        refused(
            &["data.task=concept"],
            "data.task: found \"concept\", expected concepts, diagnosis, classes, tokens, language, choice, generation, chat or preference\n\
             hint: the nearest is \"concepts\"",
        );
        refused(
            &["federation.sample={ uniform = 9 }"],
            "federation.sample: found { uniform = 9 } of 8 clients, expected at least one client and no more \
             than there are",
        );
        refused(
            &["work.optimiser.raet=1"],
            "work.optimiser.raet: unknown key\n\
             hint: did you mean work.optimiser.rate?",
        );
        let [names @ .., last] = Method::NAMES;
        let names = format!("{} or {last}", names.join(", "));
        refused(
            &["method.name=fedporx"],
            &format!(
                "method.name: found \"fedporx\", expected {names}\n\
                 hint: the nearest is \"fedprox\""
            ),
        );
        refused(
            &["method.name=fedprox", "method.nu=1"],
            "method.nu: unknown key\nhint: did you mean method.mu?",
        );
        refused(
            &["work.optimiser.rate=-1.0"],
            "work.optimiser.rate: found -1, expected a finite number, 0 or more",
        );
        refused(
            &["device=gpu"],
            "device: found \"gpu\", expected cpu, auto or cuda:N, as in cuda:0",
        );
        refused(
            &["device=cpu", "precision=tf32"],
            "precision: found \"tf32\", expected f32 or bf16 where no GPU computes\n\
             hint: device = \"cuda:0\" computes on a GPU; `fedra devices` lists them",
        );
        refused(
            &["data.source=jsonl"],
            "data.path is missing, expected a file (or data.train and data.test)",
        );
    }

    #[test]
    fn a_party_of_a_network_may_lack_the_device_that_its_file_names() {
        let text = WHOLE.replace("\"auto\"", "\"cuda:4000\"");
        let open = |party, overrides: &Overrides| {
            let read = ParsedExperiment::from_text(&text, "study.toml", "study", overrides);
            read.unwrap().check_for(party).unwrap().device.open()
        };
        let (file, flag) =
            (Overrides::default(), Overrides::default().flag("device", &"cuda:4000"));
        assert!(open(None, &file).is_err());
        for party in [Party::Server, Party::Site] {
            assert!(open(Some(party), &file).unwrap().note.is_some());
            assert!(open(Some(party), &flag).is_err());
            assert!(open(Some(party), &Overrides::default().set("device=cuda:4000")).is_err());
        }
    }
}
