//! The names of the files that a run leaves in its folder; [`crate::folder::run_folder`] says what each is.

/// The experiment as resolved.
pub const EXPERIMENT: &str = "experiment.toml";
/// Digests of what the run learns from.
pub const INPUTS: &str = "inputs.json";
/// The names of the clients whose numbers the log has.
pub const CLIENTS: &str = "clients.json";
/// One report a round.
pub const ROUNDS: &str = "rounds.jsonl";
/// The rounds as a table, where `log` asks for it.
pub const ROUNDS_CSV: &str = "rounds.csv";
/// The same for programs that read columns.
pub const ROUNDS_PARQUET: &str = "rounds.parquet";
/// The folder of `TensorBoard`'s events.
pub const TENSORBOARD: &str = "tensorboard";
/// What the run came to.
pub const SUMMARY: &str = "summary.json";
/// The run as a page.
pub const REPORT: &str = "report.html";
/// What a comparison came to; in the folder around its runs.
pub const COMPARISON: &str = "compare.json";
/// The last complete round.
pub const CHECKPOINT: &str = "checkpoint.fedra";
/// The best round so far.
pub const BEST: &str = "best.json";
/// What a server remembers of its sites; there where clients are on other machines.
pub const SITES: &str = "sites.json";
/// How far a run is, while it is on; that of a federation on other machines stays.
pub const STATUS: &str = "status.json";
/// Who of it came and went, one object a line.
pub const EVENTS: &str = "events.jsonl";
/// What a private run released, entry by entry.
pub const LEDGER: &str = "ledger.jsonl";
/// Where the ledger ends.
pub const LEDGER_END: &str = "ledger.end";
/// Each example of the central test set with its truth and answer, where that is asked for.
pub const PREDICTIONS: &str = "predictions.jsonl";
/// The folder of the model.
pub const MODEL: &str = "model";
/// The folder of the best round's model.
pub const MODEL_BEST: &str = "model-best";
/// The folder of the adapters alone, where there are some.
pub const ADAPTER: &str = "adapter";
/// The folder of the best round's adapters.
pub const ADAPTER_BEST: &str = "adapter-best";
/// The folders of models and adapters.
pub const FOLDERS: [&str; 4] = [MODEL, MODEL_BEST, ADAPTER, ADAPTER_BEST];
/// Every file that a run writes beside them, in the order in which a new run removes them: without its
/// summary nobody takes the rest for a complete run, and by its experiment it is known for one.
pub const FILES: [&str; 16] = [
    SUMMARY,
    CHECKPOINT,
    LEDGER_END,
    LEDGER,
    ROUNDS,
    BEST,
    INPUTS,
    SITES,
    CLIENTS,
    REPORT,
    PREDICTIONS,
    ROUNDS_CSV,
    ROUNDS_PARQUET,
    STATUS,
    EVENTS,
    EXPERIMENT,
];
/// What idle clients keep, while the run is on.
pub const SCRATCH: &str = "clients.fedra.scratch";
/// Updates that wait for their turn, while a round is on.
pub const EARLY: &str = "updates.fedra.scratch";
