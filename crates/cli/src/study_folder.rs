//! The folder of a study: a page with charts, each chart as a file, and every number.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fedra_report::{Chart, Content, Document, Freshness, Section};

use crate::files;

/// A folder that exists, so that a mistyped path is refused before the work.
pub struct StudyFolder {
    folder: PathBuf,
}

impl StudyFolder {
    /// Makes the folder.
    pub fn create(folder: &Path) -> Result<Self> {
        files::make_folder(folder).context("--out")?;
        Ok(Self { folder: folder.to_owned() })
    }

    /// Writes a file.
    pub fn put(&self, name: &str, text: &str) -> Result<()> {
        files::write(&self.folder.join(name), text)
    }

    /// Writes a page: title and lead, its sections, then the charts with links to their files. A chart
    /// without points is left out.
    pub fn put_page(
        &self,
        (title, lead): (&str, Vec<String>),
        mut sections: Vec<Section>,
        charts: &[(String, Chart)],
    ) -> Result<()> {
        let (mut shown, mut links) = (Vec::new(), Vec::new());
        for (name, chart) in charts {
            if chart.series.iter().all(|series| series.points.is_empty()) {
                continue;
            }
            let file = format!("{name}.svg");
            self.put(&file, &chart.svg()?)?;
            shown.push(Content::Lines(chart.clone()));
            links.push((file.clone(), file));
        }
        let links = if links.is_empty() { Vec::new() } else { vec![Content::Links(links)] };
        sections.push(Section::new("Charts", shown));
        sections.push(Section::new("The charts as files", links));
        let page =
            Document { title: title.to_owned(), lead, sections, freshness: Freshness::Fixed };
        self.put("index.html", &page.html())
    }

    /// Where the page is.
    pub fn page(&self) -> PathBuf {
        self.folder.join("index.html")
    }
}
