//! `rounds.jsonl`, held to the checkpoint: a line a round, on the disk before the checkpoint is.
//!
//! The checkpoint has the mark of the log that belongs to it ([`LogMark`]). A log that goes further
//! is cut there, because those rounds will be run again; one that is shorter or says something else
//! is refused, because a summary of it would be wrong.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use fedra_engine::{EngineError, LogMark, RoundReport, Sink};

use crate::error::{Context, Result, refuse};
use crate::folder::regular_file;
use crate::run_files::ROUNDS;
use crate::text::grid::counted;

/// The log of a resumed run.
pub struct RoundLog {
    file: File,
    path: PathBuf,
}

impl RoundLog {
    /// Opens the log in a folder behind the rounds that are complete, and shows each of them.
    pub fn open(folder: &Path, mark: LogMark, each: &mut dyn FnMut(RoundReport)) -> Result<Self> {
        let path = folder.join(ROUNDS);
        let length = read(&path, mark, each)?;
        let open = || {
            let mut file = File::options().write(true).create(true).truncate(false).open(&path)?;
            file.set_len(length)?;
            file.seek(SeekFrom::End(0))?;
            file.sync_all()?;
            Ok::<_, std::io::Error>(file)
        };
        let file = open().with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { file, path })
    }
}

impl Sink for RoundLog {
    fn round(&mut self, report: &RoundReport) -> Result<(), EngineError> {
        let line = report.to_line()?;
        let written = self.file.write_all(&line).and_then(|()| self.file.sync_data());
        // An open file can be written to after its folder was removed, and then nobody finds it.
        let written = written.and_then(|()| std::fs::metadata(&self.path).map(drop));
        written.map_err(|error| EngineError::Sink(format!("{}: {error}", self.path.display())))
    }
}

/// Shows every report up to a mark and says at which byte it stands; refuses a log that is not the
/// marked one.
pub fn read(path: &Path, mark: LogMark, each: &mut dyn FnMut(RoundReport)) -> Result<u64> {
    let shown = path.display();
    let (mut so_far, mut bytes) = (LogMark::default(), 0);
    let is_there = whole_lines(path, &mut |line| {
        if so_far.reports == mark.reports {
            return Ok(false);
        }
        let Ok(next) = so_far.with(line) else { return Ok(false) };
        so_far = next;
        bytes += line.len() as u64;
        let report = serde_json::from_slice(line);
        each(report.with_context(|| format!("{shown}: line {} is no report", so_far.reports))?);
        Ok(true)
    })?;
    if !is_there && mark.reports > 0 {
        refuse!("{shown}: found no log, expected {}", expected(mark));
    }
    if so_far.reports < mark.reports {
        let found = counted(so_far.reports, "whole line");
        refuse!("{shown}: found {found}, expected {}", expected(mark));
    }
    if so_far != mark {
        refuse!("{shown}: lines were changed, expected {}", expected(mark));
    }
    Ok(bytes)
}

/// Shows the lines of a log as long as more are asked for, and says whether there is a log. A last line without
/// its end is a round that is being written, and is left out.
pub fn whole_lines(path: &Path, each: &mut dyn FnMut(&[u8]) -> Result<bool>) -> Result<bool> {
    let shown = path.display();
    let mut log = match regular_file::open(path) {
        Ok(file) => BufReader::new(file),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error).with_context(|| format!("cannot read {shown}")),
    };
    let mut line = Vec::new();
    loop {
        line.clear();
        log.read_until(b'\n', &mut line).with_context(|| format!("cannot read {shown}"))?;
        if line.last() != Some(&b'\n') || !each(&line)? {
            return Ok(true);
        }
    }
}

/// Rounds that a log tells of; a last line without its end is none.
pub fn lines(path: &Path) -> u64 {
    let mut count = 0;
    let _unreadable = whole_lines(path, &mut |_| {
        count += 1;
        Ok(true)
    });
    count
}

/// Refuses a log of rounds that were complete where there is no checkpoint any more. One line may be
/// there: a run can be killed between its first report and its first checkpoint.
pub fn check_begun(path: &Path) -> Result<()> {
    if lines(path) > 1 {
        let shown = path.display();
        refuse!(
            "{shown}: the log has more than one round, but the checkpoint is missing\nhint: restore the \
             checkpoint, or start a new run in another folder"
        );
    }
    Ok(())
}

fn expected(mark: LogMark) -> String {
    let reports = counted(mark.reports, "round");
    format!(
        "the log of the {reports} that the checkpoint holds\nhint: restore the log, or start a new run"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const LINE: &str = r#"{"round":0,"cohort":[0],"arrived":[0],"failed":[],"refused":[],"blocks":[],"changed":1,"loss":0.5,"bytes":{"up":1,"down":1,"full_up":1,"full_down":1},"effort":1,"seconds":0.5,"slowest":0.1,"most_updates_held":1,"scores":[]}"#;

    fn marked(lines: &[String]) -> LogMark {
        lines.iter().fold(LogMark::default(), |mark, line| mark.with(line.as_bytes()).unwrap())
    }

    #[test]
    fn a_log_is_continued_cut_or_refused_as_the_mark_says() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(ROUNDS);
        let lines: Vec<String> = (0..3)
            .map(|round| LINE.replace("\"round\":0", &format!("\"round\":{round}")))
            .collect();
        let mark = marked(&lines);
        let whole: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
        let open = |text: &str| {
            fs::write(&path, text).unwrap();
            let mut rounds = Vec::new();
            let opened = RoundLog::open(folder.path(), mark, &mut |report| {
                rounds.push(report.round.0);
            });
            (opened.map(drop), rounds, fs::read_to_string(&path).unwrap())
        };
        // As it should be, with other times, and with a round and a half that are run again.
        for more in ["", "{\"round\": 3", &format!("{LINE}\n{{\"rou")] {
            let (opened, rounds, left) = open(&format!("{whole}{more}"));
            opened.unwrap();
            assert_eq!((rounds, left), (vec![0, 1, 2], whole.clone()));
        }
        open(&whole.replace("0.5,\"slowest", "9.5,\"slowest")).0.unwrap();
        for (text, found) in [
            (
                whole[..whole.len() - 40].to_owned(),
                "found 2 whole lines, expected the log of the 3",
            ),
            (String::new(), "found 0 whole lines"),
            (whole.replace("\"changed\":1", "\"changed\":2"), "lines were changed"),
            (whole.replacen("\"round\":0", "\"round\":1", 1), "lines were changed"),
        ] {
            let (refused, _, left) = open(&text);
            let message = refused.unwrap_err().to_string();
            assert!(message.contains(found), "{message}");
            assert_eq!(left, text, "a log that is refused stays as it is");
        }
        fs::remove_file(&path).unwrap();
        let refused = RoundLog::open(folder.path(), mark, &mut |_| {}).map(drop);
        assert!(refused.unwrap_err().to_string().contains("found no log, expected"));
        assert!(!path.exists());
        RoundLog::open(folder.path(), LogMark::default(), &mut |_| {}).map(drop).unwrap();
    }
}
