//! What the environment says about the hub, in the variables of Python's `huggingface_hub`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fmt, fs};

use crate::endpoint::Endpoint;
use crate::error::HubError;

/// The hub unless `HF_ENDPOINT` names another.
const USUAL_ENDPOINT: &str = "https://huggingface.co";
/// The wait before the second attempt; every further one is twice as long.
const PAUSE: Duration = Duration::from_secs(1);
/// Most bytes of a file with a token.
const LONGEST_TOKEN: usize = 4096;

/// Where models come from and where they are kept.
#[derive(Clone, Debug)]
pub struct Hub {
    pub(crate) cache: PathBuf,
    pub(crate) endpoint: Endpoint,
    pub(crate) token: Option<Token>,
    pub(crate) is_offline: bool,
    pub(crate) links: bool,
    pub(crate) pause: Duration,
}

/// What shows the hub who asks. It is never written anywhere.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Hub {
    /// As the variables of the environment say.
    pub fn from_env() -> Result<Self, HubError> {
        Self::from_variables(&|name| env::var_os(name))
    }

    /// As these variables say. A token file is read only here, and only if no variable has the token.
    pub fn from_variables(variable: &dyn Fn(&str) -> Option<OsString>) -> Result<Self, HubError> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let user = variable("HOME").or_else(|| variable("USERPROFILE")).map(PathBuf::from);
        let path = |name: &str| variable(name).map(|value| expanded(value.into(), user.as_deref()));
        let home = path("HF_HOME").or_else(|| {
            let usual = || user.as_ref().map(|user| user.join(".cache"));
            path("XDG_CACHE_HOME").or_else(usual).map(|cache| cache.join("huggingface"))
        });
        let cache = path("HF_HUB_CACHE").or_else(|| path("HUGGINGFACE_HUB_CACHE"));
        let cache = cache.or_else(|| home.as_ref().map(|home| home.join("hub")));
        let cache = cache.ok_or(HubError::NoCache)?;
        let cache = std::path::absolute(&cache).map_err(HubError::disk("find", &cache))?;
        let is_set = |name: &str| variable(name).is_some_and(|value| is_true(&value));
        let text = |name: &str| variable(name).map(|value| value.to_string_lossy().into_owned());
        let endpoint = text("HF_ENDPOINT").unwrap_or_else(|| USUAL_ENDPOINT.to_owned());
        let token = if is_set("HF_HUB_DISABLE_IMPLICIT_TOKEN") {
            None
        } else {
            let given = ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"];
            let given = given.into_iter().find_map(|name| Some((name, text(name)?)));
            let file = path("HF_TOKEN_PATH").or_else(|| home.map(|home| home.join("token")));
            let kept = || Some(("HF_TOKEN_PATH", fs::read_to_string(file?).ok()?));
            given.or_else(kept).map(|(name, text)| Token::new(name, &text)).transpose()?.flatten()
        };
        Ok(Self {
            cache,
            endpoint: Endpoint::parse(&endpoint)?,
            token,
            is_offline: is_set("HF_HUB_OFFLINE") || is_set("TRANSFORMERS_OFFLINE"),
            links: !is_set("HF_HUB_DISABLE_SYMLINKS"),
            pause: PAUSE,
        })
    }

    /// The same with another wait before the second attempt.
    pub fn with_pause(self, pause: Duration) -> Self {
        Self { pause, ..self }
    }

    /// Where models are kept.
    pub fn cache(&self) -> &Path {
        &self.cache
    }

    /// Where they come from.
    pub fn endpoint(&self) -> String {
        self.endpoint.to_string()
    }

    /// Whether connections are forbidden.
    pub const fn is_offline(&self) -> bool {
        self.is_offline
    }
}

impl Token {
    /// What a variable or a file holds; no token where it is empty.
    fn new(variable: &'static str, text: &str) -> Result<Option<Self>, HubError> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(None);
        }
        if text.len() > LONGEST_TOKEN || !text.bytes().all(|letter| letter.is_ascii_graphic()) {
            let found = format!("{} characters that are not shown", text.chars().count());
            let expected = "a token of the hub, one word of plain letters";
            return Err(HubError::Setting { variable, found, expected });
        }
        Ok(Some(Self(text.to_owned())))
    }

    pub(crate) fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(..)")
    }
}

/// The values that Python's library takes for yes.
fn is_true(value: &OsString) -> bool {
    let value = value.to_string_lossy().to_ascii_uppercase();
    ["1", "ON", "YES", "TRUE"].contains(&value.as_str())
}

fn expanded(path: PathBuf, user: Option<&Path>) -> PathBuf {
    match (path.strip_prefix("~"), user) {
        (Ok(rest), Some(user)) => user.join(rest),
        (Ok(_) | Err(_), _) => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hub(variables: &[(&str, &str)]) -> Result<Hub, HubError> {
        Hub::from_variables(&|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
        })
    }

    #[test]
    fn the_cache_is_where_the_variables_say() {
        let place = |variables: &[(&str, &str)]| hub(variables).unwrap().cache;
        let mut variables = vec![("HOME", "/u")];
        assert_eq!(place(&variables), Path::new("/u/.cache/huggingface/hub"));
        for (variable, value, expected) in [
            ("XDG_CACHE_HOME", "/x", "/x/huggingface/hub"),
            ("HF_HOME", "~/h", "/u/h/hub"),
            ("HUGGINGFACE_HUB_CACHE", "/old", "/old"),
            ("HF_HUB_CACHE", "/c", "/c"),
        ] {
            variables.push((variable, value));
            assert_eq!(place(&variables), Path::new(expected), "{variable}");
        }
        assert!(matches!(hub(&[]), Err(HubError::NoCache)));
    }

    #[test]
    fn a_token_is_trimmed_and_never_shown() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().to_str().unwrap();
        assert_eq!(hub(&[("HF_HOME", path)]).unwrap().token, None);
        fs::write(home.path().join("token"), "hf_file\n").unwrap();
        let told = hub(&[("HF_HOME", path)]).unwrap();
        assert_eq!(told.token.as_ref().unwrap().header(), "Bearer hf_file");
        let told = hub(&[("HF_HOME", path), ("HF_TOKEN", " hf_given ")]).unwrap();
        assert_eq!(told.token.as_ref().unwrap().header(), "Bearer hf_given");
        assert!(!format!("{told:?}").contains("hf_given"));
        let off = [("HF_HOME", path), ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")];
        assert_eq!(hub(&off).unwrap().token, None);
        let refused = hub(&[("HF_HOME", path), ("HF_TOKEN", "se cret\r\nX: y")]).unwrap_err();
        assert!(refused.to_string().starts_with("HF_TOKEN: found"), "{refused}");
        assert!(!refused.to_string().contains("cret"), "{refused}");
    }

    #[test]
    fn offline_is_what_python_takes_for_yes() {
        for (value, is_offline) in [("1", true), ("true", true), ("0", false), ("", false)] {
            let told = hub(&[("HOME", "/u"), ("HF_HUB_OFFLINE", value)]).unwrap();
            assert_eq!(told.is_offline, is_offline, "{value:?}");
        }
    }
}
