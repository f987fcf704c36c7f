//! An image of a row: where its bytes are, and who it is.
//!
//! A file is read once to know its digest and its header, and read again when it is prepared: a table of
//! many large files takes little memory. A file that has changed in between is refused.

use std::fmt;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::decode::{self, Transparency};
use super::header::{Header, MOST_BYTES, MOST_PIXELS};
use super::raster::Raster;
use crate::error::Mismatch;

/// An image. Two are equal where their bytes are; printed, it shows its size and none of its content.
#[derive(Clone)]
pub struct Image {
    digest: [u8; 32],
    size: (u32, u32),
    bytes: u64,
    source: Source,
}

#[derive(Clone)]
enum Source {
    /// A PNG or JPEG file.
    File(Arc<Path>),
    /// The content of one.
    Encoded(Arc<[u8]>),
    /// Pixels as they are, row by row; of so many channels.
    Plain(Arc<[u8]>, u8),
}

impl Image {
    /// The image in a PNG or JPEG file, or what was found and expected there.
    pub fn file(path: impl Into<PathBuf>) -> Result<Self, (String, String)> {
        let path = path.into();
        let bytes = read(&path)?;
        Ok(Self { source: Source::File(path.into()), ..Self::encoded(bytes)? })
    }

    /// The image in the content of a PNG or JPEG file.
    pub fn encoded(bytes: impl Into<Arc<[u8]>>) -> Result<Self, (String, String)> {
        let bytes = bytes.into();
        let Header { width, height, .. } = Header::of(&bytes)?;
        let digest = Sha256::digest(&bytes).into();
        let length = bytes.len() as u64;
        Ok(Self { digest, size: (width, height), bytes: length, source: Source::Encoded(bytes) })
    }

    /// Plain pixels, row by row, the channels of a pixel beside each other: grey or RGB.
    pub fn plain(
        (width, height, channels): (u32, u32, u8),
        pixels: impl Into<Arc<[u8]>>,
    ) -> Result<Self, (String, String)> {
        let pixels = pixels.into();
        let count = u64::from(width) * u64::from(height);
        if count == 0 || count > MOST_PIXELS || !matches!(channels, 1 | 3) {
            let found = format!("{width} x {height} pixels of {channels} channels");
            return Err((found, format!("1 to {MOST_PIXELS} pixels, grey or RGB")));
        }
        if pixels.len() as u64 != count * u64::from(channels) {
            let expected = format!("{width} x {height} x {channels}");
            return Err((format!("{} bytes of pixels", pixels.len()), expected));
        }
        let mut sum = Sha256::new_with_prefix(b"plain pixels");
        for number in [width, height, u32::from(channels)] {
            sum.update(number.to_le_bytes());
        }
        sum.update(&pixels);
        let (digest, bytes) = (sum.finalize().into(), pixels.len() as u64);
        let source = Source::Plain(pixels, channels);
        Ok(Self { digest, size: (width, height), bytes, source })
    }

    /// The digest of its bytes.
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// The file that it is in, where it has one of its own.
    pub fn path(&self) -> Option<&Path> {
        match &self.source {
            Source::File(path) => Some(path),
            Source::Encoded(_) | Source::Plain(..) => None,
        }
    }

    /// Width and height in pixels, as its header says.
    pub fn size(&self) -> (u32, u32) {
        self.size
    }

    /// Bytes of its file, or of its plain pixels.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether it has colours: what it is stored as decides, not its pixels.
    pub fn has_colours(&self) -> Result<bool, (String, String)> {
        Ok(self.raster(Transparency::Dropped)?.channels == 3)
    }

    /// Its pixels.
    pub(crate) fn raster(&self, transparency: Transparency) -> Result<Raster, Mismatch> {
        match &self.source {
            Source::File(path) => {
                let bytes = read(path)?;
                if <[u8; 32]>::from(Sha256::digest(&bytes)) != self.digest {
                    let found = "another image than when the rows were read".to_owned();
                    return Err((found, "files that stay as they are".to_owned()));
                }
                decode::decode(&bytes, transparency)
            }
            Source::Encoded(bytes) => decode::decode(bytes, transparency),
            Source::Plain(pixels, channels) => {
                let (width, height) = (self.size.0 as usize, self.size.1 as usize);
                Ok(Raster::new((width, height), usize::from(*channels), pixels.to_vec()))
            }
        }
    }
}

/// The bytes of a regular file within the limit.
fn read(path: &Path) -> Result<Vec<u8>, Mismatch> {
    let refused = |error: &std::io::Error| {
        (format!("a file that cannot be read ({error})"), "a PNG or JPEG file".to_owned())
    };
    // A pipe would be waited for when it is opened.
    let about = std::fs::metadata(path).map_err(|error| refused(&error))?;
    if !about.is_file() {
        return Err(("no regular file".to_owned(), "a PNG or JPEG file".to_owned()));
    }
    let file = File::open(path).map_err(|error| refused(&error))?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(|error| refused(&error))?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err((
            "a larger file".to_owned(),
            format!("an image of at most {MOST_BYTES} bytes"),
        ));
    }
    Ok(bytes)
}

impl PartialEq for Image {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for Image {}

impl Hash for Image {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Image({} x {})", self.size.0, self.size.1)
    }
}
