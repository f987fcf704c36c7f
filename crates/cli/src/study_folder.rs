//! The folder of a study: a page with charts, each chart as a file, and every number.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fedra_report::{Chart, Content, Document, Freshness, Section};

/// A folder that exists, so that a mistyped path is refused before the work.
pub struct StudyFolder {
    folder: PathBuf,
}

impl StudyFolder {
    /// Makes the folder.
    pub fn create(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)
            .with_context(|| format!("--out: cannot make the folder {}", folder.display()))?;
        Ok(Self { folder: folder.to_owned() })
    }

    /// Writes a file.
    pub fn put(&self, name: &str, text: &str) -> Result<()> {
        let path = self.folder.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Writes a page: title and lead, its sections, then the charts with links to their files. A chart
    /// without points is left out.
    pub fn put_page(
        &self,
        (title, lead): (&str, Vec<String>),
        mut sections: Vec<Section>,
        charts: &[(String, Chart)],
    ) -> Result<()> {
        let (mut shown, mut files) = (Vec::new(), Vec::new());
        for (name, chart) in charts {
            if chart.series.iter().all(|series| series.points.is_empty()) {
                continue;
            }
            let file = format!("{name}.svg");
            self.put(&file, &chart.svg()?)?;
            shown.push(Content::Lines(chart.clone()));
            files.push((file.clone(), file));
        }
        let files = if files.is_empty() { Vec::new() } else { vec![Content::Links(files)] };
        sections.push(Section::new("Charts", shown));
        sections.push(Section::new("The charts as files", files));
        let page =
            Document { title: title.to_owned(), lead, sections, freshness: Freshness::Fixed };
        self.put("index.html", &page.html())
    }

    /// Where the page is.
    pub fn page(&self) -> PathBuf {
        self.folder.join("index.html")
    }
}
