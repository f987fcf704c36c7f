//! How many connections a server may have at a time: what it was told, within what the system lets a process
//! open.
//!
//! A federation with more clients than that would wait for the last of them for ever, so it is refused before
//! it begins.

/// Connections at a time where nobody says another number.
pub const USUAL_CONNECTIONS: usize = 1000;
/// File descriptors that a server needs beside its connections: the files of its run, scratch files, pipes.
const BESIDE: usize = 64;

/// What limits connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// The number that was asked for; absent: the usual one.
    pub asked: Option<usize>,
    /// The most file descriptors that this process may have open, where the system says so.
    pub descriptors: Option<usize>,
}

/// What a federation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Its clients.
    pub clients: usize,
    /// Connections of each: a second one where the model is cut.
    pub each: usize,
}

impl Capacity {
    /// What this process may have.
    pub fn of_process(asked: Option<usize>) -> Self {
        let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
        Self { asked, descriptors: open_files(&limits) }
    }

    /// The connections that a server accepts at a time, or why a federation cannot have as many as it needs.
    pub fn connections(self, Demand { clients, each }: Demand) -> Result<usize, String> {
        let Self { asked, descriptors } = self;
        let possible = descriptors.map_or(usize::MAX, |most| most.saturating_sub(BESIDE));
        let advice = format!(
            "this process may open {} files and needs {BESIDE} of them itself; raise the limit with `ulimit -n`, or \
             LimitNOFILE= in a systemd unit",
            descriptors.unwrap_or_default()
        );
        if let Some(found) = asked.filter(|asked| *asked > possible) {
            return Err(format!(
                "--max-connections: found {found}, expected at most {possible}: {advice}"
            ));
        }
        let wanted = asked.unwrap_or(USUAL_CONNECTIONS);
        let needed = clients.saturating_mul(each);
        let why = match each {
            1 => format!("the experiment's {clients} clients"),
            each => format!("the experiment's {clients} clients with {each} connections each"),
        };
        if needed > wanted {
            return Err(format!(
                "--max-connections: found {wanted}, expected at least {needed} for {why}"
            ));
        }
        if needed > possible {
            return Err(format!(
                "--listen: found a limit of {possible} connections, expected {needed} for {why}: {advice}"
            ));
        }
        Ok(wanted.min(possible))
    }
}

/// The soft limit of open files out of the system's table of limits.
fn open_files(limits: &str) -> Option<usize> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_clients_than_connections_or_descriptors_are_refused_with_what_to_change() {
        let of = |asked, descriptors, clients, each| {
            Capacity { asked, descriptors }.connections(Demand { clients, each })
        };
        assert_eq!(of(None, None, 3, 1), Ok(USUAL_CONNECTIONS));
        assert_eq!(of(None, Some(1024), 3, 2), Ok(960), "files are left for the run itself");
        assert_eq!(of(Some(2000), Some(4096), 1500, 1), Ok(2000));
        let told = of(None, Some(4096), 1500, 1).unwrap_err();
        assert_eq!(
            told,
            "--max-connections: found 1000, expected at least 1500 for the experiment's 1500 clients"
        );
        let told = of(None, Some(1024), 600, 2).unwrap_err();
        assert!(told.contains("at least 1200") && told.contains("2 connections each"), "{told}");
        let told = of(None, Some(256), 200, 1).unwrap_err();
        assert!(
            told.starts_with("--listen: found a limit of 192 connections, expected 200"),
            "{told}"
        );
        assert!(told.contains("LimitNOFILE="), "{told}");
        let told = of(Some(1000), Some(256), 3, 1).unwrap_err();
        assert!(told.starts_with("--max-connections: found 1000, expected at most 192"), "{told}");
        assert_eq!(of(None, Some(10), 0, 1), Ok(0));
    }

    #[test]
    fn the_systems_table_is_read_where_there_is_one() {
        let table = "Limit                     Soft Limit           Hard Limit           Units     \n\
                     Max processes             7                    8                    processes \n\
                     Max open files            1024                 524288               files     \n";
        assert_eq!(open_files(table), Some(1024));
        assert_eq!(open_files("Max open files            unlimited  unlimited  files"), None);
        assert_eq!(open_files(""), None);
    }
}
