//! What every document must be: well-formed, self-contained, escaped, and honest about its marks.

use super::*;
use crate::axis::Scale;
use crate::chart::{Point, Series, Stroke};
use crate::table::{Column, Side};

const HOSTILE: &str = "</svg><script>alert(\"1\")</script>&\u{7}";

fn lines(points: &[f64]) -> Content {
    let strokes =
        [Stroke::Solid, Stroke::Marked, Stroke::Dashed, Stroke::DashedMarked, Stroke::Rings];
    let points: Vec<Point> = (0_u16..)
        .zip(points)
        .map(|(x, y)| Point::with_band(f64::from(x), *y, y - 0.1, y + 0.1))
        .collect();
    let series = strokes.into_iter().enumerate().map(|(colour, stroke)| Series {
        name: format!("{HOSTILE} {colour}"),
        points: points.clone(),
        stroke,
        colour,
    });
    Content::Lines(Chart {
        title: HOSTILE.to_owned(),
        caption: HOSTILE.to_owned(),
        x: (HOSTILE.to_owned(), Scale::Linear),
        y: (HOSTILE.repeat(9), Scale::Linear),
        series: series.collect(),
    })
}

fn bars(heights: &[f64]) -> Content {
    let layer = |_| Layer { name: HOSTILE.to_owned(), heights: heights.to_vec() };
    Content::Bars(StackedBars {
        title: HOSTILE.to_owned(),
        caption: HOSTILE.to_owned(),
        x: (HOSTILE.to_owned(), heights.iter().map(|_| HOSTILE.to_owned()).collect()),
        y: HOSTILE.to_owned(),
        layers: (0..9).map(layer).collect(),
    })
}

fn heat(values: &[f64]) -> Content {
    let cell = |value: &f64| Some(HeatCell { value: *value, hatched: *value > 1.0 });
    Content::Heat(HeatMap {
        title: HOSTILE.to_owned(),
        caption: HOSTILE.to_owned(),
        x: (HOSTILE.to_owned(), values.iter().map(|_| HOSTILE.to_owned()).collect()),
        y: (HOSTILE.to_owned(), vec![HOSTILE.to_owned(), "b".to_owned()]),
        cells: vec![values.iter().map(cell).collect(), vec![None]],
        value: HOSTILE.to_owned(),
        hatching: Some(HOSTILE.to_owned()),
        face: CellFace::Number,
    })
}

fn rows(values: &[f64]) -> Content {
    let row = |value: &f64| PlotRow {
        name: HOSTILE.to_owned(),
        values: vec![Some(*value), None],
        span: Some((value - 1.0, value + 1.0, 1)),
    };
    Content::Rows(RowPlot {
        title: HOSTILE.to_owned(),
        caption: HOSTILE.to_owned(),
        x: HOSTILE.to_owned(),
        y: HOSTILE.to_owned(),
        marks: vec![(HOSTILE.to_owned(), 0), (HOSTILE.to_owned(), 1)],
        rows: values.iter().map(row).collect(),
    })
}

fn parts() -> Content {
    let part = |holder| ModelSegment { name: HOSTILE.to_owned(), holder, size: 1.0 };
    Content::Parts(PartsDrawing {
        title: HOSTILE.to_owned(),
        caption: HOSTILE.to_owned(),
        holders: vec![HOSTILE.to_owned(), HOSTILE.to_owned()],
        rows: vec![PartsRow {
            name: HOSTILE.to_owned(),
            parts: vec![part(0), part(1), part(0)],
            flows: vec![HOSTILE.to_owned(), HOSTILE.to_owned()],
        }],
    })
}

fn others() -> Vec<Content> {
    let fact = Fact {
        name: HOSTILE.to_owned(),
        value: HOSTILE.to_owned(),
        note: Some(HOSTILE.to_owned()),
    };
    let column = Column { name: HOSTILE.to_owned(), side: Side::Left };
    vec![
        Content::Facts(vec![fact]),
        Content::Words(HOSTILE.to_owned()),
        Content::Findings(vec![(HOSTILE.to_owned(), vec![HOSTILE.to_owned()])]),
        Content::Table(Table {
            caption: HOSTILE.to_owned(),
            columns: vec![column],
            rows: vec![vec![HOSTILE.to_owned()]],
        }),
        Content::Folded(HOSTILE.to_owned(), format!("{HOSTILE}\n\tb")),
        Content::Command(HOSTILE.to_owned()),
        Content::Links(vec![(HOSTILE.to_owned(), format!("javascript:{HOSTILE}"))]),
    ]
}

fn document(contents: Vec<Content>) -> String {
    let sections = vec![Section::new(HOSTILE, contents)];
    let lead = vec![HOSTILE.to_owned()];
    let title = HOSTILE.to_owned();
    Document { title, lead, sections, freshness: Freshness::Fixed }.html()
}

/// Walks the tags and insists that they close in order; says which there were.
#[track_caller]
fn tags(html: &str) -> Vec<String> {
    const VOID: [&str; 3] = ["meta", "link", "!doctype"];
    let style = html.find("<style>").expect("a style")..html.find("</style>").expect("its end");
    let html = format!("{}{}", &html[..style.start + 7], &html[style.end..]);
    let (mut open, mut all): (Vec<&str>, Vec<String>) = (Vec::new(), Vec::new());
    let mut rest = html.as_str();
    while let Some((before, after)) = rest.split_once('<') {
        assert!(!before.contains('>'), "a bare > in {before:?}");
        let (tag, after) = after.split_once('>').expect("a tag ends");
        assert_eq!(tag.matches('"').count() % 2, 0, "quotes pair up in <{tag}>");
        let name = tag.split([' ', '\n']).next().expect("a name");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "</{name}> closes what is open");
        } else if !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
        }
        all.push(tag.to_owned());
        rest = after;
    }
    assert!(open.is_empty(), "{open:?} stay open");
    all
}

#[test]
fn everything_is_escaped_and_nothing_is_fetched() {
    let mut contents = others();
    contents.extend([
        lines(&[0.5, 0.7]),
        bars(&[1.0, 2.0]),
        heat(&[0.0, 2.0]),
        rows(&[1.0]),
        parts(),
    ]);
    let html = document(contents);
    let tags = tags(&html);
    assert!(tags.iter().all(|tag| !tag.starts_with("script") && !tag.starts_with("img")));
    let addresses: Vec<&String> =
        tags.iter().filter(|tag| tag.contains("href=") || tag.contains("src=")).collect();
    assert_eq!(addresses.len(), 2, "the empty icon and one link: {addresses:?}");
    assert!(addresses[1].starts_with("a href=\"./javascript%3A%3C"), "{addresses:?}");
    assert!(html.contains("default-src 'none'"));
    for fetched in ["http:", "https:", "url(http", "@import"] {
        assert!(!html.contains(fetched), "{fetched}");
    }
    assert!(!html.contains('\u{7}'));
}

#[test]
fn every_chart_says_how_many_marks_it_has() {
    // A line and three marks in each of three kinds of stroke, rings alone, a line alone.
    for (content, marks) in [
        (lines(&[0.5, 0.7, 0.6]), 2 + 2 * (1 + 3) + 3),
        (lines(&[0.5]), 4 + 1),
        (bars(&[1.0, 0.0, 2.0]), 9 * 2),
        (heat(&[0.0, 1.0, 2.0]), 3),
        (rows(&[1.0, -4.0]), 2),
        (parts(), 3),
    ] {
        let html = document(vec![content]);
        assert!(html.contains(&format!("data-marks=\"{marks}\"")), "{marks} in {html}");
        let tags = tags(&html);
        let has = |start: &str| tags.iter().any(|tag| tag.starts_with(start));
        assert!(has("title id=\"t1\"") && has("desc id=\"d1\"") && has("details") && has("table"));
    }
}

#[test]
fn what_cannot_be_drawn_honestly_is_replaced_by_the_reason() {
    for content in [
        lines(&[f64::NAN]),
        lines(&[]),
        bars(&[-1.0]),
        bars(&[]),
        heat(&[f64::INFINITY]),
        heat(&[]),
        rows(&[f64::NAN]),
        rows(&[]),
    ] {
        let html = document(vec![content]);
        assert!(html.contains("Not drawn: chart"), "{html}");
        assert!(!html.contains("<figure"), "{html}");
    }
}

#[test]
fn a_section_without_contents_is_absent() {
    assert!(!document(Vec::new()).contains("<section"));
}

#[test]
fn only_a_live_document_has_a_script_and_only_its_own() {
    let mut live = Document {
        title: "t".to_owned(),
        lead: Vec::new(),
        sections: Vec::new(),
        freshness: Freshness::Live("/refresh.js".to_owned()),
    };
    let html = live.html();
    assert!(html.contains("script-src 'self'; connect-src 'self'\">"));
    assert!(html.contains("<script src=\"/refresh.js\" defer></script>"));
    live.freshness = Freshness::Fixed;
    assert!(!live.html().contains("script"));
}
