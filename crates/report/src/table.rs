//! A table of a document.

use crate::text::escaped;

/// A table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// How to read it, above the table; may be empty.
    pub caption: String,
    /// What each column holds.
    pub columns: Vec<Column>,
    /// As many cells in each as there are columns.
    pub rows: Vec<Vec<String>>,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Its heading.
    pub name: String,
    /// To which side its cells are set.
    pub side: Side,
}

/// A side of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// For words.
    Left,
    /// For numbers.
    Right,
    /// For names and sentences out of files: as left, in their own direction, broken where they are too long.
    Name,
}

impl Table {
    pub(crate) fn html(&self) -> String {
        let cell = |kind: &str, (column, text): (&Column, &String)| {
            let side = match column.side {
                Side::Left => "",
                Side::Right => " class=\"number\"",
                Side::Name => " class=\"name\" dir=\"auto\"",
            };
            format!("<{kind}{side}>{}</{kind}>", escaped(text))
        };
        let line = |kind: &str, cells: Vec<&String>| {
            let cells = self.columns.iter().zip(cells).map(|pair| cell(kind, pair));
            format!("<tr>{}</tr>\n", cells.collect::<String>())
        };
        let head = line("th", self.columns.iter().map(|column| &column.name).collect());
        let rows = self.rows.iter().map(|row| line("td", row.iter().collect()));
        let caption = match self.caption.as_str() {
            "" => String::new(),
            caption => format!("<p>{}</p>\n", escaped(caption)),
        };
        format!(
            "{caption}<div class=\"wide\" tabindex=\"0\"><table>\n<thead>{head}</thead>\n<tbody>\n{}</tbody>\n</table></div>",
            rows.collect::<String>()
        )
    }
}
