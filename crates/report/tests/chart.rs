//! What every drawn chart must be: well-formed, inside its frame, and refused when it would lie.
#![expect(clippy::unwrap_used, reason = "the functions that serve tests are tests too")]

use fedra_report::{Chart, ChartError, Point, Scale, Series, Stroke};

fn chart(scale: Scale, points: &[Point]) -> Chart {
    let strokes =
        [Stroke::Solid, Stroke::Marked, Stroke::Dashed, Stroke::DashedMarked, Stroke::Rings];
    let series = strokes
        .into_iter()
        .enumerate()
        .map(|(colour, stroke)| Series {
            name: format!("a < b & \"c\" {colour}"),
            points: points.to_vec(),
            stroke,
            colour,
        })
        .collect();
    Chart {
        title: "Losses <here> & there".to_owned(),
        caption: "long words ".repeat(40),
        x: ("round".to_owned(), Scale::Linear),
        y: ("loss".to_owned(), scale),
        series,
    }
}

fn falling() -> Vec<Point> {
    (0..50)
        .map(|n| {
            let y = 0.9f64.powi(n);
            Point::with_band(f64::from(n), y, 0.5 * y, 2.0 * y)
        })
        .collect()
}

/// Walks the tags of an XML text and insists that they close in order.
#[track_caller]
fn assert_well_formed(text: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('<') {
        assert!(!before.contains('>'), "a bare > in {before:?}");
        let (tag, after) = after.split_once('>').expect("a tag ends");
        assert_eq!(tag.matches('"').count() % 2, 0, "quotes pair up in <{tag}>");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "</{name}> closes what is open");
        } else if !tag.ends_with('/') {
            open.push(tag.split_whitespace().next().unwrap());
        }
        rest = after;
    }
    assert!(open.is_empty(), "{open:?} stay open");
    let ampersands = text.split('&').skip(1);
    for entity in ampersands {
        assert!(["amp;", "lt;", "gt;", "quot;"].iter().any(|known| entity.starts_with(known)));
    }
}

fn numbers_of<'t>(text: &'t str, attribute: &str) -> Vec<(f64, f64)> {
    let quoted = |after: &'t str| after.split_once('"').unwrap().0;
    text.split(attribute)
        .skip(1)
        .flat_map(|after| quoted(after).split(' '))
        .map(|pair| pair.split_once(',').unwrap())
        .map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap()))
        .collect()
}

#[test]
fn a_chart_is_well_formed_and_keeps_every_point_inside_its_frame() {
    for scale in [Scale::Linear, Scale::Log] {
        let svg = chart(scale, &falling()).svg().unwrap();
        assert_well_formed(&svg);
        let frame =
            svg.split_once("<path class=\"axis\" d=\"M").unwrap().1.split_once('"').unwrap().0;
        let (corner, rest) = frame.split_once(" V").unwrap();
        let (left, top) = corner.split_once(',').unwrap();
        let (bottom, right) = rest.split_once(" H").unwrap();
        let [left, top, bottom, right] = [left, top, bottom, right].map(|n| n.parse().unwrap());
        let points = numbers_of(&svg, "points=\"");
        assert_eq!(points.len(), 4 * 50 + 5 * 100, "four lines and five bands");
        for (x, y) in points {
            assert!(left < x && x < right && top < y && y < bottom, "{x} {y} outside {frame}");
        }
        let of = |class: &str| svg.matches(&format!("class=\"{class}\"")).count();
        assert_eq!(of("ring c4"), 50 + 1, "rings, and one in the legend");
        assert_eq!((of("m c1"), of("m c3")), (25 + 1, 25 + 1), "every other mark, for room");
        assert!(!svg.contains("var("), "colours, which every reader of SVG knows");
    }
}

#[test]
fn the_same_chart_gives_the_same_text() {
    let chart = chart(Scale::Log, &falling());
    assert_eq!(chart.svg().unwrap(), chart.svg().unwrap());
}

#[test]
fn numbers_without_a_place_are_refused_by_name() {
    let cases = [
        (Scale::Linear, Point::new(0.0, f64::NAN)),
        (Scale::Linear, Point::new(f64::INFINITY, 0.0)),
        (Scale::Linear, Point::with_band(0.0, 1.0, f64::NEG_INFINITY, 2.0)),
        (Scale::Log, Point::new(0.0, 0.0)),
        (Scale::Log, Point::with_band(0.0, 1.0, -0.1, 2.0)),
    ];
    for (scale, bad) in cases {
        let refused = chart(scale, &[Point::new(0.0, 1.0), bad]).svg().unwrap_err();
        assert!(matches!(refused, ChartError::Unplottable { place: 1, .. }), "{refused}");
    }
    assert!(matches!(chart(Scale::Linear, &[]).svg(), Err(ChartError::Empty { .. })));
}
