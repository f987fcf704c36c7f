//! The public keys of an experiment's clients: a node is who its key says.

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::FlowerError;
use crate::openssh::public_pem;

/// The public keys of an experiment's clients: a node is who its key says.
#[derive(Clone, Debug, Default)]
pub struct NodeKeys {
    /// In PEM, as a SuperLink names nodes, with the clients that a key stands for.
    names: BTreeMap<String, Vec<String>>,
}

impl NodeKeys {
    /// The keys in a folder: `north.pub` or `north.key.pub` is that of the client `north`.
    pub fn open(folder: &Path) -> Result<Self, FlowerError> {
        let unread = |error: std::io::Error| FlowerError::file(folder.display(), error);
        let entries = std::fs::read_dir(folder).map_err(unread)?;
        let mut keys = Self::default();
        for entry in entries {
            let path = entry.map_err(unread)?.path();
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let Some(name) = file.strip_suffix(".pub") else { continue };
            let name = name.strip_suffix(".key").unwrap_or(name);
            let text = std::fs::read(&path).map_err(|error| error.to_string());
            let key = text.and_then(|text| public_pem(&String::from_utf8_lossy(&text)));
            let key = key.map_err(|reason| FlowerError::file(path.display(), reason))?;
            keys.names.entry(key).or_default().push(name.to_owned());
        }
        if keys.names.is_empty() {
            let reason = "found no file that ends in .pub, expected one a client";
            return Err(FlowerError::file(folder.display(), reason));
        }
        Ok(keys)
    }

    /// Whether `waited_for` of an experiment's clients can come: who has a key, or is vouched for. Two of them
    /// with one key cannot, because a SuperLink has one node a key. Says what else a person may want to know.
    pub fn check(
        &self,
        clients: &[String],
        (waited_for, vouched): (usize, &[String]),
    ) -> Result<Vec<String>, FlowerError> {
        let refused = |reason: String| FlowerError::file("--node-keys", reason);
        let listed = |names: &[&String]| {
            names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ")
        };
        for names in self.names.values() {
            let both: Vec<&String> = names.iter().filter(|name| clients.contains(name)).collect();
            if both.len() > 1 {
                let names = listed(&both);
                return Err(refused(format!(
                    "{names} have the same key, but every client needs its own"
                )));
            }
        }
        let without: Vec<&String> = clients
            .iter()
            .filter(|client| !self.has(client) && !vouched.contains(client))
            .collect();
        let mut remarks = Vec::new();
        if !without.is_empty() {
            let (names, can_come) = (listed(&without), clients.len() - without.len());
            if can_come < waited_for {
                let how = match can_come {
                    0 => String::new(),
                    some => format!(" (--wait-for {some} starts without them)"),
                };
                return Err(refused(format!(
                    "there is no key for {names}, and the keys of {waited_for} of {} clients are needed: clients \
                     without a key cannot join{how}",
                    clients.len()
                )));
            }
            remarks.push(format!(
                "--node-keys has no key for {names}: clients without a key cannot join"
            ));
        }
        let of_nobody: Vec<&String> =
            self.names.values().flatten().filter(|name| !clients.contains(name)).collect();
        if !of_nobody.is_empty() {
            let names = listed(&of_nobody);
            remarks.push(format!(
                "--node-keys has keys that match no client of this experiment: {names}"
            ));
        }
        Ok(remarks)
    }

    /// Whether a client has a key.
    pub(crate) fn has(&self, client: &str) -> bool {
        self.names.values().flatten().any(|name| name == client)
    }

    /// The clients that a node with this key may be.
    pub(crate) fn names(&self, public_key: &[u8]) -> Vec<String> {
        let key = std::str::from_utf8(public_key).ok();
        key.and_then(|key| self.names.get(key)).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::NodeKey;

    #[test]
    fn a_node_is_who_its_key_says() {
        let folder = tempfile::tempdir().unwrap();
        let key = |name: &str| {
            let key = NodeKey::read(&NodeKey::generate().unwrap()).unwrap();
            std::fs::write(folder.path().join(name), key.public_ssh("a comment")).unwrap();
            key.public_pem()
        };
        assert!(NodeKeys::open(folder.path()).is_err());
        let (north, west) = (key("north.key.pub"), key("west.pub"));
        std::fs::write(folder.path().join("north.key"), "not read").unwrap();
        let keys = NodeKeys::open(folder.path()).unwrap();
        assert_eq!(keys.names(north.as_bytes()), ["north"]);
        assert_eq!(keys.names(west.as_bytes()), ["west"]);
        assert_eq!(keys.names(b"another"), Vec::<String>::new());
        let clients =
            |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let told = |keys: &NodeKeys, names: &[&str], waited_for: usize, vouched: &[&str]| {
            let checked = keys.check(&clients(names), (waited_for, &clients(vouched)));
            checked.map_err(|error| error.to_string())
        };
        assert_eq!(told(&keys, &["north", "west"], 2, &[]), Ok(vec![]));
        assert_eq!(
            told(&keys, &["north", "south"], 1, &[]).unwrap(),
            [
                "--node-keys has no key for south: clients without a key cannot join",
                "--node-keys has keys that match no client of this experiment: west"
            ]
        );
        assert_eq!(
            told(&keys, &["north", "south", "west"], 3, &[]).unwrap_err(),
            "--node-keys: there is no key for south, and the keys of 3 of 3 clients are needed: clients \
             without a key cannot join (--wait-for 2 starts without them)"
        );
        let nobody = told(&keys, &["east"], 1, &[]).unwrap_err();
        assert!(nobody.ends_with("clients without a key cannot join"), "{nobody}");
        assert_eq!(told(&keys, &["north", "south", "west"], 3, &["south"]), Ok(vec![]));
        std::fs::copy(folder.path().join("west.pub"), folder.path().join("south.pub")).unwrap();
        let both = NodeKeys::open(folder.path()).unwrap();
        let refused = told(&both, &["north", "south", "west"], 1, &[]).unwrap_err();
        assert!(refused.contains("have the same key"), "{refused}");
        assert!(told(&both, &["north", "west"], 2, &[]).is_ok(), "south is of another experiment");
        std::fs::remove_file(folder.path().join("south.pub")).unwrap();
        std::fs::write(folder.path().join("bad.pub"), "ssh-ed25519 AAAA x").unwrap();
        let told = NodeKeys::open(folder.path()).unwrap_err().to_string();
        assert!(told.contains("bad.pub: found \"ssh-ed25519\", expected a line that"), "{told}");
    }
}
